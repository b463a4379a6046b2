"""Reading a topic: one lazy value that is narrowed, then iterated or given to any Arrow reader.

`topic[10:20]`, `.since()`, `.until()`, `.where()` and `.columns()` each give a new
selection; nothing is read before rows, Arrow or a count are asked for. Then the range
is fixed to offsets, blocks outside it are never read, and the rest streams through in
pieces of bounded size.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import NotFound, UsageError
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import DELETED, suggest, unify
from virta.requests import parse_moment
from virta.storage.chain import Header
from virta.storage.segment import StoredBlock
from virta.storage.view import Stretch
from virta.topics.filters import Filter, parse_filter
from virta.topics.idle import Idle
from virta.topics.schema import SchemaSource
from virta.types import Token

Moment = str | int | float | datetime | date | timedelta
Place = int | Token | datetime | str | None

# Small blocks are handed out joined, so that a reader of many one-row blocks gets whole batches.
_JOIN_ROWS = 8192


class Row(Mapping[str, Any]):
    """One row: its offset, its timestamp and its columns by name; `deleted` if it deletes its key."""

    __slots__ = ("_values", "deleted", "offset", "timestamp")

    def __init__(
        self, offset: int, timestamp: datetime, values: dict[str, Any], deleted: bool = False
    ) -> None:
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
        deleted = ", deleted" if self.deleted else ""
        stamp = self.timestamp.isoformat()
        return f"Row(offset={self.offset}, timestamp={stamp!r}, {self._values!r}{deleted})"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """A selection fixed to offsets and microseconds at one moment."""

    start: int
    end: int
    since_us: int | None
    until_us: int | None
    schema: pa.Schema


class Selection:
    """Some rows of a partition, not read yet."""

    def __init__(
        self, stored: StoredPartition, schemas: SchemaSource, now_us: Any, limits: _Limits | None = None
    ) -> None:
        self._stored = stored
        self._schemas = schemas
        self._now_us = now_us
        self._limits = limits or _Limits()

    def _with(self, **changes: Any) -> Selection:
        return Selection(
            self._stored, self._schemas, self._now_us, dataclasses.replace(self._limits, **changes)
        )

    @property
    def stored(self) -> StoredPartition:
        return self._stored

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
            parsed.check(self._schemas.newest())
        except UsageError:
            parsed.check(self._whole_schema())
        if self._limits.filter is not None:
            parsed = self._limits.filter & parsed
        return self._with(filter=parsed)

    def columns(self, *names: str) -> Selection:
        """Only these columns, in this order."""
        schema = self._schemas.newest()
        if not set(names) <= set(schema.names):
            schema = self._whole_schema()
        for name in names:
            if schema.get_field_index(name) < 0:
                raise NotFound(
                    f"topic {self._stored.identity.topic!r} has no column {name!r}",
                    hint=suggest(name, schema.names) or None,
                )
        if not names:
            raise UsageError("columns() needs at least one column")
        return self._with(columns=names)

    def _whole_schema(self) -> pa.Schema:
        """All columns, after a look at whether another handle has changed them."""
        self._stored.refresh()
        self._schemas.follow(self._stored.topic_version)
        return self._schemas.newest()

    def limit(self, rows: int) -> Selection:
        """At most so many rows."""
        if rows < 0:
            raise UsageError("a limit is not negative")
        return self._with(limit=rows)

    # -- fixing ------------------------------------------------------------------------------

    def _fix(self) -> _Range:
        """Turn what was asked for into offsets of this moment."""
        limits = self._limits
        stored = self._stored
        now = self._now_us()
        oldest, newest = stored.start_offset, stored.next_offset
        self._schemas.follow(stored.topic_version)
        since = None if limits.since is None else parse_moment(limits.since, now)
        until = None if limits.until is None else parse_moment(limits.until, now)
        start, start_us = self._place(limits.start, oldest, newest, oldest, now)
        end, end_us = self._place(limits.end, oldest, newest, newest, now)
        since = max((moment for moment in (since, start_us) if moment is not None), default=None)
        until = min((moment for moment in (until, end_us) if moment is not None), default=None)
        if since is not None:
            start = max(start, stored.first_offset_at(since))
        if until is not None:
            end = min(end, self._end_before(until, newest))
        return _Range(
            start=max(start, oldest),
            end=min(max(end, start), newest),
            since_us=since,
            until_us=until,
            schema=self._schemas.newest(),
        )

    def _place(
        self, place: Place, oldest: int, newest: int, otherwise: int, now: int
    ) -> tuple[int, int | None]:
        """An offset, and a moment where one was given."""
        if place is None:
            return otherwise, None
        if isinstance(place, int):
            return (place if place >= 0 else max(oldest, newest + place)), None
        if isinstance(place, Token):
            self._stored.check_token(place)
            return place.offset, None
        return otherwise, parse_moment(place, now)

    def _end_before(self, until: int, newest: int) -> int:
        """An offset after every row stamped before `until`."""
        offset = self._stored.first_offset_at(until)
        if offset >= newest:
            return newest
        blocks = [block for block in self._stored.read(offset, max_bytes=1) if block.header.span]
        return blocks[0].header.end_offset if blocks else offset

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

    def _streamed(self, wanted: _Range) -> Iterator[pa.RecordBatch]:
        columns = self._limits.columns
        left = self._limits.limit
        for batch in _joined(self._whole_batches(wanted)):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            if batch.num_rows:
                yield batch if columns is None else batch.select(list(columns))
            if left == 0:
                return

    def _whole_batches(self, wanted: _Range) -> Iterator[pa.RecordBatch]:
        """All columns that are needed, rows cut to the range and filtered."""
        for blocks in self._stored.scan(
            wanted.start,
            wanted.end,
            max_bytes=self._stored.settings.read_bytes,
            # hashing a block would read the columns that are to be skipped
            verify=self._limits.columns is None,
            narrow=None if self._limits.filter is None else self._narrowed,
        ):
            for block in blocks:
                if block.header.base_offset >= wanted.end:
                    return
                if block.header.span and not self._is_outside(block, wanted):
                    batch = self._cut(block, wanted.start, wanted)
                    if batch.num_rows:
                        yield batch

    def _narrowed(self, stretch: Stretch) -> list[Stretch]:
        """Leave out blocks that the filter cannot match; columns of older schemas may be others."""
        chosen = self._limits.filter
        if chosen is None or stretch.segment.entry.schema_version != self._schemas.record.schema_version:
            return [stretch]
        return self._stored.narrowed(stretch, chosen.columns, chosen.may_match)

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
        for batch in self._with(columns=None).batches():
            yield from rows_of(batch, self._limits.columns)

    def to_arrow(self) -> pa.Table:
        wanted = self._fix()
        return pa.Table.from_batches(self._streamed(wanted), schema=self._chosen(wanted.schema))

    def to_pylist(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self]

    def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches."""
        wanted = self._fix()
        return pa.RecordBatchReader.from_batches(self._chosen(wanted.schema), self._streamed(wanted))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def count(self) -> int:
        """How many rows: from the chain alone where nothing has to be looked into."""
        wanted = self._fix()
        limits = self._limits
        if limits.filter is None and wanted.since_us is None and wanted.until_us is None:
            found = max(0, wanted.end - wanted.start)
        else:
            found = sum(batch.num_rows for batch in self._whole_batches(wanted))
        return found if limits.limit is None else min(found, limits.limit)

    def first(self) -> Row | None:
        return next(iter(self.limit(1)), None)

    # -- going on -------------------------------------------------------------------------------

    def tail(self, *, stop_when_idle: float | None = None) -> Iterator[Row]:
        """What is there, then what comes; ends after so many idle seconds, or never."""
        for batch in self.tail_batches(stop_when_idle=stop_when_idle):
            yield from rows_of(batch, self._limits.columns)

    def tail_batches(self, *, stop_when_idle: float | None = None) -> Iterator[pa.RecordBatch]:
        """As `tail`, by batches with all columns."""
        for step in self.steps():
            if not isinstance(step, Idle):
                yield step
            elif not self._stored.wait(step.offset, stop_when_idle):
                return

    def steps(self) -> Iterator[pa.RecordBatch | Idle]:
        """What `tail_batches` reads, with the places where it waits."""
        wanted = self._fix()
        end = self._tail_end(wanted)
        offset, left = min(wanted.start, self._stored.next_offset), self._limits.limit
        token = self._stored.token_at(offset)
        while (end is None or offset < end) and left != 0:
            self._stored.check_token(token)
            blocks = self._stored.read(offset, max_bytes=self._stored.settings.read_bytes)
            if not blocks:
                yield Idle(offset=offset)
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
                if block.header.span
                and block.header.end_offset > wanted.start
                and block.header.base_offset < piece.end
            )
            for batch in _joined(cut):
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
            if wanted.until_us is not None and blocks[-1].header.max_timestamp >= wanted.until_us:
                return
            offset = blocks[-1].header.end_offset
            token = Token(partition=token.partition, offset=offset, hash=blocks[-1].header.hash)

    def _tail_end(self, wanted: _Range) -> int | None:
        """The offset a tail ends at: one that is named may still be to come."""
        end = self._limits.end
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
        return f"Selection({self._stored.identity.topic!r}{', ' if inside else ''}{inside})"

    def _repr_html_(self) -> str:
        table = self.limit(20).to_arrow()
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


def rows_of(batch: pa.RecordBatch, columns: tuple[str, ...] | None = None) -> Iterator[Row]:
    """The rows of a batch with the leading columns, as Python values."""
    offsets = batch.column(0).to_pylist()
    stamps = batch.column(1).view(pa.int64()).to_pylist()
    own = batch.schema.names[2:]
    gone: Iterable[bool] = itertools.repeat(False, len(offsets))
    if own and own[0] == DELETED:
        del own[0]
        gone = batch.column(2).to_pylist()
    names = list(columns) if columns is not None else own
    values = [_values(batch.column(batch.schema.get_field_index(name))) for name in names]
    for offset, stamp, deleted, *row in zip(offsets, stamps, gone, *values, strict=True):
        moment = _EPOCH + timedelta(microseconds=stamp)
        yield Row(offset, moment, dict(zip(names, row, strict=True)), deleted)


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values, maps as dicts where no key stands twice."""
    if not pa.types.is_nested(column.type):
        return list(column.to_pylist())
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, KeyError, ValueError):
        values = column.to_pylist()
    return values
