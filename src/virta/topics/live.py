"""Which rows of a partition are live: the newest of their key, and no tombstones.

The answer is a mask for each segment, in the order of its rows. It is worked out once and
then kept up: new rows are live, and take the life of those before them that have their
keys. Masks that were handed out are never changed.

Hashes bring rows together; where equal hashes may belong to different keys, the keys are
compared, so no row is hidden by another key's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import unify
from virta.storage.key_index import DELETES, KeyEntries
from virta.storage.manifest import Entry
from virta.storage.segment import StoredBlock
from virta.topics.key_index import (
    KeyColumns,
    KeyIndex,
    KeyRows,
    SegmentKey,
    SegmentKeys,
    alike,
    index_of,
    joined_column,
)
from virta.topics.keys import Indices, Mask, Words, form_of
from virta.topics.newest import by_hash, pairs
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import PartitionSnapshot, Range, Run, blocks_of

ROW = np.uint32(DELETES - 1)
# Who looks at more than one row in so many reads the column whole.
_WHOLE_COLUMN = 4
# A part is joined with the one before it while that one is not so many times as large.
_JOIN_RATIO = 4


@dataclass(slots=True, kw_only=True, eq=False)
class Segment:
    """The rows of one segment that are counted, in parts with one entry for each key of a part."""

    runs: list[Run]
    blocks: Sequence[StoredBlock] = ()  # of rows only in memory
    live: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    parts: list[KeyEntries] = field(default_factory=list)

    def add(self, entries: KeyEntries, rows: int) -> None:
        """Further rows: of each key the newest is live, unless it deletes."""
        live = np.zeros(rows, dtype=np.bool_)
        live[: len(self.live)] = self.live
        live[entries.rows & ROW] = entries.rows < DELETES
        self.live = live
        self.parts.append(entries)

    def keys_at(self, rows: Indices, columns: KeyColumns) -> list[pa.Array]:
        """The keys of some rows."""
        if self.blocks:
            found = columns.of_blocks(self.blocks, 0)
            assert found is not None
            return [column.take(pa.array(rows)) for column in found.columns]
        return self.columns_at(rows, columns.read)

    def columns_at(self, rows: Indices, read: Callable[[Sequence[Run]], list[pa.Array]]) -> list[pa.Array]:
        """What `read` reads, of some rows that are on disk."""
        if len(rows) * _WHOLE_COLUMN >= len(self.live):
            return [column.take(pa.array(rows)) for column in read(self.runs)]
        return self._of_few(rows, read)

    def _of_few(self, rows: Indices, read: Callable[[Sequence[Run]], list[pa.Array]]) -> list[pa.Array]:
        """Block by block, in the order of the rows; then in the order they were asked for."""
        starts = row_starts(self.runs)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        blocks = starts.searchsorted(ordered, side="right") - 1
        edges = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1]))
        gathered: list[list[pa.Array]] = []
        for first, last in zip(edges.tolist(), [*edges[1:].tolist(), len(blocks)], strict=True):
            block = int(blocks[first])
            run = next(run for run in self.runs if run.start <= block < run.stop)
            places = pa.array(ordered[first:last] - starts[block])
            gathered.append([column.take(places) for column in read([run.part(block, block + 1)])])
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return [joined_column(parts).take(pa.array(back)) for parts in zip(*gathered, strict=True)]


def row_starts(runs: Sequence[Run]) -> Indices:
    """The number of the first row of each block of a segment, up to the last of the runs."""
    headers = runs[0].segment.header_array(0, runs[-1].stop)
    counts = headers["rows"].astype(np.int64)
    starts: Indices = np.cumsum(counts) - counts
    return starts


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRows:
    """A partition of one moment: its runs, segment by segment, with the mask of each."""

    snapshot: PartitionSnapshot
    segments: Sequence[tuple[list[Run], Mask]]
    in_memory: Mask

    @property
    def count(self) -> int:
        masks = [mask for _, mask in self.segments]
        return sum(int(np.count_nonzero(mask)) for mask in [*masks, self.in_memory])


class _Newer:
    """The keys of all rows that are newer than those looked at, one entry for each."""

    def __init__(self, columns: KeyColumns) -> None:
        self._columns = columns
        self.hashes: Words = np.zeros(0, dtype=np.uint64)
        self._keys: list[pa.Array] | None = None  # kept only where hashes are not exact

    def hides(self, entries: KeyEntries, owner: Segment) -> Mask:
        """Which of the entries have a key that is here as well."""
        hidden = np.zeros(len(entries.hashes), dtype=np.bool_)
        ours, theirs = pairs(self.hashes, entries.hashes)
        if self._keys is not None and len(ours):
            rows = (entries.rows[theirs] & ROW).astype(np.int64)
            there = owner.keys_at(rows, self._columns)
            here = [column.take(pa.array(ours)) for column in self._keys]
            both = [pa.concat_arrays(alike(*each)) for each in zip(here, there, strict=True)]
            first = np.arange(len(ours))
            theirs = theirs[form_of(both).same(first, first + len(ours))]
        hidden[theirs] = True
        return hidden

    def add(self, entries: KeyEntries, chosen: Mask, owner: Segment) -> None:
        hashes = entries.hashes[chosen]
        if not len(hashes):
            return
        merged = np.concatenate((self.hashes, hashes))
        if self._columns.exact:
            merged.sort()
            self.hashes = merged
            return
        order = by_hash(merged)
        fresh = owner.keys_at((entries.rows[chosen] & ROW).astype(np.int64), self._columns)
        known = self._keys or [column.slice(0, 0) for column in fresh]
        joined = [pa.concat_arrays(alike(*each)) for each in zip(known, fresh, strict=True)]
        self._keys = [column.take(pa.array(order)) for column in joined]
        self.hashes = merged[order]


class LiveMasks:
    """The live rows of one partition, kept up from one look to the next. The index's lock guards it."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource) -> None:
        self._stored = stored
        self._schemas = schemas
        self._segments: dict[SegmentKey, Segment] = {}
        self._cuts = -1

    def now(self) -> LiveRows:
        """The live rows of this moment."""
        index = index_of(self._stored, self._schemas)
        with index.lock:
            snapshot, cuts = _followed(index, self._stored, self._schemas)
            if cuts != self._cuts:
                self._segments, self._cuts = {}, cuts
            return self._count(index, snapshot)

    def _count(self, index: KeyIndex, snapshot: PartitionSnapshot) -> LiveRows:
        known = {keys.key: keys for keys in index.segments}
        following: dict[SegmentKey, Segment] = {}
        grown: list[Segment] = []
        for runs in snapshot.by_segment():
            keys = known[_key_of(runs)]
            segment = self._segments.get(keys.key) or Segment(runs=runs)
            segment.runs = runs
            following[keys.key] = segment
            if len(segment.live) < keys.rows:
                grown.append(segment)
        order = list(following.values())
        if order[: len(order) - len(grown)] != [each for each in order if each not in grown]:
            # a segment among the older ones is another now: what newer rows hide in it is not known
            self._segments = {}
            return self._count(index, snapshot)
        self._segments = following
        fresh = [(each, self._grow(each, known[_key_of(each.runs)], index.columns())) for each in grown]
        sweep(order, fresh, index.columns())
        return self._with_memory(index, snapshot, order)

    def _grow(self, segment: Segment, keys: SegmentKeys, columns: KeyColumns) -> KeyEntries:
        """Count the rows of a segment that are not counted yet."""
        if keys.is_complete and not len(segment.live):
            entries = keys.pieces[0].entries
        else:
            starts = row_starts(segment.runs)
            first = int(starts.searchsorted(len(segment.live), side="right")) - 1
            runs = [run.part(max(run.start, first), run.stop) for run in segment.runs if run.stop > first]
            rows = columns.of_runs(runs, len(segment.live))
            assert rows is not None
            entries = rows.newest(exact=columns.exact)
        segment.add(entries, keys.rows)
        return entries

    def _with_memory(self, index: KeyIndex, snapshot: PartitionSnapshot, order: list[Segment]) -> LiveRows:
        """Rows that are in memory only count for this look: they have no place of their own yet."""
        if not snapshot.tail:
            return _live_rows(snapshot, order)
        kept = [each.live for each in order]
        loose = _loose(snapshot.tail, index.columns())
        sweep([*order, loose], [(loose, loose.parts[0])], index.columns(), join=False)
        found = _live_rows(snapshot, order, loose)
        for segment, live in zip(order, kept, strict=True):
            segment.live = live
        return found


def counted_up_to(
    stored: StoredPartition, schemas: SchemaSource, wanted: Range
) -> tuple[list[Segment], KeyColumns]:
    """The rows of a range as segments that can be counted on; all of them are on disk."""
    stored.dump()
    index = index_of(stored, schemas)
    with index.lock:
        _, order, _ = _as_of(index, stored, schemas, wanted)
        columns = index.columns()
    sweep(order, [(each, part) for each in order for part in each.parts], columns)
    return order, columns


def live_as_of(stored: StoredPartition, schemas: SchemaSource, wanted: Range) -> LiveRows:
    """The rows that were live when only those in the range were there; it has an end and no beginning."""
    index = index_of(stored, schemas)
    with index.lock:
        snapshot, order, loose = _as_of(index, stored, schemas, wanted)
    everything = [*order, *([loose] if loose is not None else [])]
    sweep(everything, [(each, part) for each in everything for part in each.parts], index.columns())
    return _live_rows(snapshot, order, loose)


def _as_of(
    index: KeyIndex, stored: StoredPartition, schemas: SchemaSource, wanted: Range
) -> tuple[PartitionSnapshot, list[Segment], Segment | None]:
    """The segments with the rows of a range counted, which hide nothing of each other yet."""
    snapshot, _ = _followed(index, stored, schemas)
    known = {keys.key: keys for keys in index.segments}
    columns = index.columns()
    order: list[Segment] = []
    for runs in snapshot.by_segment():
        keys = known[_key_of(runs)]
        segment = Segment(runs=runs)
        order.append(segment)
        if keys.is_complete and _lies_in(runs[0].segment.entry, wanted):
            segment.add(keys.pieces[0].entries, keys.rows)
            continue
        rows = _rows_in(columns, runs, wanted)
        if rows is not None:
            segment.add(rows.newest(exact=columns.exact), keys.rows)
        else:
            segment.live = np.zeros(keys.rows, dtype=np.bool_)
    loose = _loose(snapshot.tail, columns, wanted) if snapshot.tail else None
    return snapshot, order, loose


def sweep(
    order: Sequence[Segment],
    fresh: Sequence[tuple[Segment, KeyEntries]],
    columns: KeyColumns,
    *,
    join: bool = True,
) -> None:
    """Let fresh parts, which are the newest ones, hide older rows of their keys; from new to old."""
    new = {id(entries) for _, entries in fresh}
    if not new:
        return
    newer = _Newer(columns)
    for segment in reversed(order):
        for entries in reversed(segment.parts):
            hidden = newer.hides(entries, segment)
            if hidden.any():
                live = segment.live.copy()
                live[entries.rows[hidden] & ROW] = False
                segment.live = live
            if id(entries) in new:
                newer.add(entries, ~hidden, segment)
        if join and len(segment.parts) > 1:
            join_parts(segment)


def join_parts(segment: Segment) -> None:
    """Few parts for each segment, of the entries that are live: others have hidden what they can hide."""
    parts = segment.parts
    while len(parts) > 1 and len(parts[-2].hashes) < _JOIN_RATIO * len(parts[-1].hashes):
        newer, older = parts.pop(), parts.pop()
        rows = np.concatenate((older.rows, newer.rows))
        kept = segment.live[rows & ROW]
        hashes = np.concatenate((older.hashes, newer.hashes))[kept]
        order = by_hash(hashes)
        parts.append(KeyEntries(hashes=hashes[order], rows=rows[kept][order]))


def _live_rows(
    snapshot: PartitionSnapshot, order: Sequence[Segment], loose: Segment | None = None
) -> LiveRows:
    return LiveRows(
        snapshot=snapshot,
        segments=[(segment.runs, segment.live) for segment in order],
        in_memory=np.zeros(0, dtype=np.bool_) if loose is None else loose.live,
    )


def _loose(blocks: Sequence[StoredBlock], columns: KeyColumns, wanted: Range | None = None) -> Segment:
    """Rows that are in memory only, as a segment of their own."""
    rows = columns.of_blocks(blocks, 0)
    assert rows is not None, "zero rows are not appended"
    count = len(rows.hashes)
    segment = Segment(runs=[], blocks=blocks)
    if wanted is not None:
        held = [unify(each.decode(), columns.schema) for each in blocks if each.header.rows]
        rows = rows.up_to(sum(wanted.cut(batch).num_rows for batch in held))
    segment.add(rows.newest(exact=columns.exact), count)
    return segment


def _rows_in(columns: KeyColumns, runs: Sequence[Run], wanted: Range) -> KeyRows | None:
    """The rows of a segment that lie in a range, which are its first ones."""
    headers = runs[0].segment.header_array(0, runs[-1].stop)
    inside = headers["base_offset"].astype(np.int64) < wanted.end
    if wanted.until_us is not None:
        inside &= headers["min_timestamp"] < wanted.until_us
    outside = np.flatnonzero(~inside & (headers["rows"] > 0))
    stop = int(outside[0]) if len(outside) else runs[-1].stop
    chosen = [run.part(run.start, min(run.stop, stop)) for run in runs if run.start < stop]
    rows = columns.of_runs(chosen, 0)
    if rows is None:
        return None
    # the last of these blocks may reach beyond
    count = sum(
        wanted.cut(batch).num_rows for run in chosen for batch in blocks_of(run, columns.schema, (0, 1))
    )
    return rows.up_to(count)


def _lies_in(entry: Entry, wanted: Range) -> bool:
    return entry.end <= wanted.end and (wanted.until_us is None or entry.max_timestamp < wanted.until_us)


def _key_of(runs: Sequence[Run]) -> SegmentKey:
    entry = runs[0].segment.entry
    return entry.base, entry.generation


def _followed(
    index: KeyIndex, stored: StoredPartition, schemas: SchemaSource
) -> tuple[PartitionSnapshot, int]:
    """A snapshot whose every row the index knows."""
    cuts = stored.mark_of_now()[2]
    snapshot = PartitionSnapshot(stored)
    schemas.follow(stored.topic_version)
    index.follow(snapshot, cuts=cuts)
    return snapshot, cuts


def live_masks(stored: StoredPartition, schemas: SchemaSource) -> LiveMasks:
    """The masks of a partition in this process."""
    found: Any = stored.shared("live", lambda: LiveMasks(stored, schemas))
    assert isinstance(found, LiveMasks)
    return found
