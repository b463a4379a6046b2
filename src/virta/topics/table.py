"""An update topic as a table: the newest row of each key, lazily.

`topic.table()` is narrowed like a topic, by `where`, `columns` and `limit`, and read as
rows, as Arrow, or counted. Each reading is of the moment it begins, or of the offset or
the time that `as_of` names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import NotFound, UsageError
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import DELETED, suggest
from virta.requests import parse_moment
from virta.topics.filters import Filter, parse_filter
from virta.topics.live import LiveRows, live_as_of, live_masks
from virta.topics.read import Moment, Row, html_table, rows_of
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import Range
from virta.topics.table_snapshot import TableSnapshot
from virta.types import Token

if TYPE_CHECKING:
    import pyarrow.dataset

AsOf = int | Token | Mapping[int, int] | Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What is kept of the table."""

    as_of: AsOf | None = None
    filter: Filter | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None


class Table:
    """The current rows of an update topic, not read yet."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[StoredPartition],
        schemas: SchemaSource,
        now_us: Callable[[], int],
        wish: _Wish | None = None,
    ) -> None:
        self._name = name
        self._partitions = partitions
        self._schemas = schemas
        self._now_us = now_us
        self._wish = wish or _Wish()

    def _with(self, **changes: Any) -> Table:
        wish = dataclasses.replace(self._wish, **changes)
        return type(self)(self._name, self._partitions, self._schemas, self._now_us, wish)

    # -- narrowing --------------------------------------------------------------------------

    def where(self, expression: str) -> Table:
        """Rows for which an SQL expression over the columns is true; several must all be."""
        parsed = parse_filter(expression)
        parsed.check(self._whole_schema())
        if self._wish.filter is not None:
            parsed = self._wish.filter & parsed
        return self._with(filter=parsed)

    def columns(self, *names: str) -> Table:
        """Only these columns, in this order."""
        schema = self._whole_schema()
        for name in names:
            if schema.get_field_index(name) < 0:
                raise NotFound(
                    f"topic {self._name!r} has no column {name!r}", hint=suggest(name, schema.names) or None
                )
        if not names:
            raise UsageError("columns() needs at least one column")
        return self._with(columns=names)

    def limit(self, rows: int) -> Table:
        """At most so many rows."""
        if rows < 0:
            raise UsageError("a limit is not negative")
        return self._with(limit=rows)

    def as_of(self, moment: AsOf) -> Table:
        """The table as it was before this offset or this time."""
        return self._with(as_of=moment)

    # -- holding still ------------------------------------------------------------------------

    def _whole_schema(self) -> pa.Schema:
        stored = self._partitions[0]
        stored.refresh()
        self._schemas.follow(stored.topic_version)
        return _shown(self._schemas.newest())

    @property
    def schema(self) -> pa.Schema:
        """The schema of what this gives: `_offset` and `_timestamp` come first, unless columns say else."""
        return self._chosen(self._whole_schema())

    def _chosen(self, schema: pa.Schema) -> pa.Schema:
        if self._wish.columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self._wish.columns], metadata=schema.metadata)

    def snapshot(self) -> TableSnapshot:
        """The table of this moment, or of the one that was named, to be read any number of times."""
        wished = self._wish.as_of
        parts = [
            live_masks(stored, self._schemas).now() if wished is None else self._part_as_of(stored, wished)
            for stored in self._partitions
        ]
        return TableSnapshot(self._name, parts, self._schemas.newest())

    def _part_as_of(self, stored: StoredPartition, wished: AsOf) -> LiveRows:
        wanted = self._range(stored, wished)
        check_reaches(stored, wanted)
        return live_as_of(stored, self._schemas, wanted)

    def _range(self, stored: StoredPartition, wished: AsOf) -> Range:
        if isinstance(wished, Token):
            stored.check_token(wished)
            wished = {wished.partition: wished.offset}
        if isinstance(wished, bool):
            raise UsageError("as_of takes an offset, a token or a moment")
        if isinstance(wished, int):
            if len(self._partitions) != 1:
                raise UsageError(
                    f"an offset is a matter of one partition, and topic {self._name!r} has "
                    f"{len(self._partitions)}",
                    hint="give one for each, as topic.next_offsets does, or a time",
                )
            wished = {0: wished if wished >= 0 else max(0, stored.next_offset + wished)}
        if isinstance(wished, Mapping):
            number = stored.identity.number
            if number not in wished:
                raise UsageError(f"as_of names no offset of partition {number}")
            return Range(end=wished[number])
        return Range(until_us=parse_moment(wished, self._now_us()))

    # -- reading --------------------------------------------------------------------------------

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, streamed; in the order in which they were appended."""
        return self._read(self.snapshot())

    def _read(self, snapshot: TableSnapshot, *, leading: bool = False) -> Iterator[pa.RecordBatch]:
        wish, schema = self._wish, snapshot.schema
        names = list(schema.names if wish.columns is None else wish.columns)
        if leading:
            names = [*schema.names[:2], *(name for name in names if name not in schema.names[:2])]
        read = list(names)
        if wish.filter is not None:
            read += sorted(name for name in wish.filter.columns if name not in names)
        left = wish.limit
        for batch in snapshot.batches([schema.get_field_index(name) for name in read]):
            if wish.filter is not None:
                batch = wish.filter.apply(batch)
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            if batch.num_rows:
                yield batch if read == names else batch.select(names)
            if left == 0:
                return

    def to_arrow(self) -> pa.Table:
        snapshot = self.snapshot()
        return pa.Table.from_batches(self._read(snapshot), schema=self._chosen(snapshot.schema))

    def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches."""
        snapshot = self.snapshot()
        return pa.RecordBatchReader.from_batches(self._chosen(snapshot.schema), self._read(snapshot))

    def dataset(self) -> pyarrow.dataset.Dataset:
        """The table of this moment as a `pyarrow.dataset`."""
        import pyarrow.dataset  # it brings pandas along, where that is installed

        snapshot = self.snapshot()
        schema = self._chosen(snapshot.schema)
        return pyarrow.dataset.InMemoryDataset(list(self._read(snapshot)), schema=schema)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._read(self.snapshot(), leading=True):
            yield from rows_of(batch, self._wish.columns)

    def to_pylist(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self]

    def first(self) -> Row | None:
        return next(iter(self.limit(1)), None)

    def count(self) -> int:
        """How many rows: from the index alone where nothing has to be looked into."""
        snapshot, wish = self.snapshot(), self._wish
        if wish.filter is None:
            found = snapshot.offsets
            return found if wish.limit is None else min(found, wish.limit)
        return sum(batch.num_rows for batch in self._read(snapshot))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        said = {
            field.name: getattr(self._wish, field.name)
            for field in dataclasses.fields(self._wish)
            if getattr(self._wish, field.name) is not None
        }
        inside = ", ".join(f"{name}={value}" for name, value in said.items())
        return f"Table({self._name!r}{', ' if inside else ''}{inside})"

    def _repr_html_(self) -> str:
        return html_table(self.limit(20).to_arrow())


def _shown(stored: pa.Schema) -> pa.Schema:
    kept = [field for field in stored if field.name != DELETED]
    return pa.schema(kept, metadata=stored.metadata)


def check_reaches(stored: StoredPartition, wanted: Range) -> None:
    """Refuse a moment before which rows were taken away: what was true then is not known any more."""
    with stored.view() as view:
        start = view.start_offset
    if wanted.end < start:
        raise NotFound(
            f"rows before offset {start} were removed, so the table as of offset {wanted.end} is not known",
            hint=f"the oldest table that can be had is that as of offset {start}",
        )
