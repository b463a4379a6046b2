"""Backup and restore of whole logs: a backup is an ordinary log directory, and opens as one.

    backup(log, "/mnt/backup")            again and again: only what is new is copied
    restore("/mnt/backup", "./events")    into a new place; verified before it says so

The source may be written to all the while. Each topic is taken as it stands when its turn
comes; its rows are synced first, so a backup never holds rows that its log may yet lose.
`storage.copy` says what is copied, and in which order.

A new topic is copied aside (`topics/.backup-<id>`) and appears by rename. In one that is
there come blocks, then schemas and `topic.toml`, then state records and manifests. A topic
that was dropped stays in the backup; one made again under the same name takes its place.
`.backup` in the destination is locked meanwhile: two backups at once into one place are refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virta.errors import AlreadyExists, Corrupt, DamageError, NotFound, UnavailableError, UsageError
from virta.log import Log
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.catalog import Catalog, TopicRecord, parse_record, remove_tree
from virta.metadata.internal import is_internal
from virta.storage.copy import Plan, Position, copy_piece, copy_statistics, make_plan, put_in_force
from virta.storage.files import Files, read_file, replace_file, storage_error, sync_directory
from virta.storage.layout import LogPaths, PartitionPaths, TopicPaths
from virta.storage.manifest import Entry
from virta.storage.segment import Segment
from virta.types import VerifyReport

_ASIDE = ".backup-"
_REPLACED = ".dropped-"
_LOCK = ".backup"
_RESTORING = ".restoring"
# A segment that retention takes away while it waits for its turn: look again, but not for ever.
_ATTEMPTS = 4

Address = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a backup or restore has come."""

    topic: str
    bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCopy:
    """What was copied of a topic, or would be."""

    topic: str
    is_new: bool
    segments: int  # copied, or gone on with
    segments_kept: int
    blocks: int
    bytes: int
    rows: int  # in the copy, when it is done
    heads: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What a backup did, or with `dry_run` would do."""

    destination: Path
    log_id: str
    topics: tuple[TopicCopy, ...]
    dry_run: bool = False

    @property
    def bytes(self) -> int:
        return sum(topic.bytes for topic in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What a restore copied, and what verifying it found."""

    copied: BackupReport
    verified: dict[str, VerifyReport]

    @property
    def ok(self) -> bool:
        return all(report.ok for report in self.verified.values())


Told = Callable[[Progress], None]


def backup(
    log: Log,
    destination: Address,
    *,
    topics: Iterable[str] | None = None,
    dry_run: bool = False,
    progress: Told | None = None,
) -> BackupReport:
    """Bring the log in `destination` to where this one stands; all topics, or those named."""
    return _copy(log, Path(destination), topics, dry_run=dry_run, sync=True, progress=progress)


def restore(
    source: Address,
    destination: Address,
    *,
    topics: Iterable[str] | None = None,
    dry_run: bool = False,
    progress: Told | None = None,
) -> RestoreReport:
    """Make a log from a backup, in a place that is new, empty, or was left by a restore cut short.

    Every byte is verified again where it now lies; DamageError if something is not right.
    """
    target = Path(destination).expanduser().absolute()
    with Log(source, create=False) as saved:
        _check_place(saved, target)
        if not dry_run:
            target.mkdir(parents=True, exist_ok=True)
            (target / _RESTORING).touch()
        copied = _copy(saved, target, topics, dry_run=dry_run, sync=False, progress=progress)
    if dry_run:
        return RestoreReport(copied=copied, verified={})
    report = RestoreReport(copied=copied, verified=_verify(target, copied))
    if not report.ok:
        first = next(one for each in report.verified.values() for one in each.problems)
        raise DamageError(
            f"the restored log does not verify: {first.message}", topic=first.topic, file=first.file
        )
    (target / _RESTORING).unlink()
    return report


def _check_place(saved: Log, target: Path) -> None:
    if saved.path == target:
        raise UsageError("a backup is not restored onto itself", hint="name another directory")
    if not target.exists() or not any(target.iterdir()) or (target / _RESTORING).exists():
        return
    raise AlreadyExists(
        f"{target} is not empty", hint="restore to a new directory, then put it where the log belongs"
    )


def _verify(target: Path, copied: BackupReport) -> dict[str, VerifyReport]:
    with Log(target, create=False) as log:
        return {each.topic: log.topic(each.topic).verify(against=each.heads) for each in copied.topics}


# -- the whole ------------------------------------------------------------------------------------


def _copy(
    log: Log,
    destination: Path,
    topics: Iterable[str] | None,
    *,
    dry_run: bool,
    sync: bool,
    progress: Told | None,
) -> BackupReport:
    target = LogPaths(root=destination.expanduser().absolute())
    if target.root == log.path:
        raise UsageError("a log is not backed up onto itself", hint="name another directory")
    catalog = log._catalog
    names = sorted(set(topics)) if topics is not None else catalog.names()
    names.sort(key=is_internal)  # what is noted of the others comes after them
    try:
        _check_identity(catalog, target)
        with contextlib.ExitStack() as stack:
            if not dry_run:
                _prepare(catalog, target)
                stack.enter_context(_alone(catalog.files, target))
            copies = [_TopicCopier(log, name, target, sync=sync, progress=progress) for name in names]
            done = tuple(copier.plan_only() if dry_run else copier.run() for copier in copies)
    except OSError as error:
        raise storage_error(error, target.root, "copying to") from error
    return BackupReport(destination=target.root, log_id=catalog.log_id.hex(), topics=done, dry_run=dry_run)


def _check_identity(catalog: Catalog, target: LogPaths) -> None:
    """That the place is free, or holds a copy of this very log."""
    files = catalog.files
    if files.identity(target.log_file) is not None:
        there = Catalog.open(files, catalog.clock, target.root, create=False)
        if there.log_id != catalog.log_id:
            raise UsageError(
                f"{target.root} is the backup of another log (id {there.log_id.hex()})",
                hint="name another directory",
            )
        return
    if files.identity(target.root) is not None:
        strangers = [name for name in files.names(target.root) if not name.startswith(".")]
        if set(strangers) - {target.topics.name}:
            raise UsageError(f"{target.root} is neither empty nor a backup: it holds {strangers[0]!r}")


def _prepare(catalog: Catalog, target: LogPaths) -> None:
    files = catalog.files
    target.root.mkdir(parents=True, exist_ok=True)
    files.make_directory(target.topics)
    if files.identity(target.log_file) is None:
        replace_file(files, target.log_file, read_file(files, catalog.paths.log_file))
    sync_directory(files, target.root)
    sync_directory(files, target.root.parent)


@contextlib.contextmanager
def _alone(files: Files, target: LogPaths) -> Iterator[None]:
    descriptor = files.open(target.root / _LOCK, write=True, create=True)
    try:
        if not files.lock(descriptor, wait=False):
            raise UnavailableError(f"another backup to {target.root} is under way", hint="wait for it to end")
        yield
    finally:
        files.close(descriptor)


# -- one topic ------------------------------------------------------------------------------------


class _Gone(Exception):
    """A segment was removed while it waited for its turn."""


class _Source:
    """A partition of the source as it stood at one moment."""

    def __init__(self, stored: StoredPartition, *, sync: bool) -> None:
        self.stored = stored
        if sync:
            stored.dump()  # rows that are only in memory have no bytes to copy
        with stored.view() as view:
            self.position = Position(
                manifest=view.manifest,
                active=view.active,
                blocks=view.blocks,
                next_offset=view.next_offset,
                head=view.head,
                data_end=view.data_end,
                state=view.state,
            )
        if sync:
            # where it cannot be synced (a read-only medium, a failed disk), what verifies is still copied
            with contextlib.suppress(UnavailableError):
                stored.sync()

    def open_segment(self, entry: Entry) -> Segment:
        if entry.is_active:
            return self.position.active
        with self.stored.view() as view:
            for index, now in enumerate(view.manifest.segments):
                if (now.base, now.generation) == (entry.base, entry.generation) and not now.is_active:
                    return view.segment(index)
        raise _Gone

    @property
    def rows(self) -> int:
        *sealed, active = self.position.manifest.segments
        return sum(entry.rows for entry in sealed) + self.position.next_offset - active.base


class _TopicCopier:
    def __init__(self, log: Log, name: str, target: LogPaths, *, sync: bool, progress: Told | None) -> None:
        self._topic = log.topic(name)
        self._catalog = log._catalog
        self._files = log._catalog.files
        self._record: TopicRecord = self._catalog.load(name)
        self._target = target
        self._final = target.topic(name)
        self._sync = sync
        self._progress = progress
        self._copied = 0
        there = self._record_there()
        self._is_other = there is not None and there.id != self._record.id
        self._is_new = there is None or self._is_other
        aside = TopicPaths(root=target.topics / f"{_ASIDE}{self._record.id.hex()}")
        self._paths = aside if self._is_new else self._final

    def _record_there(self) -> TopicRecord | None:
        try:
            return parse_record(read_file(self._files, self._final.topic_file), self._final.topic_file)
        except FileNotFoundError:
            return None

    def plan_only(self) -> TopicCopy:
        return self._retried(self._plan)

    def run(self) -> TopicCopy:
        return self._retried(self._run)

    def _retried(self, act: Callable[[list[_Source]], TopicCopy]) -> TopicCopy:
        for _ in range(_ATTEMPTS):
            sources = [_Source(each.stored, sync=self._sync) for each in self._topic.partitions]
            try:
                return act(sources)
            except _Gone:
                continue
        raise UnavailableError(
            f"retention keeps removing segments of topic {self._record.name!r} before they are copied",
            hint="stop the steward, then try again",
        )

    def _place(self, number: int) -> PartitionPaths:
        return self._paths.partition(number)

    def _plans(self, sources: list[_Source]) -> list[Plan]:
        return [
            make_plan(self._files, self._place(number), source.position, source.open_segment)
            for number, source in enumerate(sources)
        ]

    def _plan(self, sources: list[_Source]) -> TopicCopy:
        return self._report(sources, self._plans(sources))

    def _run(self, sources: list[_Source]) -> TopicCopy:
        files = self._files
        # read after the positions: a topic may be newer than its partitions, never older
        record = self._catalog.load(self._record.name)
        if record.id != self._record.id:
            raise NotFound(f"topic {record.name!r} was dropped meanwhile")
        for directory in (self._paths.root, self._paths.schemas):
            files.make_directory(directory)
        for number in range(len(sources)):
            files.make_directory(self._place(number).root)
        plans = self._plans(sources)
        total = sum(plan.bytes for plan in plans)
        for number, (source, plan) in enumerate(zip(sources, plans, strict=True)):
            self._copy_partition(source, plan, self._place(number), total)
        self._copy_schemas(record)
        if self._is_new:
            for number, source in enumerate(sources):
                put_in_force(files, self._place(number), source.position)
            replace_file(files, self._paths.topic_file, record.to_bytes())
            self._appear()
        else:
            replace_file(files, self._paths.topic_file, record.to_bytes())
            for number, source in enumerate(sources):
                put_in_force(files, self._place(number), source.position)
        return self._report(sources, plans)

    def _copy_partition(self, source: _Source, plan: Plan, target: PartitionPaths, total: int) -> None:
        for piece in plan.pieces:
            segment = source.open_segment(piece.entry)
            try:
                copy_piece(self._files, target, piece, segment, lambda size: self._advance(size, total))
            except Corrupt as error:
                error.topic = error.topic or self._record.name
                raise
            if not piece.entry.is_active:
                copy_statistics(self._files, source.stored.paths, target, piece.entry)

    def _advance(self, size: int, total: int) -> None:
        self._copied += size
        if self._progress is not None:
            self._progress(Progress(topic=self._record.name, bytes=self._copied, total_bytes=total))

    def _copy_schemas(self, record: TopicRecord) -> None:
        source = self._catalog.paths.topic(record.name)
        for version in range(1, record.schema_version + 1):
            target = self._paths.schema(version)
            data = read_file(self._files, source.schema(version))
            if self._files.identity(target) is None or read_file(self._files, target) != data:
                replace_file(self._files, target, data)

    def _appear(self) -> None:
        """A new topic gets its name; one of that name with another id, which the log dropped, goes."""
        files = self._files
        sync_directory(files, self._paths.root)
        gone = self._target.topics / f"{_REPLACED}{self._record.id.hex()}"
        if self._is_other:
            files.rename(self._final.root, gone)
        files.rename(self._paths.root, self._final.root)
        sync_directory(files, self._target.topics)
        if self._is_other:
            remove_tree(files, gone)

    def _report(self, sources: list[_Source], plans: list[Plan]) -> TopicCopy:
        return TopicCopy(
            topic=self._record.name,
            is_new=self._is_new,
            segments=sum(len(plan.pieces) for plan in plans),
            segments_kept=sum(plan.kept for plan in plans),
            blocks=sum(plan.blocks for plan in plans),
            bytes=sum(plan.bytes for plan in plans),
            rows=sum(source.rows for source in sources),
            heads={number: source.position.head.hex() for number, source in enumerate(sources)},
        )
