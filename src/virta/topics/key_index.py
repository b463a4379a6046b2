"""Where the newest row of each key stands in a partition: what `get` looks into.

For a sealed segment it is a derived file (`storage.key_index`), mapped. What was appended
since the last look is a dict of the newest rows, and from a number of rows on a sorted
piece; pieces are joined so that there are few of them. All of it can be thrown away: it is
filled again from the key columns.

A hash leads to rows, the newest first, and no further: whoever asks holds the row's key
against the one that was looked for. One index serves all handles of a partition in a
process; `lock` guards it.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import DELETED, unify
from virta.storage import key_index
from virta.storage.key_index import DELETES, KeyEntries
from virta.storage.manifest import Entry
from virta.storage.segment import StoredBlock
from virta.topics.keys import Mask, Words, always_exact, form_of, hash_columns
from virta.topics.newest import by_hash, newest_rows
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import PartitionSnapshot, Run, blocks_of

# So many rows are kept in a dict before they become a sorted piece: a dict takes some 100 bytes a row.
_RECENT_ROWS = 32_768
# A piece is joined with the one before it while that one is not so many times as large.
_JOIN_RATIO = 4
# From so many entries on, a piece is entered by the first 16 bits of the hash.
_LARGE = 16_384
# Bytes of a segment whose keys are read at once.
_PIECE_BYTES = 32 * 1024 * 1024
# Text of more bytes than this is put together with offsets of 64 bits.
_WIDE_BYTES = 1 << 30

SegmentKey = tuple[int, int]  # base and generation
Marked = npt.NDArray[np.uint32]  # rows of a segment; bit 31: it deletes its key


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows:
    """The keys of rows that follow each other in a segment."""

    first: int
    hashes: Words
    deleted: Mask
    columns: list[pa.Array]

    def up_to(self, count: int) -> KeyRows:
        """The first of them."""
        return KeyRows(
            first=self.first,
            hashes=self.hashes[:count],
            deleted=self.deleted[:count],
            columns=[column.slice(0, count) for column in self.columns],
        )

    def marked(self) -> Marked:
        rows = np.arange(self.first, self.first + len(self.hashes), dtype=np.uint32)
        rows[self.deleted] |= np.uint32(DELETES)
        return rows

    def newest(self, *, exact: bool) -> KeyEntries:
        """One entry for each key."""
        rows = newest_rows(self.hashes, None if exact else form_of(self.columns))
        return KeyEntries(hashes=self.hashes[rows], rows=self.marked()[rows])


class KeyColumns:
    """Reads the key columns of blocks, in the form of one schema."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.schema = schema
        self._places = [schema.get_field_index(name) for name in keys]
        self._columns = [schema.get_field_index(DELETED), *self._places]
        fields = [schema.field(name) for name in keys]
        self.exact = always_exact([(each.type, each.nullable) for each in fields])

    def of_runs(self, runs: Sequence[Run], first: int) -> KeyRows | None:
        """The keys of all rows of some runs, which are one behind the other."""
        parts: list[KeyRows] = []
        for piece in (piece for run in runs for piece in _pieces(run)):
            rows = self._rows(list(blocks_of(piece, self.schema, self._columns)), first)
            if rows is not None:
                parts.append(rows)
                first += len(rows.hashes)
            piece.let_go_of_pages()
        return _together(parts) if parts else None

    def read(self, runs: Sequence[Run]) -> list[pa.Array]:
        """The key columns of all rows of some runs, and nothing else."""
        batches = [batch for run in runs for batch in blocks_of(run, self.schema, self._places)]
        return [joined_column([batch.column(at) for batch in batches]) for at in range(len(self._places))]

    def of_blocks(self, blocks: Sequence[StoredBlock], first: int) -> KeyRows | None:
        """The keys of blocks that are in memory."""
        whole = [unify(each.decode(), self.schema) for each in blocks if each.header.rows]
        return self._rows([batch.select(self._columns) for batch in whole], first)

    def _rows(self, batches: Sequence[pa.RecordBatch], first: int) -> KeyRows | None:
        if not batches:
            return None
        deleted, *columns = (
            joined_column([batch.column(at) for batch in batches]) for at in range(len(self._columns))
        )
        mask = deleted.to_numpy(zero_copy_only=False)
        return KeyRows(first=first, hashes=hash_columns(columns), deleted=mask, columns=columns)


def _pieces(run: Run) -> Iterator[Run]:
    """Stretches of a run of some dozens of mebibytes: so much is in this process's memory at a time."""
    if run.start >= run.stop:
        return
    lengths = np.cumsum(run.segment.header_array(run.start, run.stop)["length"].astype(np.int64))
    at = 0
    while at < len(lengths):
        before = int(lengths[at - 1]) if at else 0
        stop = max(at + 1, int(lengths.searchsorted(before + _PIECE_BYTES, side="right")))
        yield run.part(run.start + at, run.start + stop)
        at = stop


def alike(first: pa.Array, second: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two pieces of a column in one type: one of them may have become wide."""
    if first.type == second.type:
        return first, second
    return (first, second.cast(first.type)) if _is_wide(first) else (first.cast(second.type), second)


def _is_wide(column: pa.Array) -> bool:
    return bool(pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type))


def joined_column(parts: Sequence[pa.Array]) -> pa.Array:
    """Pieces of a column as one; of a dictionary, which each block has for itself, its values."""
    if pa.types.is_dictionary(parts[0].type):
        parts = [part.dictionary_decode() for part in parts]
    if len(parts) == 1:
        return parts[0]
    kind = parts[0].type
    if kind in (pa.string(), pa.binary()) and sum(part.nbytes for part in parts) > _WIDE_BYTES:
        wide = pa.large_string() if kind == pa.string() else pa.large_binary()
        parts = [part.cast(wide) for part in parts]
    return pa.concat_arrays(parts)


class _Piece:
    """Sorted entries of some rows of one segment."""

    __slots__ = ("_bounds", "_hashes", "_rows", "entries")

    def __init__(self, entries: KeyEntries) -> None:
        self.entries = entries
        self._hashes = entries.hashes.data
        self._rows = entries.rows.data
        self._bounds: list[int] | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, hash_: int) -> Sequence[int]:
        """The marked rows that have this hash, the newest first."""
        low, high = 0, len(self._hashes)
        if high >= _LARGE:
            bounds = self._bounds or self._bound()
            low, high = bounds[hash_ >> 48], bounds[(hash_ >> 48) + 1]
        hashes = self._hashes
        at = bisect.bisect_left(hashes, hash_, low, high)
        if at == high or hashes[at] != hash_:
            return ()
        stop = at + 1
        while stop < high and hashes[stop] == hash_:
            stop += 1
        return sorted(self._rows[at:stop].tolist(), key=_row_of, reverse=True)

    def _bound(self) -> list[int]:
        edges = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        self._bounds = [*self.entries.hashes.searchsorted(edges).tolist(), len(self)]
        return self._bounds


def _row_of(marked: int) -> int:
    return marked & (DELETES - 1)


@dataclass(slots=True, kw_only=True)
class SegmentKeys:
    """What is known of the keys of one segment, up to `rows`. Without an entry: of rows only in memory."""

    entry: Entry | None
    starts: list[int] = field(default_factory=list)  # the number of each block's first row
    rows: int = 0
    pieces: list[_Piece] = field(default_factory=list)
    # the newest rows: by hash, and as they came
    recent: dict[int, int] = field(default_factory=dict)
    waiting: list[KeyRows] = field(default_factory=list)
    blocks: list[StoredBlock] = field(default_factory=list)  # of rows only in memory

    @property
    def key(self) -> SegmentKey:
        return (-1, 0) if self.entry is None else (self.entry.base, self.entry.generation)

    @property
    def is_complete(self) -> bool:
        return self.entry is not None and not self.entry.is_active

    def find(self, hash_: int) -> Iterator[int]:
        """The marked rows that may have a key with this hash, the newest first."""
        found = self.recent.get(hash_)
        if found is not None:
            yield found
            yield from self._older_waiting(hash_, found)
        for piece in reversed(self.pieces):
            yield from piece.find(hash_)

    def _older_waiting(self, hash_: int, but: int) -> Iterator[int]:
        """Of another key with this hash, or older rows of the same."""
        for part in reversed(self.waiting):
            for at in np.flatnonzero(part.hashes == np.uint64(hash_))[::-1].tolist():
                row = int(part.marked()[at])
                if row != but:
                    yield row

    def take(self, rows: KeyRows, *, exact: bool) -> None:
        """Rows that follow those that are known."""
        self.rows = rows.first + len(rows.hashes)
        if len(rows.hashes) < _RECENT_ROWS:
            self.waiting.append(rows)
            self.recent.update(zip(rows.hashes.tolist(), rows.marked().tolist(), strict=True))
            if sum(len(part.hashes) for part in self.waiting) < _RECENT_ROWS:
                return
            rows = _together(self.waiting)
        elif self.waiting:
            rows = _together([*self.waiting, rows])
        self.waiting, self.recent = [], {}
        self.pieces.append(_Piece(rows.newest(exact=exact)))
        self._join_pieces(exact=exact)

    def _join_pieces(self, *, exact: bool) -> None:
        pieces = self.pieces
        while len(pieces) > 1 and len(pieces[-2]) < _JOIN_RATIO * len(pieces[-1]):
            newer, older = pieces.pop().entries, pieces.pop().entries
            hashes = np.concatenate((older.hashes, newer.hashes))
            order = by_hash(hashes)
            hashes = hashes[order]
            rows = np.concatenate((older.rows, newer.rows))[order]
            if exact:
                last = np.append(hashes[1:] != hashes[:-1], True)
                hashes, rows = hashes[last], rows[last]
            pieces.append(_Piece(KeyEntries(hashes=hashes, rows=rows)))

    def place(self, marked: int) -> tuple[int, int]:
        """Block and row in the block."""
        row = marked & (DELETES - 1)
        block = bisect.bisect_right(self.starts, row) - 1
        return block, row - self.starts[block]


def _together(parts: Sequence[KeyRows]) -> KeyRows:
    if len(parts) == 1:
        return parts[0]
    return KeyRows(
        first=parts[0].first,
        hashes=np.concatenate([part.hashes for part in parts]),
        deleted=np.concatenate([part.deleted for part in parts]),
        columns=[joined_column(columns) for columns in zip(*(part.columns for part in parts), strict=True)],
    )


class KeyIndex:
    """The keys of one partition."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource) -> None:
        self.lock = threading.RLock()
        self._stored = stored
        self._schemas = schemas
        self.segments: list[SegmentKeys] = []  # oldest first; rows only in memory last
        self.next_offset = 0
        self._mark: object = None
        self._cuts = -1
        self._columns: KeyColumns | None = None

    def columns(self) -> KeyColumns:
        """How keys are read under the newest version of the topic."""
        schema = self._schemas.newest()
        if self._columns is None or self._columns.schema is not schema:
            self._columns = KeyColumns(schema, self._schemas.record.config.keys)
        return self._columns

    # -- keeping up ---------------------------------------------------------------------------------

    def catch_up(self) -> bool:
        """Take in what was appended, rolled, rewritten or cut since the last look; whether anything was."""
        mark = self._stored.mark_of_now()
        if mark == self._mark:
            return False
        snapshot = PartitionSnapshot(self._stored)
        # asked for last, so that no row is of a newer version
        self._schemas.follow(self._stored.topic_version)
        self.follow(snapshot, cuts=mark[2])
        self._mark = mark
        return True

    def follow(self, snapshot: PartitionSnapshot, *, cuts: int) -> None:
        """Know every row of the snapshot, and none besides."""
        if cuts != self._cuts:  # rows were cut: what is known of sealed segments is still so
            self.segments = [keys for keys in self.segments if keys.is_complete]
            self._cuts = cuts
        known = {keys.key: keys for keys in self.segments}
        followed = [self._segment(runs, known) for runs in snapshot.by_segment()]
        if snapshot.tail:
            followed.append(self._in_memory(snapshot.tail))
        self.segments = followed
        self.next_offset = snapshot.end

    def _segment(self, runs: list[Run], known: dict[SegmentKey, SegmentKeys]) -> SegmentKeys:
        segment, stop = runs[0].segment, runs[-1].stop
        entry = segment.entry
        keys = known.get((entry.base, entry.generation))
        if not entry.is_active:
            return keys if keys is not None and keys.entry == entry else self._sealed(runs)
        if keys is not None and len(keys.starts) >= stop:
            return keys
        if keys is None:
            keys = SegmentKeys(entry=entry)
        done = len(keys.starts)
        if stop > done:
            headers = segment.header_array(done, stop)
            counts = headers["rows"].astype(np.int64)
            fresh = [run.part(max(run.start, done), run.stop) for run in runs if run.stop > done]
            rows = self.columns().of_runs(fresh, keys.rows)
            keys.starts += (keys.rows + np.cumsum(counts) - counts).tolist()
            if rows is not None:
                keys.take(rows, exact=self.columns().exact)
        return keys

    def _sealed(self, runs: list[Run]) -> SegmentKeys:
        """A sealed segment: its file of keys, which is made where there is none."""
        segment = runs[0].segment
        entry, columns = segment.entry, self.columns()
        path = self._stored.paths.keys(entry.base, entry.generation)
        entries = key_index.load(self._stored.files, path, entry)
        if entries is None:
            segment.check_blocks()  # what is kept is believed later
            rows = columns.of_runs(runs, 0)
            if rows is None:
                entries = KeyEntries(hashes=np.zeros(0, np.uint64), rows=np.zeros(0, np.uint32))
            else:
                entries = rows.newest(exact=columns.exact)
            key_index.save(self._stored.files, path, entries, entry)
            # mapped from now on, so that it need not stay in this process's own memory
            entries = key_index.load(self._stored.files, path, entry) or entries
        counts = segment.header_array(0, entry.blocks)["rows"].astype(np.int64)
        starts = (np.cumsum(counts) - counts).tolist()
        return SegmentKeys(entry=entry, starts=starts, rows=int(counts.sum()), pieces=[_Piece(entries)])

    def _in_memory(self, blocks: list[StoredBlock]) -> SegmentKeys:
        held = [each for each in blocks if each.header.rows]
        counts = np.array([each.header.rows for each in held], dtype=np.int64)
        keys = SegmentKeys(entry=None, starts=(np.cumsum(counts) - counts).tolist(), blocks=held)
        rows = self.columns().of_blocks(held, 0)
        if rows is not None:
            keys.take(rows, exact=self.columns().exact)
        return keys

    # -- looking up -----------------------------------------------------------------------------------

    def find(self, hash_: int) -> Iterator[tuple[SegmentKeys, int]]:
        """The marked rows that may have a key with this hash, the newest first."""
        for keys in reversed(self.segments):
            for marked in keys.find(hash_):
                yield keys, marked


def index_of(stored: StoredPartition, schemas: SchemaSource) -> KeyIndex:
    """The index of a partition in this process."""
    found: Any = stored.shared("keys", lambda: KeyIndex(stored, schemas))
    assert isinstance(found, KeyIndex)
    return found
