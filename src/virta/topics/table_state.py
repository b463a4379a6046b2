"""The table of a partition while its rows pass by: for each row, what it changes.

It begins with the rows before a place counted (`live`), then takes rows in pieces: of each
key's first row in a piece the row before is looked up in the table, of all others it is in
the piece itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import DELETED, OFFSET, TIMESTAMP, user_schema
from virta.storage.key_index import DELETES, KeyEntries
from virta.topics.key_index import KeyColumns, alike, joined_column
from virta.topics.keys import Indices, Mask, Words, form_of, hash_columns
from virta.topics.live import ROW, Segment, counted_up_to, join_parts, row_starts
from virta.topics.newest import by_hash, pairs
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import PartitionSnapshot, Range, Run, blocks_of, reading

INSERT, UPDATE, DELETE = "insert", "update", "delete"
# So many rows are looked at together: enough to look their keys up by the thousands.
_ROWS_AT_ONCE = 64 * 1024


def change_schema(user: pa.Schema) -> pa.Schema:
    row = pa.struct([pa.field(field.name, plain_type(field.type)) for field in user])
    return pa.schema(
        [
            pa.field("_change", pa.string(), nullable=False),
            pa.field("_partition", pa.int32(), nullable=False),
            pa.field(OFFSET, pa.int64(), nullable=False),
            pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("before", row),
            pa.field("after", row),
        ]
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column inside a struct: there a dictionary has no place of its own."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


class TableState:
    """The table as of the last row looked at, and where the next ones lie."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource, before: Range) -> None:
        self._stored = stored
        self._schemas = schemas
        self._segments, self._columns = counted_up_to(stored, schemas, before)
        self._since_us = before.until_us
        if before.until_us is None:
            first = max(before.end, stored.start_offset)
        else:
            first = stored.first_offset_at(before.until_us)  # rows of its block may be older
        self.offset = min(first, stored.next_offset)

    def advance(self) -> Iterator[pa.RecordBatch]:
        """The changes that the rows up to now make."""
        self._stored.dump()
        snapshot = PartitionSnapshot(self._stored)
        self._follow_schema()
        for runs in snapshot.by_segment():
            entry = runs[0].segment.entry
            if not entry.is_active and entry.end <= self.offset:
                continue
            segment = self._segment(runs)
            starts = row_starts(runs)
            headers = runs[0].segment.headers(runs[-1].stop)
            first = headers.first_ending_after(self.offset)
            with reading(snapshot, runs[0].segment):
                for piece in _pieces(runs, first, starts):
                    batch = self._read(piece)
                    if batch is None:
                        continue
                    skipped = self._skipped(batch)
                    if skipped < batch.num_rows:
                        made = self._take(
                            segment, int(starts[piece[0].start]) + skipped, batch.slice(skipped)
                        )
                        if made.num_rows:
                            yield made
                    self.offset = headers.header(piece[-1].stop - 1).end_offset
        self.offset = max(self.offset, snapshot.end)
        self._since_us = None

    def _follow_schema(self) -> None:
        self._schemas.follow(self._stored.topic_version)
        schema = self._schemas.newest()
        if self._columns.schema is not schema:
            self._columns = KeyColumns(schema, self._schemas.record.config.keys)

    def _segment(self, runs: list[Run]) -> Segment:
        entry = runs[0].segment.entry
        for known in reversed(self._segments):
            there = known.runs[0].segment.entry
            if (there.base, there.generation) == (entry.base, entry.generation):
                known.runs = runs
                return known
        self._segments.append(Segment(runs=runs))
        return self._segments[-1]

    def _read(self, runs: Sequence[Run]) -> pa.RecordBatch | None:
        schema = self._columns.schema
        batches = [batch for run in runs for batch in blocks_of(run, schema, range(len(schema)))]
        if not batches:
            return None
        plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
        columns = [joined_column([batch.column(at) for batch in batches]) for at in range(len(schema))]
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, plain, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=plain)

    def _skipped(self, batch: pa.RecordBatch) -> int:
        """So many of the first rows came before."""
        count = int(batch.column(0).to_numpy().searchsorted(self.offset))
        if self._since_us is not None:
            times = batch.column(1).view(pa.int64()).to_numpy()
            count = max(count, int(times.searchsorted(self._since_us)))
        return count

    # -- one piece ----------------------------------------------------------------------------------

    def _take(self, segment: Segment, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count the rows of a piece, whose first has this number in its segment; what they change."""
        keys = [batch.column(name) for name in self._schemas.record.config.keys]
        hashes = hash_columns(keys)
        deleted: Mask = batch.column(DELETED).to_numpy(zero_copy_only=False)
        order = by_hash(hashes)
        before = _before_in_piece(hashes, order, keys, exact=self._columns.exact)
        heads = order[before[order] < 0]  # in the order of their hashes
        pool, at = self._before_in_table(batch, heads, hashes, keys)
        in_piece = before >= 0
        has_before = at >= 0
        has_before[in_piece] = ~deleted[before[in_piece]]
        at[in_piece] = before[in_piece]
        self._count(segment, first, hashes, order, before, deleted)
        changed = np.flatnonzero(has_before | ~deleted)
        return self._made(batch, pool, changed, at, has_before, deleted)

    def _before_in_table(
        self, batch: pa.RecordBatch, heads: Indices, hashes: Words, keys: Sequence[pa.Array]
    ) -> tuple[list[pa.Array], Indices]:
        """Where the row before each stands, in a pool of the piece's rows and those found; or -1."""
        user = user_schema(self._columns.schema).names
        pool = [[batch.column(name)] for name in user]
        size = batch.num_rows
        at = np.full(size, -1, dtype=np.int64)
        wanted = hashes[heads]
        for segment in self._segments:
            for entries in segment.parts:
                ours, theirs = pairs(wanted, entries.hashes)
                rows = (entries.rows[theirs] & ROW).astype(np.int64)
                lives = segment.live[rows]
                ours, rows = heads[ours[lives]], rows[lives]
                if len(rows) and not self._columns.exact:
                    same = self._same_keys(keys, ours, segment.keys_at(rows, self._columns))
                    ours, rows = ours[same], rows[same]
                if not len(rows):
                    continue
                segment.live[rows] = False
                for parts, column in zip(pool, segment.columns_at(rows, self._user_columns), strict=True):
                    parts.append(column if column.type == parts[0].type else column.cast(parts[0].type))
                at[ours] = np.arange(size, size + len(rows))
                size += len(rows)
        return [pa.concat_arrays(parts) for parts in pool], at

    def _same_keys(self, keys: Sequence[pa.Array], ours: Indices, there: Sequence[pa.Array]) -> Mask:
        here = [column.take(pa.array(ours)) for column in keys]
        both = [pa.concat_arrays(alike(*each)) for each in zip(here, there, strict=True)]
        first = np.arange(len(ours))
        return form_of(both).same(first, first + len(ours))

    def _user_columns(self, runs: Sequence[Run]) -> list[pa.Array]:
        schema = self._columns.schema
        places = [schema.get_field_index(name) for name in user_schema(schema).names]
        batches = [batch for run in runs for batch in blocks_of(run, schema, places)]
        return [joined_column([batch.column(at) for batch in batches]) for at in range(len(places))]

    @staticmethod
    def _count(
        segment: Segment, first: int, hashes: Words, order: Indices, before: Indices, deleted: Mask
    ) -> None:
        is_last = np.ones(len(hashes), dtype=np.bool_)
        is_last[before[before >= 0]] = False
        newest = order[is_last[order]]
        rows = (first + newest).astype(np.uint32)
        rows[deleted[newest]] |= np.uint32(DELETES)
        entries = KeyEntries(hashes=hashes[newest], rows=rows)
        segment.add(entries, max(len(segment.live), first + len(hashes)))
        join_parts(segment)

    def _made(
        self,
        batch: pa.RecordBatch,
        pool: Sequence[pa.Array],
        changed: Indices,
        at: Indices,
        has_before: Mask,
        deleted: Mask,
    ) -> pa.RecordBatch:
        user = user_schema(self._columns.schema)
        schema = change_schema(user)
        places = at[changed]
        there, gone = has_before[changed], deleted[changed]
        old = [column.take(pa.array(places, mask=~there)) for column in pool]
        new = [batch.column(name).take(pa.array(changed, mask=gone)) for name in user.names]
        fields = list(schema.field("before").type)
        kinds = np.where(gone, DELETE, np.where(there, UPDATE, INSERT)).astype(object)
        number = pa.scalar(self._stored.identity.number, pa.int32())
        rows = pa.array(changed)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(kinds, pa.string()),
                pa.repeat(number, len(changed)),
                batch.column(OFFSET).take(rows),
                batch.column(TIMESTAMP).take(rows),
                pa.StructArray.from_arrays(old, fields=fields, mask=pa.array(~there)),
                pa.StructArray.from_arrays(new, fields=fields, mask=pa.array(gone)),
            ],
            schema=schema,
        )


def _pieces(runs: Sequence[Run], first: int, starts: Indices) -> Iterator[list[Run]]:
    """The blocks from the first on, so many together that they have some rows."""
    for run in runs:
        at = max(run.start, first)
        while at < run.stop:
            stop = int(starts[: run.stop].searchsorted(starts[at] + _ROWS_AT_ONCE, side="right"))
            stop = min(max(stop - 1, at + 1), run.stop)
            if run.stop - stop == 1:
                stop = run.stop
            yield [run.part(at, stop)]
            at = stop


def _before_in_piece(hashes: Words, order: Indices, keys: Sequence[pa.Array], *, exact: bool) -> Indices:
    """For each row the one before it with the same key, or -1."""
    before = np.full(len(hashes), -1, dtype=np.int64)
    ordered = hashes[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    if not exact and len(again):
        form = form_of(keys)
        same = form.same(order[again - 1], order[again])
        if not same.all():
            encoded = form.joined()
            newest: dict[bytes, int] = {}
            for row, key in enumerate(encoded):
                before[row] = newest.get(key, -1)
                newest[key] = row
            return before
    before[order[again]] = order[again - 1]
    return before
