"""Reading a slice: what an executor does, from segment files or through a broker.

With verification every block is held against its digest and its header against the hash
before it, as everywhere in Virta; without it only the columns that are asked for are
touched. Either way the history must be the one that was planned: the slice's token says so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.clock import SystemClock
from virta.errors import UsageError
from virta.metadata.schemas import OFFSET, stored_schema, unify
from virta.spark import headers
from virta.spark.logs import files_of
from virta.spark.plan import Slice, Span
from virta.spark.schemas import exact
from virta.spark.telling import plainly
from virta.storage.view import Stretch
from virta.topics.filters import Filter, parse_filter
from virta.topics.snapshot import PartitionSnapshot, Range
from virta.topics.table import Table
from virta.types import Kind

PARTITION = "_partition"
# What Spark takes in one step: fewer rows cost it more per row, more rows only memory.
_BATCH_ROWS = 64 * 1024
_MOST_ROWS = 128 * 1024
# What is read and hashed at once.
_READ_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of each row, and which rows, besides the range."""

    columns: tuple[str, ...]
    where: str | None = None  # rows that do not match are left out
    pushed: str | None = None  # as `where`; Spark looks again
    verify: bool = True
    is_table: bool = False  # the newest row of each key, instead of all rows
    is_blocks: bool = False  # what chain files say of blocks, instead of rows

    def filter(self) -> Filter | None:
        found: Filter | None = None
        for text in (self.where, self.pushed):
            if text is not None:
                parsed = parse_filter(text)
                found = parsed if found is None else found & parsed
        return found


@plainly
def batches(topic: Any, part: Slice, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The slice's rows, in exactly the form of `schema`."""
    partition = topic.partition(part.span.partition)
    stored = files_of(partition)
    chosen = wanted.filter()
    if wanted.verify:
        partition.stored.check_token(part.token)  # raises when history is another
    if not wanted.columns and not wanted.is_table and chosen is None and stored is not None:
        counts = headers.counted(stored, part.span, verify=wanted.verify)
        if counts is not None:
            yield from counts
            return
    if wanted.is_blocks:
        found = headers.blocks(partition, part.span, verify=wanted.verify)
    elif wanted.is_table:
        found = _table(topic, stored, part.span, wanted, chosen)
    elif stored is None:
        found = _through_broker(partition, part, wanted, chosen)
    elif wanted.verify or chosen is not None:
        found = _checked(topic, stored, part.span, wanted, chosen)
    else:
        found = _unchecked(topic, stored, part.span, wanted)
    number = part.span.partition
    for batch in sized(found):
        yield _formed(batch, wanted.columns, number, schema)


def _formed(batch: pa.RecordBatch, columns: Sequence[str], number: int, schema: pa.Schema) -> pa.RecordBatch:
    if not columns:
        return batch.select([])  # a batch made of no arrays has no rows
    arrays = []
    for name, field in zip(columns, schema, strict=True):
        if name == PARTITION:
            array = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
        else:
            array = batch.column(batch.schema.get_field_index(name))
        arrays.append(exact(array, field.type, name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_schema(topic: Any) -> pa.Schema:
    """The columns that rows of a topic have: those of its own behind offset and time."""
    return stored_schema(topic.schema, tombstones=topic.kind is Kind.UPDATE)


# -- where the rows come from -------------------------------------------------------------------


def _checked(
    topic: Any, stored: Any, span: Span, wanted: Wanted, chosen: Filter | None
) -> Iterator[pa.RecordBatch]:
    """Rows of blocks that verify; blocks whose statistics exclude a match are left out."""
    newest = rows_schema(topic)
    narrow = None if chosen is None else functools.partial(_narrowed, stored, newest, chosen)
    for blocks in stored.scan(
        span.start, span.end, max_bytes=_READ_BYTES, verify=wanted.verify, narrow=narrow
    ):
        for block in blocks:
            if block.header.base_offset >= span.end:
                return
            if block.header.span:
                batch = _cut(unify(block.decode(), newest), block.header, span)
                batch = batch if chosen is None else chosen.apply(batch)
                if batch.num_rows:
                    yield _selected(batch, wanted.columns)


def _narrowed(stored: Any, newest: pa.Schema, chosen: Filter, stretch: Stretch) -> list[Stretch]:
    """The stretch without blocks that cannot match, where statistics are there; a task makes none."""
    segment = stretch.segment
    entry = segment.entry
    if entry.is_active or not segment.schema.equals(newest):
        return [stretch]  # columns of older schemas may be others
    if stored.files.identity(stored.paths.stats(entry.base, entry.generation)) is None:
        return [stretch]
    found: list[Stretch] = stored.narrowed(stretch, chosen.columns, chosen.may_match)
    return found


def _unchecked(topic: Any, stored: Any, span: Span, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    newest = rows_schema(topic)
    names = [name for name in wanted.columns if name != PARTITION] or [OFFSET]
    places = [newest.get_field_index(name) for name in names]
    return PartitionSnapshot(stored).batches(newest, places, Range(start=span.start, end=span.end))


def _table(
    topic: Any, stored: Any, span: Span, wanted: Wanted, chosen: Filter | None
) -> Iterator[pa.RecordBatch]:
    """The newest row of each key, of the rows before the span's end."""
    if stored is None:
        raise UsageError(
            "the table of an update topic is made from its files, and this log is behind an address",
            hint="read its changes: .option('kind', 'changes')",
        )
    if wanted.verify:
        for _ in stored.scan(span.start, span.end, max_bytes=_READ_BYTES):
            pass  # each block is checked when it is read
    table = Table(topic.name, [stored], topic._schemas, SystemClock().now_us)
    for batch in table.as_of({span.partition: span.end}).batches():
        batch = batch if chosen is None else chosen.apply(batch)
        if batch.num_rows:
            yield _selected(batch, wanted.columns)


def _through_broker(
    partition: Any, part: Slice, wanted: Wanted, chosen: Filter | None
) -> Iterator[pa.RecordBatch]:
    token, span = part.token, part.span
    while token.offset < span.end:
        blocks, following = partition.poll(token, max_bytes=_READ_BYTES)
        if following == token:
            return
        for block in blocks:
            if block.base_offset >= span.end:
                return
            if wanted.verify:
                block.verify()
            batch = _cut(block.to_arrow(), block.header, span)
            batch = batch if chosen is None else chosen.apply(batch)
            if batch.num_rows:
                yield _selected(batch, wanted.columns)
        token = following


def _selected(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    names = [name for name in columns if name != PARTITION] or [OFFSET]
    return batch.select(list(dict.fromkeys(names)))


def _cut(batch: pa.RecordBatch, header: Any, span: Span) -> pa.RecordBatch:
    """The rows of a block that lie in the span."""
    if header.base_offset >= span.start and header.end_offset <= span.end:
        return batch
    offsets = batch.column(0)
    return batch.filter(pc.and_(pc.greater_equal(offsets, span.start), pc.less(offsets, span.end)))


# -- sizes Spark likes --------------------------------------------------------------------------


def sized(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches joined, very large ones cut."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in found:
        if rows and rows + batch.num_rows > _BATCH_ROWS:
            yield _joined(held)
            held, rows = [], 0
        if batch.num_rows > _MOST_ROWS:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)
            continue
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield _joined(held)


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else pa.concat_batches(held)
