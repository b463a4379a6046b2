"""Verifying a partition from its files, while writers and readers go on.

Every block is read and checked, oldest first, in bounded memory. A partition is whole when

 1. the oldest segment begins at genesis, or a `retained` control block further on names
    the hash it begins at as the one after the removal;
 2. each data file opens with the schema that the manifest, the control block at its
    front and the topic's own schema file agree on, and blocks lie after it without gap
    or rest;
 3. each block matches its digest, says of itself what its header says, holds the offsets
    and times its header names, and its header follows from the one before;
 4. offsets go on without gap, times and epochs never go back;
 5. each sealed segment ends as the manifest says, and the active one holds at least
    what the state record calls synced, under the hash it calls it by;
 6. the link of a rewritten block follows from the old fields and digests in its trail, and
    a `rewritten` control block names each segment that has such blocks by its digest;
 7. heads that were noted earlier are in the chain.

The data file is the truth: where a header and a block disagree, the header is made
again from the block, and whichever of the two does not follow from the history before
is the one that is damaged. A chain file is derived, so its damage has a cure. What a
crash leaves above the watermark is no damage: the next append recovers it.

No lock is held while blocks are checked. What recovery, rolling or retention change
meanwhile is looked at again before it is called damage.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from virta.errors import Corrupt, UnavailableError, UsageError
from virta.storage import key_index, statistics
from virta.storage.files import Files
from virta.storage.layout import LOCK, MANIFEST, TORN_MARK, TURNSTILE, PartitionPaths, segment_of
from virta.storage.manifest import Entry, Manifest
from virta.storage.replace import segment_files
from virta.storage.state import State
from virta.storage.verify_segment import (
    RESTORE,
    Context,
    Found,
    Place,
    Progress,
    SeenReceipt,
    SeenRewrite,
    SegmentWalk,
    file_key,
    repair_command,
)
from virta.storage.view import Identity
from virta.types import HASH_SIZE, Problem, Receipt, VerifyReport

__all__ = ["Progress", "combine", "parse_head", "repair_command", "verify_partition"]

# Past it problems are counted, not listed: nobody reads more, and a ruined file has millions.
_PROBLEM_LIMIT = 100
# Recoveries and removals are rare; one that keeps coming in between is trouble of its own.
_ATTEMPTS = 4


def verify_partition(
    files: Files,
    paths: PartitionPaths,
    identity: Identity,
    schema_of: Callable[[int], pa.Schema],
    *,
    heads: Iterable[str] = (),
    progress: Callable[[Progress], None] | None = None,
    walk: Callable[[Context, Entry, Place, State], Walk] = SegmentWalk,
) -> VerifyReport:
    """Check everything that is stored of a partition; `heads` noted earlier must be in its chain.

    `walk` looks at a segment: here and now, or it tells what another process has found there.
    """
    wanted = {parse_head(head) for head in heads}
    context = Context(files, paths, identity, schema_of, wanted, progress)
    return _Verification(context, walk).run()


def parse_head(text: str) -> bytes:
    """A head as it is printed: 64 hexadecimal digits."""
    try:
        head = bytes.fromhex(text.strip())
    except ValueError:
        head = b""
    if len(head) != HASH_SIZE:
        raise UsageError(
            f"{text!r} is not a head", hint="give all 64 hexadecimal digits, as in ack.head or topic.head"
        )
    return head


def combine(reports: Iterable[VerifyReport]) -> VerifyReport:
    """The reports of several partitions as one."""
    reports = list(reports)
    heads: dict[int, str] = {}
    trustworthy: dict[int, int] = {}
    for report in reports:
        heads.update(report.heads)
        trustworthy.update(report.trustworthy_until or {})
    return VerifyReport(
        blocks=sum(report.blocks for report in reports),
        rows=sum(report.rows for report in reports),
        bytes=sum(report.bytes for report in reports),
        heads=heads,
        problems=tuple(problem for report in reports for problem in report.problems),
        trustworthy_until=trustworthy,
        receipts=tuple(receipt for report in reports for receipt in report.receipts),
    )


# -- the whole partition --------------------------------------------------------------------


class _Rewritten(Exception):
    """A segment was rewritten before its turn came."""


class Walk(Protocol):
    """One pass over a segment: what it found, and where the next one begins."""

    found: Found
    place: Place

    def run(self) -> None: ...


class _Verification:
    def __init__(self, context: Context, walk: Callable[[Context, Entry, Place, State], Walk]) -> None:
        self.context = context
        self.walk = walk
        self.files = context.files
        self.paths = context.paths
        self.topic = context.identity.topic
        self.found = Found()

    def run(self) -> VerifyReport:
        """Verify, with rewrites held off if none is at work; else from the start where one came between."""
        wanted = set(self.context.wanted)
        descriptor = self.files.open(self.paths.root)
        try:
            self.files.lock(descriptor, exclusive=False, wait=False)
            for _ in range(_ATTEMPTS):
                try:
                    return self._attempt()
                except _Rewritten:
                    self.found = Found()
                    self.context.wanted = set(wanted)
            raise UnavailableError(
                f"{self.paths.root} is being rewritten again and again", hint="try again a little later"
            )
        finally:
            self.files.close(descriptor)

    def _attempt(self) -> VerifyReport:
        try:
            return self._run()
        except (Corrupt, OSError) as error:
            self._problem_of(error, self.paths.root, cure=None)
            self.found.distrust(0)
            return self._report(Place(offset=0, head=b""))

    def _run(self) -> VerifyReport:
        try:
            loaded = self.context.manifest()
        except (Corrupt, OSError) as error:
            self._problem_of(error, self.paths.manifest, cure=RESTORE)
            self.found.distrust(0)
            return self._report(Place(offset=0, head=b""))
        self.context.total_bytes = self._total_bytes(loaded)
        first = loaded.segments[0]
        place = Place(offset=first.base, head=first.previous_hash)
        for entry in loaded.segments:
            if self._is_removed(entry):
                first = self.context.manifest().segments[0]
                if entry.base >= first.base:
                    raise _Rewritten
                place = after(entry, place)
                continue
            place = self._segment(entry, place)
        self._look_at_start(first)
        self._look_at_rewrites(first)
        self._look_at_state()
        self._look_at_names()
        self._look_for_heads(first)
        return self._report(place)

    def _total_bytes(self, loaded: Manifest) -> int:
        sizes = [entry.data_length for entry in loaded.segments if not entry.is_active]
        try:
            descriptor = self.files.open(self.paths.data(*file_key(loaded.active)))
        except OSError:
            return sum(sizes)
        try:
            return sum(sizes) + self.files.size(descriptor)
        finally:
            self.files.close(descriptor)

    def _report(self, place: Place) -> VerifyReport:
        found = self.found
        trusted = place.offset if found.trusted is None else found.trusted
        number = self.context.identity.number
        problems = found.problems
        if len(problems) > _PROBLEM_LIMIT:
            more = len(problems) - _PROBLEM_LIMIT
            severity = "damage" if any(one.severity == "damage" for one in problems) else "notice"
            problems = [
                *problems[:_PROBLEM_LIMIT],
                self.context.problem(f"and {more} more problems", severity),
            ]
        return VerifyReport(
            blocks=found.blocks,
            rows=found.rows,
            bytes=found.bytes,
            heads={number: place.head.hex()},
            problems=tuple(problems),
            trustworthy_until={number: trusted},
            receipts=tuple(self._told(receipt) for receipt in found.receipts if self._is_told(receipt)),
        )

    def _problem_of(self, error: Corrupt | OSError, path: Any, *, cure: str | None) -> None:
        text = error.message if isinstance(error, Corrupt) else f"cannot be read: {error.strerror or error}"
        position = error.position if isinstance(error, Corrupt) else None
        self.found.problems.append(self.context.problem(text, file=str(path), position=position, cure=cure))

    # -- segments -----------------------------------------------------------------------------

    def _is_removed(self, entry: Entry) -> bool:
        """Whether retention took the segment away since the manifest was read."""
        if self.files.identity(self.paths.data(*file_key(entry))) is not None:
            return False
        try:
            now = self.context.manifest()
        except (Corrupt, OSError):
            return False
        return all(file_key(other) != file_key(entry) for other in now.segments)

    def _segment(self, entry: Entry, place: Place) -> Place:
        for attempt in range(_ATTEMPTS):
            known = self.context.state() or State()
            walk = self.walk(self.context, entry, place, known)
            walk.run()
            is_damaged = any(problem.severity == "damage" for problem in walk.found.problems)
            if is_damaged and self._is_removed(entry):
                raise _Rewritten
            now = self.context.state() or State()
            same = (now.epoch, now.generation) == (known.epoch, known.generation)
            if not is_damaged or same or attempt == _ATTEMPTS - 1:
                break
        self.found.add(walk.found)
        if not entry.is_active:
            self._look_at_derived(entry)
        return walk.place if entry.is_active else after(entry, walk.place)

    def _look_at_derived(self, entry: Entry) -> None:
        """Statistics and keys are derived: damaged ones are never believed, and worth a warning only."""
        for path, parse in (
            (self.paths.stats(*file_key(entry)), statistics.parse),
            (self.paths.keys(*file_key(entry)), key_index.parse),
        ):
            try:
                parse(self._content(path), entry)
            except FileNotFoundError:
                continue
            except Corrupt as error:
                text = f"{error.message}; they are not believed, and made again when they are needed"
                cure = f"rm {shlex.quote(str(path))}"
                problem = self.context.problem(text, "warning", file=str(path), cure=cure)
                self.found.problems.append(problem)

    def _content(self, path: Path) -> Any:
        """A derived file, mapped: one of many keys is large."""
        descriptor = self.files.open(path)
        try:
            size = self.files.size(descriptor)
            return self.files.map(descriptor, size) if size else b""
        finally:
            self.files.close(descriptor)

    # -- what lies around the segments --------------------------------------------------------

    def _look_at_start(self, first: Entry) -> None:
        """Rule 1: nothing is missing at the old end that was not removed by retention."""
        removals = [receipt for receipt in self.found.receipts if receipt.kind == "retained"]
        for receipt in removals:
            if receipt.number("to") > first.base:
                self.found.problems.append(
                    self.context.problem(
                        f"a removal of the rows before offset {receipt.number('to')} was begun and not "
                        "finished",
                        "notice",
                        cure="virta steward --once",
                    )
                )
        if first.base == 0 and first.previous_hash == self.context.identity.genesis():
            return
        for receipt in removals:
            is_its = receipt.event.get("hash_after") == first.previous_hash.hex()
            if receipt.number("to") == first.base and is_its:
                return
        if first.base:
            text = (
                f"the rows before offset {first.base} are missing, and no receipt says that they were removed"
            )
        else:
            text = "the oldest block does not follow from this log's, topic's and partition's identity"
        self.found.distrust(first.base)
        self.found.problems.append(
            self.context.problem(
                text, file=str(self.paths.data(*file_key(first))), position=0, offset=first.base, cure=RESTORE
            )
        )

    def _look_at_rewrites(self, first: Entry) -> None:
        """Rule 6: each rewritten segment is, byte for byte, what a receipt in the chain names."""
        receipts = [receipt for receipt in self.found.receipts if receipt.kind == "rewritten"]
        for seen in self.found.rewrites:
            named = [receipt for receipt in receipts if receipt.event.get("seal") == seen.seal]
            wrong = _judge_receipt(named[-1], seen) if named else "and no receipt in the chain names them"
            if wrong:
                text = f"rows {seen.entry.base} to {seen.entry.end - 1} were rewritten, {wrong}"
                path = self.paths.data(*file_key(seen.entry))
                self.found.distrust(seen.entry.base)
                self.found.problems.append(
                    self.context.problem(
                        text, file=str(path), position=0, offset=seen.entry.base, cure=RESTORE
                    )
                )
        seals = {seen.seal for seen in self.found.rewrites}
        for number, receipt in enumerate(receipts):
            is_made = receipt.event.get("seal") in seals or receipt.number("to") <= first.base
            if not is_made and not any(_covers(later, receipt) for later in receipts[number + 1 :]):
                text = (
                    f"a rewrite of the rows {receipt.number('from')} to {receipt.number('to') - 1} "
                    f"({receipt.reason}) was begun and not finished"
                )
                severity = "warning" if receipt.reason == "erased" else "notice"
                self.found.problems.append(self.context.problem(text, severity, cure="virta steward --once"))

    def _is_told(self, receipt: SeenReceipt) -> bool:
        """Removals and erasures are told for ever, other rewrites while they are in force."""
        seals = {seen.seal for seen in self.found.rewrites}
        return receipt.kind == "retained" or receipt.reason == "erased" or receipt.event.get("seal") in seals

    def _told(self, receipt: SeenReceipt) -> Receipt:
        before = receipt.number("rows_before" if receipt.kind == "rewritten" else "rows")
        left = receipt.number("rows") if receipt.kind == "rewritten" else 0
        return Receipt(
            partition=self.context.identity.number,
            reason=receipt.reason,
            from_offset=receipt.number("from"),
            to_offset=receipt.number("to"),
            rows_removed=max(0, before - left),
            timestamp_us=receipt.timestamp,
        )

    def _look_at_state(self) -> None:
        if self.context.state() is None:
            text = "the state record is not readable; the next append looks at all of the active segment"
            self.found.problems.append(self.context.problem(text, "warning", file=str(self.paths.lock)))

    def _look_at_names(self) -> None:
        """That the directory holds what the manifest names and nothing unexplained."""
        found: list[Problem] = []

        def look() -> None:
            named = {LOCK, TURNSTILE, MANIFEST}
            for entry in self.context.manifest().segments:
                named.update(path.name for path in segment_files(self.paths, entry))
            for name in self.files.names(self.paths.root):
                problem = self._judge_name(name, named)
                if problem is not None:
                    found.append(problem)

        try:
            self.context.quietly(look)
        except (Corrupt, OSError) as error:
            self._problem_of(error, self.paths.root, cure=None)
        self.found.problems += found

    def _judge_name(self, name: str, named: set[str]) -> Problem | None:
        if name in named:
            return None
        path = self.paths.root / name
        if TORN_MARK in name:
            text = "evidence of a crash that was recovered; remove it when nobody needs it"
            return self.context.problem(text, "notice", file=str(path))
        if segment_of(name) is not None or name.startswith("."):
            text = "left by a change of segments that was interrupted; nothing refers to it"
            cure = "virta steward --once"
            return self.context.problem(text, "notice", file=str(path), cure=cure)
        return self.context.problem("a file that does not belong to a partition", "warning", file=str(path))

    def _look_for_heads(self, first: Entry) -> None:
        """Rule 7: what was noted earlier is still part of this history."""
        wanted = self.context.wanted
        wanted.discard(first.previous_hash)
        for receipt in self.found.receipts:
            if receipt.kind != "retained":
                continue
            for name in ("hash_before", "hash_after"):
                wanted -= {head for head in wanted if head.hex() == receipt.event.get(name)}
        for head in sorted(wanted):
            text = f"the head {head.hex()} is not in the chain: history was rewritten or cut short"
            if first.base:
                text += f", or it was noted before the rows up to offset {first.base} were removed"
            self.found.problems.append(self.context.problem(text, cure=RESTORE))
            self.found.distrust(first.base)


def after(entry: Entry, place: Place) -> Place:
    """Where the next segment begins, whatever was found in this one."""
    return Place(
        offset=entry.end,
        head=entry.last_hash,
        timestamp=max(entry.max_timestamp, place.timestamp),
        epoch=place.epoch,
    )


def _judge_receipt(receipt: SeenReceipt, seen: SeenRewrite) -> str | None:
    """What is wrong with the receipt that names a rewritten segment."""
    event, entry = receipt.event, seen.entry
    place = (event.get("from"), event.get("to"), event.get("hash_before"), event.get("hash_after"))
    if place != (entry.base, entry.end, entry.previous_hash.hex(), entry.last_hash.hex()):
        return "and the receipt that names them is of another place"
    if event.get("rows") != seen.rows:
        return f"and the receipt says that {event.get('rows')} are left, but {seen.rows} are"
    if receipt.reason == "joined" and event.get("rows_before") != seen.rows:
        return "and the receipt says that none went, but counts fewer than before"
    return None


def _covers(later: SeenReceipt, receipt: SeenReceipt) -> bool:
    return later.number("from") <= receipt.number("from") and later.number("to") >= receipt.number("to")
