"""What the steward rewrites in a partition: update topics are compacted, small blocks are joined.

One process at a time rewrites a partition; another one leaves it for its next round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten, open_segments, rewrite
from virta.steward import compaction
from virta.steward.joining import plan_joins
from virta.storage import manifest, state
from virta.storage.manifest import Entry
from virta.storage.rewrite import JOINED_BYTES, Amounts, SourcesChanged, rewriting_alone
from virta.storage.segment import StoredBlock
from virta.types import Kind, TopicConfig

COMPACTED, JOINED = "compacted", "joined"
# Told at most this often: a report costs less than rewriting so much.
_PROGRESS_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the rewriting of a partition has come."""

    topic: str
    partition: int
    reason: str
    bytes: int
    total_bytes: int


class _Told:
    """Adds up what was rewritten, and tells it now and then."""

    def __init__(
        self, partition: Partition, reason: str, total: int, progress: Callable[[Progress], None] | None
    ) -> None:
        self._partition = partition
        self._reason = reason
        self._total = total
        self._progress = progress
        self._bytes = self._untold = 0

    def __call__(self, size: int) -> None:
        self._bytes += size
        self._untold += size
        if self._progress is not None and self._untold >= _PROGRESS_BYTES:
            self._untold = 0
            self._progress(
                Progress(
                    topic=self._partition.identity.topic,
                    partition=self._partition.identity.number,
                    reason=self._reason,
                    bytes=self._bytes,
                    total_bytes=max(self._total, self._bytes),
                )
            )


class Rewriting:
    """Remembers what it looked at in vain, so that the next round need not look again."""

    def __init__(self) -> None:
        self._in_vain: dict[Any, tuple[int, int]] = {}

    def run(
        self,
        partition: Partition,
        config: TopicConfig,
        now_us: int,
        *,
        dry_run: bool = False,
        force: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Rewritten]:
        """Do what is due, or tell what would be done."""
        with partition.view() as view:
            if view.state.flags & (state.LOCKED | state.DROPPED):
                return
            segments, size = view.manifest.segments, view.data_end
        is_update = config.kind is Kind.UPDATE and bool(config.keys)
        sizes = compaction.Sizes.of(segments, size)
        is_due = is_update and (force or sizes.is_due(config.compaction_ratio))
        if is_due and not force and self._was_in_vain(partition, sizes):
            is_due = False
        joins = _joins(segments, config, force=force)
        if not is_due and not joins:
            return
        if dry_run:
            yield from _announced(partition, config, now_us, joins, is_due=is_due, force=force)
            return
        with rewriting_alone(partition.files, partition.paths) as alone:
            if not alone:
                return
            try:
                if is_due:
                    yield from self._compact(partition, config, now_us, sizes, force, progress)
                yield from _join(partition, config, force=force, progress=progress)
            except SourcesChanged:
                return  # somebody erased or removed rows meanwhile; the next round plans anew

    def _was_in_vain(self, partition: Partition, sizes: compaction.Sizes) -> bool:
        """Whether the last look found nothing to compact, and less than half as much came since."""
        seen = self._in_vain.get(partition.paths.root)
        if seen is None:
            return False
        total, new = seen
        return sizes.total < total + max(new // 2, JOINED_BYTES)

    def _compact(
        self,
        partition: Partition,
        config: TopicConfig,
        now_us: int,
        sizes: compaction.Sizes,
        force: bool,
        progress: Callable[[Progress], None] | None,
    ) -> Iterator[Rewritten]:
        if sizes.seals_active or (force and sizes.active):
            seal(partition)
        found = compaction.scan(partition, config, now_us)
        told = _Told(partition, COMPACTED, sum(each.entry.data_length for each in found), progress)
        done = False
        for each in compaction.compact(partition, config, found, force=force, advance=told):
            done = True
            yield each
        if done:
            self._in_vain.pop(partition.paths.root, None)
        else:
            self._in_vain[partition.paths.root] = (sizes.total, sizes.new)


def seal(partition: Partition) -> None:
    """Writing goes on in a new segment, so that the rows so far can be rewritten."""
    with partition.writing() as committer:
        if any(header.rows for header in _headers(committer.view)):
            committer.roll()


def _headers(view: Any) -> Iterator[Any]:
    for index in range(view.blocks - 1, -1, -1):
        yield view.active.headers(view.blocks).header(index)


def _joins(segments: Sequence[Entry], config: TopicConfig, *, force: bool) -> list[list[Entry]]:
    if not config.join_blocks:
        return []
    return plan_joins(segments, segment_bytes=config.segment_bytes, force=force)


def _join(
    partition: Partition,
    config: TopicConfig,
    *,
    force: bool,
    progress: Callable[[Progress], None] | None,
) -> Iterator[Rewritten]:
    """Planned anew: a compaction may have come before."""
    with partition.view() as view:
        segments = view.manifest.segments
    groups = _joins(segments, config, force=force)
    told = _Told(partition, JOINED, sum(entry.data_length for group in groups for entry in group), progress)
    for group in groups:
        was_compacted = all(entry.flags & manifest.COMPACTED for entry in group)
        yield rewrite(
            partition,
            open_segments(partition, group),
            _keep_all,
            JOINED,
            compression=config.compression,
            flags=manifest.JOINED | (manifest.COMPACTED if was_compacted else 0),
            advance=told,
        )


def _keep_all(_: int, __: int, ___: StoredBlock) -> None:
    return None


def _announced(
    partition: Partition,
    config: TopicConfig,
    now_us: int,
    joins: list[list[Entry]],
    *,
    is_due: bool,
    force: bool,
) -> Iterator[Rewritten]:
    """What would be done now. The active segment, which would be sealed first, is left out."""
    if is_due:
        found = compaction.scan(partition, config, now_us)
        for group in compaction.grouped(
            compaction.choose(found, force=force), segment_bytes=config.segment_bytes
        ):
            before = Amounts.of([each.entry for each in group])
            rows, size = sum(each.dead for each in group), sum(each.live_bytes for each in group)
            after = dataclasses.replace(before, segments=1, rows=before.rows - rows, bytes=size)
            yield _would_be(COMPACTED, [each.entry for each in group], before, after)
        return
    for entries in joins:
        before = Amounts.of(entries)
        yield _would_be(JOINED, entries, before, dataclasses.replace(before, segments=1))


def _would_be(reason: str, entries: Sequence[Entry], before: Amounts, after: Amounts) -> Rewritten:
    return Rewritten(
        reason=reason,
        from_offset=entries[0].base,
        to_offset=entries[-1].end,
        before=before,
        after=after,
    )
