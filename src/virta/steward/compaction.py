"""Compaction of an update topic: the newest row of each key stays, older ones go.

One pass looks at the keys of all rows, newest first, and notes for each sealed segment which
of its rows are the newest of their key. Memory holds the keys seen (see `seen`) and one bit
per row, whatever the rows hold. Then the segments with enough rows to lose are rewritten,
oldest first, each group in force before the next is begun.

A deletion is a row like any other until it is older than its configured age. Then it goes too,
if no older row of its key is left where this run does not reach.

Rows that come meanwhile only make more rows old. What makes a row old is on the disk before
the row goes: the active segment is synced with each receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten, rewrite
from virta.steward.seen import Marks, SeenKeys, newest_first
from virta.storage import manifest
from virta.storage.manifest import Entry
from virta.storage.rewrite import are_neighbours, rewritable
from virta.storage.segment import Segment, StoredBlock
from virta.topics.keys import always_exact, hash_columns
from virta.types import TopicConfig

DELETED = "_deleted"
# Segments that would lose less than this part of their rows are left as they are.
_LEAST_PART = 0.15
# Less than this that is new is not worth a look at all keys.
_LEAST_BYTES = 1024 * 1024
# The active segment is sealed for a compaction when it is at least this part of the topic.
_ACTIVE_PART = 0.1
# Rows whose keys are looked at together: some hundred bytes each while they are.
_ROWS_AT_ONCE = 1 << 18
_READ_BYTES = 8 * 1024 * 1024

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of a topic is new since its last compaction."""

    compacted: int
    new: int
    active: int

    @classmethod
    def of(cls, segments: Sequence[Entry], active_bytes: int) -> Sizes:
        sealed = segments[:-1]
        compacted = sum(entry.data_length for entry in sealed if entry.flags & manifest.COMPACTED)
        total = sum(entry.data_length for entry in sealed)
        return cls(compacted=compacted, new=total - compacted + active_bytes, active=active_bytes)

    @property
    def total(self) -> int:
        return self.compacted + self.new

    def is_due(self, ratio: float) -> bool:
        return self.new >= _LEAST_BYTES and self.new >= ratio * self.total

    @property
    def seals_active(self) -> bool:
        return self.active >= max(_LEAST_BYTES, _ACTIVE_PART * self.total)


# -- looking at the keys ------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class Found:
    """What was found of one sealed segment."""

    segment: Segment
    live: npt.NDArray[np.uint8]  # a bit for each row
    starts: Indices  # the first row of each block, and how many there are
    dead: int = 0
    deletions: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # rows that may go as well
    deletion_hashes: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    covered: list[Words] = field(default_factory=list)  # deletions with an older row of their key here

    @property
    def entry(self) -> Entry:
        return self.segment.entry

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @property
    def live_bytes(self) -> int:
        return int(self.entry.data_length * (1 - self.dead / max(1, self.rows)))

    def mask(self, index: int) -> npt.NDArray[np.bool_]:
        return live_rows(self.live, self.starts, index)

    def drop(self, rows: Indices) -> None:
        bits = np.unpackbits(self.live)
        bits[rows] = 0
        self.live = np.packbits(bits)
        self.dead += len(rows)


def live_rows(live: npt.NDArray[np.uint8], starts: Indices, index: int) -> npt.NDArray[np.bool_]:
    """Which rows of a block live, of a bit for each row of its segment."""
    start, stop = int(starts[index]), int(starts[index + 1])
    first = start // 8
    bits = np.unpackbits(live[first : (stop + 7) // 8])
    found: npt.NDArray[np.bool_] = bits[start - 8 * first : stop - 8 * first].astype(np.bool_)
    return found


class KeyScan:
    """Looks at all keys of a partition, newest first."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema, *, deletions_before_us: int) -> None:
        kinds = [(schema.field(key).type, schema.field(key).nullable) for key in keys]
        self._keys = list(keys)
        self._exact = always_exact(kinds)
        self._marks = Marks()
        self._seen = SeenKeys(is_exact=self._exact)
        self._deleted = SeenKeys(is_exact=self._exact)
        self._before_us = deletions_before_us
        self.keys = 0

    def pass_over(self, segment: Segment, count: int) -> None:
        """Take in the keys of the segment that is appended to; none of its rows go."""
        for start, stop in portions(row_starts(segment, count)):
            self._look(segment, start, stop, None)
            segment.let_go_of_pages()

    def look(self, segment: Segment) -> Found:
        starts = row_starts(segment, segment.entry.blocks)
        live = np.ones(int(starts[-1]), dtype=np.bool_)
        found = Found(segment=segment, live=np.zeros(0, np.uint8), starts=starts)
        for start, stop in portions(starts):
            self._look(segment, start, stop, (found, live))
            segment.let_go_of_pages()
        found.live = np.packbits(live)
        found.dead = int(len(live) - np.count_nonzero(live))
        return found

    def _look(
        self, segment: Segment, start: int, stop: int, into: tuple[Found, npt.NDArray[np.bool_]] | None
    ) -> None:
        columns, deleted, times = read_keys(segment, start, stop, self._keys)
        if not len(times):
            return
        hashes = hash_columns(columns)
        marks = None if self._exact else self._marks.of(columns)
        newest, older, shared = newest_first(hashes, marks)
        newest_marks = None if marks is None else marks[newest]
        if into is not None and len(self._deleted):
            covered, _ = self._deleted.meet(hashes[newest], newest_marks, add=False)
            into[0].covered += [hashes[newest][covered], shared]
        seen, remembered = self._seen.meet(hashes[newest], newest_marks)
        self.keys = len(self._seen)
        if into is None:
            return
        found, live = into
        dead = older
        dead[newest[seen]] = True
        first = int(found.starts[start])
        live[first : first + len(dead)] = ~dead
        if deleted is None:
            return
        going = newest[~seen & remembered]
        going = going[deleted[going] & (times[going] < self._before_us)]
        if len(going):
            self._note_deletions(found, first, going, hashes, marks)

    def _note_deletions(self, found: Found, first: int, rows: Indices, hashes: Any, marks: Any) -> None:
        """Deletions that are old enough: they go if no older row of their key stays."""
        rows = rows[np.argsort(hashes[rows])]
        _, remembered = self._deleted.meet(hashes[rows], None if marks is None else marks[rows])
        rows = rows[remembered]
        found.deletions = np.concatenate([found.deletions, rows + first])
        found.deletion_hashes = np.concatenate([found.deletion_hashes, hashes[rows]])


def read_keys(
    segment: Segment, start: int, stop: int, keys: Sequence[str]
) -> tuple[list[pa.Array], Any, npt.NDArray[np.int64]]:
    """Of some blocks: key columns, whether each row is a deletion (None: there are none), and times."""
    has_deleted = segment.schema.get_field_index(DELETED) >= 0
    wanted = [*keys, *([DELETED] if has_deleted else []), "_timestamp"]
    batches = [
        stored.decode().select(wanted) for stored in _blocks(segment, start, stop) if stored.header.rows
    ]
    if not batches:
        return [], None, np.zeros(0, np.int64)
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = [_one_array(table.column(key)) for key in keys]
    deleted = None
    if has_deleted:
        deleted = _one_array(table.column(DELETED)).to_numpy(zero_copy_only=False)
        deleted = deleted if deleted.any() else None
    times = _one_array(table.column("_timestamp")).view(pa.int64()).to_numpy()
    return columns, deleted, times


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def row_starts(segment: Segment, count: int) -> Indices:
    """The first row of each block, and how many there are."""
    headers = segment.header_array(0, count)
    return np.concatenate([[0], np.cumsum(headers["rows"].astype(np.int64))])


def portions(starts: Indices) -> list[tuple[int, int]]:
    """Runs of blocks of a bounded number of rows, newest first."""
    found = []
    stop = len(starts) - 1
    while stop > 0:
        start = int(np.searchsorted(starts, starts[stop] - _ROWS_AT_ONCE, side="left"))
        start = min(start, stop - 1)
        found.append((start, stop))
        stop = start
    return found


def _blocks(segment: Segment, start: int, stop: int) -> Iterator[StoredBlock]:
    """Hashed, where a segment stays too: a key that is not what was written takes rows elsewhere with it."""
    while start < stop:
        blocks = segment.read_blocks(start, stop, max_bytes=_READ_BYTES)
        yield from blocks
        start += len(blocks)


# -- deciding -------------------------------------------------------------------------------------


def choose(found: Sequence[Found], *, force: bool = False) -> list[Found]:
    """The segments, oldest first, that lose enough; deletions that may go are counted in.

    Given oldest first. A deletion goes if every segment that has older rows of its key is
    rewritten as well; which those are decides which deletions go, so the choice is made first.
    """
    least = 0.0 if force else _LEAST_PART
    chosen = [each for each in found if each.dead + len(each.deletions) > least * each.rows and each.rows]
    stays = {id(each) for each in found} - {id(each) for each in chosen}
    covered = [hashes for each in found if id(each) in stays for hashes in each.covered]
    stuck = np.unique(np.concatenate(covered)) if covered else np.zeros(0, np.uint64)
    for each in chosen:
        each.drop(each.deletions[~np.isin(each.deletion_hashes, stuck)])
    return [each for each in chosen if each.dead]


def grouped(chosen: Sequence[Found], *, segment_bytes: int) -> list[list[Found]]:
    """Neighbours that fit one segment once they are compacted."""
    groups: list[list[Found]] = []
    size = 0
    for each in chosen:
        fits = groups and size + each.live_bytes <= segment_bytes
        if fits and are_neighbours(groups[-1][-1].entry, each.entry):
            groups[-1].append(each)
            size += each.live_bytes
        else:
            groups.append([each])
            size = each.live_bytes
    return groups


# -- doing it -------------------------------------------------------------------------------------


def scan(partition: Partition, config: TopicConfig, now_us: int) -> list[Found]:
    """What each sealed segment holds that is out of date; oldest first."""
    partition.dump()
    with partition.view() as view:
        entries = rewritable(view.manifest.segments)
        segments = view.settled(lambda: [view.segment(index) for index in range(len(entries))])
        active, count = view.active, view.blocks
    keys = KeyScan(
        config.keys,
        active.schema,
        deletions_before_us=now_us - int(config.tombstone_age_seconds * 1_000_000),
    )
    keys.pass_over(active, count)
    return [keys.look(segment) for segment in reversed(segments)][::-1]


def compact(
    partition: Partition,
    config: TopicConfig,
    found: Sequence[Found],
    *,
    force: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Rewritten]:
    """Rewrite what loses enough, oldest first; each group is in force when it is told."""
    for group in grouped(choose(found, force=force), segment_bytes=config.segment_bytes):

        def keep(source: int, index: int, _: StoredBlock, group: list[Found] = group) -> Any:
            return group[source].mask(index)

        yield rewrite(
            partition,
            [each.segment for each in group],
            keep,
            "compacted",
            compression=config.compression,
            flags=manifest.COMPACTED | manifest.JOINED,
            advance=advance,
        )
