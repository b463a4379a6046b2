"""Reading a topic: one lazy value that is narrowed, then iterated or given to any Arrow reader.

`topic[10:20]`, `.since()`, `.until()`, `.where()` and `.columns()` each give a new
selection; nothing is read before rows, Arrow or a count are asked for. Then the range
is fixed to offsets, blocks outside it are never read, and the rest streams through in
pieces of bounded size.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import NotFound, SchemaMismatch, UsageError
from virta.memory.partition import Partition as StoredPartition
from virta.memory.waiting import wait_for_any
from virta.metadata.schemas import DELETED, suggest, unify
from virta.requests import End, parse_moment
from virta.storage.chain import Header
from virta.storage.segment import StoredBlock
from virta.storage.view import Stretch
from virta.topics.filters import Filter, parse_filter
from virta.topics.idle import Idle
from virta.topics.schema import SchemaSource
from virta.types import Token

Moment = str | int | float | datetime | date | timedelta
Place = int | Token | datetime | str | End | None

# Small blocks are handed out joined, so that a reader of many one-row blocks gets whole batches.
_JOIN_ROWS = 8192


class Row(Mapping[str, Any]):
    """One row: partition, offset there, timestamp and columns by name; `deleted` if it deletes its key."""

    __slots__ = ("_values", "deleted", "offset", "partition", "timestamp")

    def __init__(
        self,
        offset: int,
        timestamp: datetime,
        values: dict[str, Any],
        deleted: bool = False,
        partition: int = 0,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.deleted = deleted
        self._values = values

    def __getitem__(self, column: str) -> Any:
        try:
            return self._values[column]
        except KeyError:
            near = suggest(column, self._values)
            raise KeyError(f"the row has no column {column!r}" + (f" ({near})" if near else "")) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def __repr__(self) -> str:
        place = f"partition={self.partition}, " if self.partition else ""
        deleted = ", deleted" if self.deleted else ""
        stamp = self.timestamp.isoformat()
        return f"Row({place}offset={self.offset}, timestamp={stamp!r}, {self._values!r}{deleted})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What a selection keeps, before it is fixed to offsets."""

    start: Place = None
    end: Place = None
    since: Moment | None = None
    until: Moment | None = None
    filter: Filter | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    schema_version: int | None = None  # an older one than the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """A selection fixed to offsets and microseconds of one partition at one moment."""

    stored: StoredPartition
    start: int
    end: int
    since_us: int | None
    until_us: int | None
    schema: pa.Schema


class Selection:
    """Some rows of one partition or of several, not read yet: partition after partition."""

    def __init__(
        self,
        parts: Sequence[StoredPartition],
        schemas: SchemaSource,
        now_us: Any,
        limits: _Limits | None = None,
    ) -> None:
        self._parts = tuple(parts)
        self._schemas = schemas
        self._now_us = now_us
        self._limits = limits or _Limits()

    def _with(self, **changes: Any) -> Selection:
        return type(self)(
            self._parts, self._schemas, self._now_us, dataclasses.replace(self._limits, **changes)
        )

    @property
    def topic(self) -> str:
        return self._parts[0].identity.topic

    @property
    def stored(self) -> StoredPartition:
        """The only partition it reads."""
        if len(self._parts) != 1:
            raise UsageError(
                f"an offset is a matter of one partition, and topic {self.topic!r} has {len(self._parts)}",
                hint="topic.partition(n)[10:20] takes offsets; moments span partitions",
            )
        return self._parts[0]

    @property
    def by_partition(self) -> list[Selection]:
        """The same, of each of its partitions alone."""
        return [type(self)([stored], self._schemas, self._now_us, self._limits) for stored in self._parts]

    @property
    def chosen_columns(self) -> tuple[str, ...] | None:
        return self._limits.columns

    # -- narrowing --------------------------------------------------------------------------

    def since(self, moment: Moment) -> Selection:
        """Rows stamped at this moment or later: `"-15m"`, `"2026-11-18T10:00Z"`, a datetime."""
        parse_moment(moment, self._now_us())
        return self._with(since=moment)

    def until(self, moment: Moment) -> Selection:
        """Rows stamped before this moment."""
        parse_moment(moment, self._now_us())
        return self._with(until=moment)

    def where(self, expression: str) -> Selection:
        """Rows for which an SQL expression over the columns is true; several must all be."""
        parsed = parse_filter(expression)
        try:
            parsed.check(self._wished_schema())
        except UsageError:
            parsed.check(self._whole_schema())
        if self._limits.filter is not None:
            parsed = self._limits.filter & parsed
        return self._with(filter=parsed)

    def columns(self, *names: str) -> Selection:
        """Only these columns, in this order."""
        schema = self._wished_schema()
        if not set(names) <= set(schema.names):
            schema = self._whole_schema()
        for name in names:
            if schema.get_field_index(name) < 0:
                raise NotFound(
                    f"topic {self.topic!r} has no column {name!r}",
                    hint=suggest(name, schema.names) or None,
                )
        if not names:
            raise UsageError("columns() needs at least one column")
        return self._with(columns=names)

    def under_schema(self, schema_version: int) -> Selection:
        """The same rows with the columns of an older version of the schema."""
        return self._with(schema_version=schema_version)

    def _whole_schema(self) -> pa.Schema:
        """All columns, after a look at whether another handle has changed them."""
        newest = self._parts[-1]  # a change reaches the partitions in their order
        newest.refresh()
        self._schemas.follow(newest.topic_version)
        return self._wished_schema()

    def _wished_schema(self) -> pa.Schema:
        """That of the version that was asked for, else the newest."""
        wished = self._limits.schema_version
        return self._schemas.newest() if wished is None else self._schemas.version(wished)

    def limit(self, rows: int) -> Selection:
        """At most so many rows."""
        if rows < 0:
            raise UsageError("a limit is not negative")
        return self._with(limit=rows)

    # -- fixing ------------------------------------------------------------------------------

    def _fix(self) -> list[_Range]:
        """Turn what was asked for into offsets of this moment."""
        now = self._now_us()
        return [self._fix_one(stored, now) for stored in self._parts]

    def _fix_one(self, stored: StoredPartition, now: int) -> _Range:
        limits = self._limits
        oldest, newest = stored.start_offset, stored.next_offset
        self._schemas.follow(stored.topic_version)
        since = None if limits.since is None else parse_moment(limits.since, now)
        until = None if limits.until is None else parse_moment(limits.until, now)
        start, start_us = self._place(stored, limits.start, oldest, newest, oldest, now)
        end, end_us = self._place(stored, limits.end, oldest, newest, newest, now)
        since = max((moment for moment in (since, start_us) if moment is not None), default=None)
        until = min((moment for moment in (until, end_us) if moment is not None), default=None)
        if since is not None:
            start = max(start, stored.first_offset_at(since))
        if until is not None:
            end = min(end, _end_before(stored, until, newest))
        return _Range(
            stored=stored,
            start=max(start, oldest),
            end=min(max(end, start), newest),
            since_us=since,
            until_us=until,
            schema=self._wished_schema(),
        )

    @staticmethod
    def _place(
        stored: StoredPartition, place: Place, oldest: int, newest: int, otherwise: int, now: int
    ) -> tuple[int, int | None]:
        """An offset, and a moment where one was given."""
        if place is None:
            return otherwise, None
        if isinstance(place, End):
            return newest, None
        if isinstance(place, int):
            return (place if place >= 0 else max(oldest, newest + place)), None
        if isinstance(place, Token):
            stored.check_token(place)
            return place.offset, None
        return otherwise, parse_moment(place, now)

    # -- reading ------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of what this selection gives."""
        return self._chosen(self._whole_schema())

    def _chosen(self, schema: pa.Schema) -> pa.Schema:
        if self._limits.columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self._limits.columns], metadata=schema.metadata)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, streamed."""
        return self._streamed(self._fix())

    def _streamed(self, wanted: Sequence[_Range]) -> Iterator[pa.RecordBatch]:
        columns = self._limits.columns
        for _, batch in self._placed(wanted):
            yield batch if columns is None else batch.select(list(columns))

    def _placed(self, wanted: Sequence[_Range]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows with all their columns, and the partition they are of."""
        left = self._limits.limit
        for each in wanted:
            for batch in _joined(self._whole_batches(each)):
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield each.stored.identity.number, batch
                if left == 0:
                    return

    def _whole_batches(self, wanted: _Range) -> Iterator[pa.RecordBatch]:
        """All columns that are needed, rows cut to the range and filtered."""
        stored = wanted.stored
        for blocks in stored.scan(
            wanted.start,
            wanted.end,
            max_bytes=stored.settings.read_bytes,
            # hashing a block would read the columns that are to be skipped
            verify=self._limits.columns is None,
            narrow=None if self._limits.filter is None else partial(self._narrowed, stored),
        ):
            for block in blocks:
                if block.header.base_offset >= wanted.end:
                    return
                if block.header.rows and not self._is_outside(block, wanted):
                    batch = self._cut(block, wanted.start, wanted)
                    if batch.num_rows:
                        yield batch

    def _narrowed(self, stored: StoredPartition, stretch: Stretch) -> list[Stretch]:
        """Leave out blocks that the filter cannot match; columns of older schemas may be others."""
        chosen = self._limits.filter
        asked = self._limits.schema_version or self._schemas.record.schema_version
        if chosen is None or stretch.segment.entry.schema_version != asked:
            return [stretch]
        return stored.narrowed(stretch, chosen.columns, chosen.may_match)

    @staticmethod
    def _is_outside(block: StoredBlock, wanted: _Range) -> bool:
        if wanted.since_us is not None and block.header.max_timestamp < wanted.since_us:
            return True
        return wanted.until_us is not None and block.header.min_timestamp >= wanted.until_us

    def _cut(self, block: StoredBlock, offset: int, wanted: _Range) -> pa.RecordBatch:
        header = block.header
        batch = block.decode()
        wished = wanted.schema
        if batch.schema is not wished and not batch.schema.equals(wished, check_metadata=True):
            batch = unify(batch, wished)
            if self._limits.schema_version is not None:
                _check_nulls(batch)
        if header.base_offset < offset or wanted.end < header.end_offset:
            batch = _between(batch, header, offset, wanted.end)
        if wanted.since_us is not None and header.min_timestamp < wanted.since_us:
            batch = batch.filter(pc.greater_equal(batch.column(1), _moment(wanted.since_us)))
        if wanted.until_us is not None and header.max_timestamp >= wanted.until_us:
            batch = batch.filter(pc.less(batch.column(1), _moment(wanted.until_us)))
        if self._limits.filter is not None and batch.num_rows:
            batch = self._limits.filter.apply(batch)
        return batch

    def __iter__(self) -> Iterator[Row]:
        whole = self._with(columns=None)
        for number, batch in whole._placed(whole._fix()):
            yield from rows_of(batch, self._limits.columns, number)

    def to_arrow(self) -> pa.Table:
        wanted = self._fix()
        return pa.Table.from_batches(self._streamed(wanted), schema=self._chosen(_schema_of(wanted)))

    def to_pylist(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self]

    def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches."""
        wanted = self._fix()
        schema = self._chosen(_schema_of(wanted))
        return pa.RecordBatchReader.from_batches(schema, self._streamed(wanted))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def count(self) -> int:
        """How many rows: from the chain alone where nothing has to be looked into."""
        found = sum(map(self._count_one, self._fix()))
        return found if self._limits.limit is None else min(found, self._limits.limit)

    def _count_one(self, wanted: _Range) -> int:
        if self._limits.filter is None and wanted.since_us is None and wanted.until_us is None:
            return wanted.stored.count(wanted.start, wanted.end)
        return sum(batch.num_rows for batch in self._whole_batches(wanted))

    def first(self) -> Row | None:
        return next(iter(self.limit(1)), None)

    # -- going on -------------------------------------------------------------------------------

    def newest(self, rows: int) -> Selection:
        """The newest rows of each partition, and what comes."""
        return self._with(start=-rows if rows else End())

    def tail(self, *, stop_when_idle: float | None = None) -> Iterator[Row]:
        """What is there, then what comes; ends after so many idle seconds, or never."""
        for step in self.row_steps():
            if not isinstance(step, Idle):
                yield step
            elif not wait_for_any(step.places, stop_when_idle):
                return

    def tail_batches(self, *, stop_when_idle: float | None = None) -> Iterator[pa.RecordBatch]:
        """As `tail`, by batches with all columns."""
        for step in self.steps():
            if not isinstance(step, Idle):
                yield step
            elif not wait_for_any(step.places, stop_when_idle):
                return

    def row_steps(self) -> Iterator[Row | Idle]:
        """What `tail` reads, with the places where it waits."""
        for number, step in self._placed_steps():
            if isinstance(step, Idle):
                yield step
            else:
                yield from rows_of(step, self._limits.columns, number)

    def steps(self) -> Iterator[pa.RecordBatch | Idle]:
        """What `tail_batches` reads, with the places where it waits."""
        for _, step in self._placed_steps():
            yield step

    def _placed_steps(self) -> Iterator[tuple[int, pa.RecordBatch | Idle]]:
        """Batches of all partitions in turn, each with its partition; idle where none has more."""
        left = self._limits.limit
        turns = [self._partition_steps(wanted) for wanted in self._fix()]
        idle: list[tuple[StoredPartition, int]] = []
        while turns and left != 0:
            for turn in list(turns):
                step = next(turn, None)
                if step is None:
                    turns.remove(turn)
                elif isinstance(step, Idle):
                    idle += step.places
                else:
                    number, batch = step
                    if left is not None:
                        batch = batch.slice(0, left)
                        left -= batch.num_rows
                    if batch.num_rows:
                        yield number, batch
                    if left == 0:
                        return
            if turns and len(idle) == len(turns):
                yield 0, Idle(places=tuple(idle))
            idle = []

    def _partition_steps(self, wanted: _Range) -> Iterator[tuple[int, pa.RecordBatch] | Idle]:
        stored = wanted.stored
        end = self._tail_end(wanted)
        offset = min(wanted.start, stored.next_offset)
        token = stored.token_at(offset)
        while end is None or offset < end:
            stored.check_token(token)
            blocks = stored.read(offset, max_bytes=stored.settings.read_bytes)
            if not blocks:
                yield Idle(places=((stored, offset),))
                continue
            self._schemas.follow_block(blocks[-1].header.schema_version)
            piece = dataclasses.replace(
                wanted,
                end=blocks[-1].header.end_offset if end is None else end,
                schema=self._schemas.newest(),
            )
            cut = (
                self._cut(block, max(offset, wanted.start), piece)
                for block in blocks
                if block.header.rows
                and block.header.end_offset > wanted.start
                and block.header.base_offset < piece.end
            )
            for batch in _joined(cut):
                if batch.num_rows:
                    yield token.partition, batch
            if wanted.until_us is not None and blocks[-1].header.max_timestamp >= wanted.until_us:
                return
            offset = blocks[-1].header.end_offset
            token = Token(partition=token.partition, offset=offset, hash=blocks[-1].header.hash)

    def _tail_end(self, wanted: _Range) -> int | None:
        """The offset a tail ends at: one that is named may still be to come."""
        end = self._limits.end
        if isinstance(end, End):
            return wanted.end
        if isinstance(end, int) and end >= 0:
            return end
        is_past = wanted.until_us is not None and wanted.until_us <= self._now_us()
        return wanted.end if isinstance(end, int | Token) or is_past else None

    def __repr__(self) -> str:
        said = {
            field.name: getattr(self._limits, field.name)
            for field in dataclasses.fields(self._limits)
            if getattr(self._limits, field.name) is not None
        }
        inside = ", ".join(f"{name}={value}" for name, value in said.items())
        if len(self._parts) == 1 and self._parts[0].identity.number:
            inside = f"partition={self._parts[0].identity.number}{', ' if inside else ''}{inside}"
        return f"Selection({self.topic!r}{', ' if inside else ''}{inside})"

    def _repr_html_(self) -> str:
        return html_table(self.limit(20).to_arrow())


def html_table(table: pa.Table) -> str:
    """Rows as notebooks show them."""
    head = "".join(f"<th>{_escape(name)}</th>" for name in table.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_escape(value)}</td>" for value in row.values()) + "</tr>"
        for row in table.to_pylist()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _between(batch: pa.RecordBatch, header: Header, start: int, end: int) -> pa.RecordBatch:
    """The rows of a block from one offset up to another; where rows were taken away, by their own."""
    if header.rows == header.span:
        first, last = max(0, start - header.base_offset), min(header.span, end - header.base_offset)
    else:
        offsets = batch.column(0).to_numpy()
        first, last = (int(offsets.searchsorted(place)) for place in (start, end))
    return batch.slice(first, max(0, last - first))


def chosen(everything: Selection, place: int | slice) -> Any:
    """`[10:20]`, `[-2:]`, with offsets, tokens or moments; `[5]` is one row."""
    if isinstance(place, slice):
        if place.step is not None:
            raise UsageError("a range of a topic has no step")
        return between(everything, place.start, place.stop)
    if not isinstance(place, int):
        raise UsageError(f"a topic takes an offset or a range, not {type(place).__name__}")
    stored = everything.stored
    at = place if place >= 0 else stored.next_offset + place
    row = between(everything, at, at + 1).first() if at >= 0 else None
    if row is None:
        hint = f"offsets go from {stored.start_offset} to {stored.next_offset - 1}"
        if stored.start_offset <= at < stored.next_offset:
            hint = "the row was compacted away or erased; the others keep their offsets"
        raise NotFound(f"topic {everything.topic!r} has no row at offset {place}", hint=hint)
    return row


def between(everything: Selection, start: Place, end: Place) -> Selection:
    """From one place to another; offsets and tokens belong to one partition."""
    if isinstance(start, int | Token) or isinstance(end, int | Token):
        _ = everything.stored
    return everything._with(start=start, end=end)


def _schema_of(wanted: Sequence[_Range]) -> pa.Schema:
    """The newest schema that one of them was fixed with."""
    return wanted[-1].schema


def _end_before(stored: StoredPartition, until: int, newest: int) -> int:
    """An offset after every row stamped before `until`."""
    offset = stored.first_offset_at(until)
    if offset >= newest:
        return newest
    blocks = [block for block in stored.read(offset, max_bytes=1) if block.header.span]
    return blocks[0].header.end_offset if blocks else offset


def _escape(value: Any) -> str:
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _moment(microseconds: int) -> pa.Scalar:
    return pa.scalar(microseconds, pa.timestamp("us", tz="UTC"))


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join runs of small batches; large ones pass through untouched."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows >= _JOIN_ROWS // 16:
            if held:
                yield _concatenated(held)
                held, rows = [], 0
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        if rows >= _JOIN_ROWS:
            yield _concatenated(held)
            held, rows = [], 0
    if held:
        yield _concatenated(held)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _check_nulls(batch: pa.RecordBatch) -> None:
    """Rows may hold nulls where an older version had none."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise SchemaMismatch(
                f"column {field.name!r} was not null in that version, and newer rows hold nulls",
                column=field.name,
                hint="leave it out with columns(), or read a newer version",
            )


def rows_of(
    batch: pa.RecordBatch, columns: tuple[str, ...] | None = None, partition: int = 0
) -> Iterator[Row]:
    """The rows of a batch with the leading columns, as Python values."""
    count = batch.num_rows
    own = batch.schema.names[2:]
    gone: Iterable[bool] = itertools.repeat(False, count)
    if own and own[0] == DELETED:
        del own[0]
        gone = batch.column(2).to_pylist()
    names = list(columns) if columns is not None else own
    values = [_values(batch.column(batch.schema.get_field_index(name))) for name in names]
    rows = zip(*values, strict=True) if values else itertools.repeat((), count)
    # what is done for each row is done by these, and not by the interpreter
    mappings: Iterable[dict[str, Any]] = map(dict, map(zip, itertools.repeat(names), rows))
    offsets = batch.column(0).to_pylist()
    return map(Row, offsets, _moments(batch.column(1)), mappings, gone, itertools.repeat(partition))


def _moments(column: pa.Array) -> Iterator[datetime]:
    """Timestamps; rows that were appended together share one."""
    stamps = column.view(pa.int64()).to_pylist()
    known = {stamp: _EPOCH + timedelta(microseconds=stamp) for stamp in set(stamps)}
    return map(known.__getitem__, stamps)


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values, maps as dicts where no key stands twice."""
    if column.null_count == len(column):
        return [None] * len(column)
    if not pa.types.is_nested(column.type):
        return list(column.to_pylist())
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, KeyError, ValueError):
        values = column.to_pylist()
    return values
