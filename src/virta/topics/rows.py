"""Rows into record batches: what `append` was given becomes a topic's columns, or is refused.

A `RowConverter` belongs to one schema. It takes dicts (`from_rows`) or anything that
speaks Arrow (`from_arrow`) and gives batches of the user schema, columns in its order.
A value is stored as it is or the whole call is refused with the column and the row
named; nothing is rounded, cut or guessed.

The path of ordinary rows is kept short: one list per column, one look at the types in
it, one `pa.array`. Whatever that path will not vouch for goes through the exact rules
in `values`. Knows no topic, no file, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from virta.errors import SchemaMismatch, TooLarge
from virta.metadata.python_types import describe
from virta.metadata.schemas import DELETED, HEADERS, OFFSET, TIMESTAMP, is_untyped, suggest
from virta.topics.casts import cast, count_nulls, fits, has_strict_inside, holds_null, why_not
from virta.topics.sizes import (
    BLOCK_LIMIT_BYTES,
    KEY_LIMIT_BYTES,
    ROW_LIMIT_BYTES,
    Limits,
    split,
)
from virta.topics.values import Misfit, as_mapping, check_for

# Rows that were read carry these; appended again they get new ones.
_STAMPED = frozenset((OFFSET, TIMESTAMP))

# Producers send rows of a few shapes; one that sends more gains nothing from remembering.
_SHAPE_LIMIT = 64

# A column's nulls are kept for the next batch of as many rows, up to this many.
_NULLS_KEPT = 16_384

_REFUSED = (pa.ArrowException, OverflowError, ValueError, TypeError)


class Column:
    """One column of a topic: what goes in, and in what form."""

    __slots__ = (
        "_built",
        "_nulls",
        "check",
        "field",
        "kind",
        "name",
        "strict",
        "strict_inside",
    )

    def __init__(self, field: pa.Field) -> None:
        self.field = field
        self.name: str = field.name
        self.kind = field.type
        extended = isinstance(field.type, pa.BaseExtensionType)
        self._built = field.type.storage_type if extended else field.type
        try:
            self.check = check_for(field)
        except Misfit as misfit:
            raise SchemaMismatch(f"column {self.name!r} {misfit}", column=self.name) from None
        self.strict_inside = has_strict_inside(field.type)
        self.strict = self.strict_inside or not field.nullable
        self._nulls = pa.nulls(0, field.type)

    def build(self, values: Sequence[Any], first_row: int = 0) -> pa.Array:
        """The values as an array."""
        if self.check.exact(values):
            try:
                return self._array(values)
            except _REFUSED:
                pass  # the careful way says which value it was
        return self._build_carefully(values, first_row)

    def _array(self, values: Sequence[Any]) -> pa.Array:
        array = pa.array(values, self._built)
        if isinstance(array, pa.ChunkedArray):
            raise TooLarge(
                f"column {self.name!r} holds over 2 GiB in one append",
                column=self.name,
                size=array.nbytes,
                limit=1 << 31,
                hint="append fewer rows at a time",
            )
        if array.type is self.kind or array.type.equals(self.kind):
            return array
        if pa.types.is_dictionary(self.kind):
            raise SchemaMismatch(
                f"column {self.name!r} is {self.kind}, which cannot count that many "
                "different values in one append",
                column=self.name,
                hint="append fewer rows at a time, or give the dictionary a wider index",
            )
        return array.cast(self.kind)

    def nulls(self, count: int) -> pa.Array:
        """As many nulls, for a column that rows left out."""
        if not self.field.nullable:
            raise SchemaMismatch(
                f"column {self.name!r} is {describe(self.kind)} and not null, but it is missing",
                column=self.name,
                row=0,
            )
        ready = self._nulls
        if len(ready) != count:  # batches come in one size, mostly
            ready = pa.nulls(count, self.kind)
            if count <= _NULLS_KEPT:
                self._nulls = ready
        return ready

    def _build_carefully(self, values: Sequence[Any], first_row: int) -> pa.Array:
        normal = [self._normal(value, first_row + at) for at, value in enumerate(values)]
        try:
            return self._array(normal)
        except _REFUSED:
            self._refuse_one(normal, first_row)
            raise

    def _normal(self, value: Any, row: int) -> Any:
        try:
            return self.check.normal(value)
        except Misfit as misfit:
            raise SchemaMismatch(
                f"row {row}: column {self.name!r} {misfit}", column=self.name, row=row
            ) from None

    def _refuse_one(self, values: Sequence[Any], first_row: int) -> None:
        """Name the row that Arrow would not take although the rules let it pass."""
        for at, value in enumerate(values):
            try:
                pa.array([value], self._built)
            except _REFUSED as error:
                raise SchemaMismatch(
                    f"row {first_row + at}: column {self.name!r} cannot hold the value: {error}",
                    column=self.name,
                    row=first_row + at,
                ) from None

    def convert(self, array: pa.Array, first_row: int) -> pa.Array:
        """An array from elsewhere as this column."""
        try:
            result = cast(array, self.kind)
        except pa.ArrowException:
            return self._convert_carefully(array, first_row)
        self.check_nulls(result, first_row)
        return result

    def _convert_carefully(self, array: pa.Array, first_row: int) -> pa.Array:
        """Name the row whose value would change; if there is none, build the column anew."""
        for at in range(len(array)):
            one = array.slice(at, 1)
            try:
                cast(one, self.kind)
            except pa.ArrowException as error:
                self._refuse_cast(one, first_row + at, error)
        return self._build_carefully(_python_values(array), first_row)

    def _refuse_cast(self, one: pa.Array, row: int, error: Exception) -> None:
        try:
            value = one.to_pylist()[0]
        except _REFUSED:  # beyond what Python's types reach
            raise SchemaMismatch(
                f"row {row}: column {self.name!r} cannot hold the value: {error}",
                column=self.name,
                row=row,
            ) from None
        self._normal(value, row)

    def check_nulls(self, array: pa.Array, first_row: int) -> None:
        """Refuse nulls where the column, or something inside it, has none."""
        if self.strict_inside:
            found = holds_null(array, nullable=self.field.nullable)
        else:
            found = not self.field.nullable and count_nulls(array) > 0
        if found:
            for at, value in enumerate(_python_values(array)):
                self._normal(value, first_row + at)


def _python_values(array: pa.Array) -> list[Any]:
    return list(array.to_pylist())


class _DeletedColumn(Column):
    """Whether a row deletes its key: it does not where nothing is said."""

    __slots__ = ()

    def build(self, values: Sequence[Any], first_row: int = 0) -> pa.Array:
        return super().build([False if value is None else value for value in values], first_row)

    def nulls(self, count: int) -> pa.Array:
        return pa.repeat(pa.scalar(False), count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How batches of one foreign schema become ours."""

    places: list[int | None]  # for each of our columns the place of the given one, or None for nulls
    idle: int | None  # the place of headers that have to be empty


class RowConverter:
    """Turns what users append into batches of one schema: the user's columns, `_deleted` where it is."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        row_limit_bytes: int = ROW_LIMIT_BYTES,
        key_limit_bytes: int = KEY_LIMIT_BYTES,
        keys: Sequence[str] = (),
    ) -> None:
        self.schema = schema
        self.columns = [_DeletedColumn(field) if field.name == DELETED else Column(field) for field in schema]
        self.schema_names = tuple(schema.names)
        self._names = frozenset(schema.names)
        self._shapes: dict[tuple[str, ...], tuple[bool, ...]] = {}
        self._last_plan: tuple[pa.Schema, _Plan | None] | None = None
        self._limits = Limits(
            schema,
            tuple(keys) or (("key",) if is_untyped(schema) else ()),
            row_limit_bytes=row_limit_bytes,
            key_limit_bytes=key_limit_bytes,
        )

    def batches(self, data: Any, *, max_bytes: int = BLOCK_LIMIT_BYTES) -> list[pa.RecordBatch]:
        """Whatever `append` takes, as batches that each fit a block; empty ones left out.

        All of it is converted before the first batch is handed out, so a refusal in
        the last row leaves nothing half done.
        """
        if isinstance(data, list):
            converted: Iterator[pa.RecordBatch] = iter((self.from_rows(data),))
        elif as_mapping(data) is not None:
            converted = iter((self.from_rows([data]),))
        else:
            converted = self.from_arrow(data)
        return [part for batch in converted if batch.num_rows for part in split(batch, max_bytes)]

    # -- dicts ----------------------------------------------------------------------------

    def from_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Dicts, or dataclass instances, as one batch."""
        if not rows:
            return self._empty()
        values = self._even(rows)
        if values is None:
            values = self._ragged(rows)
        count = len(rows)
        arrays = [
            column.nulls(count) if each is None else column.build(each)
            for column, each in zip(self.columns, values, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._limits.check(batch)
        return batch

    def _empty(self) -> pa.RecordBatch:
        arrays = [column.build([]) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _even(self, rows: Sequence[Mapping[str, Any]]) -> list[list[Any] | None] | None:
        """The values column by column if all rows name the columns the first one names."""
        first = rows[0]
        if type(first) is not dict:
            return None
        shape = tuple(first)
        present = self._shapes.get(shape) or self._remember(shape)
        try:
            if present is None or sum(map(len, rows)) != len(shape) * len(rows):
                return None
            return [
                [row[name] for row in rows] if there else None
                for name, there in zip(self.schema_names, present, strict=True)
            ]
        except (KeyError, TypeError, IndexError):
            return None

    def _remember(self, shape: tuple[str, ...]) -> tuple[bool, ...] | None:
        if not self._names.issuperset(shape):
            return None
        if len(self._shapes) >= _SHAPE_LIMIT:
            self._shapes.clear()
        present = tuple(name in shape for name in self.schema_names)
        self._shapes[shape] = present
        return present

    def _ragged(self, rows: Sequence[Any]) -> list[list[Any] | None]:
        """The values column by column when rows leave out columns, each its own."""
        mappings = [self._mapping(row, at) for at, row in enumerate(rows)]
        named = set().union(*mappings)
        if not named <= self._names | _STAMPED:
            self._refuse_unknown(mappings)
        return [[row.get(name) for row in mappings] if name in named else None for name in self.schema_names]

    def _mapping(self, row: Any, at: int) -> Mapping[str, Any]:
        mapping = as_mapping(row)
        if mapping is None:
            raise SchemaMismatch(
                f"row {at} is {type(row).__name__}, not a dict of columns and values", row=at
            )
        return mapping

    def _refuse_unknown(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for at, row in enumerate(rows):
            for name in row:
                if name not in self._names and name not in _STAMPED:
                    raise self._unknown(name, row=at)

    def _unknown(self, name: Any, row: int | None = None) -> SchemaMismatch:
        where = "" if row is None else f"row {row}: "
        hint = suggest(str(name), self.schema_names)
        if name == HEADERS:
            hint = "this topic was made without headers"
        return SchemaMismatch(f"{where}there is no column {name!r}", column=str(name), row=row, hint=hint)

    # -- Arrow ----------------------------------------------------------------------------

    def from_arrow(self, data: Any, *, validate: bool | None = None) -> Iterator[pa.RecordBatch]:
        """Anything with `__arrow_c_stream__`, batch by batch.

        What did not come from pyarrow is validated in full first (`validate` says
        otherwise): a wrong offset in it would make us read memory that is not ours.
        """
        given, source, is_own = open_arrow(data)
        validate = not is_own if validate is None else validate
        plan = self._planned(given)
        first_row = 0
        for batch in source:
            if validate:
                self._validate(batch)
            if plan is None:
                yield self._checked(batch, first_row)
            else:
                yield self._converted(batch, plan, first_row)
            first_row += batch.num_rows

    def _checked(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """A batch that has our columns already."""
        for at, column in enumerate(self.columns):
            if column.strict:
                column.check_nulls(batch.column(at), first_row)
        if not batch.schema.equals(self.schema, check_metadata=True):
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        self._limits.check(batch, first_row=first_row)
        return batch

    def _planned(self, given: pa.Schema) -> _Plan | None:
        """The plan for a schema, the last one remembered; None when it is ours already."""
        last = self._last_plan
        if last is None or not given.equals(last[0]):
            plan = None if given.equals(self.schema) else self._plan(given)
            last = self._last_plan = (given, plan)
        return last[1]

    def _plan(self, given: pa.Schema) -> _Plan:
        places = {name: at for at, name in enumerate(given.names)}
        if len(places) != len(given.names):
            twice = next(name for name in given.names if given.names.count(name) > 1)
            raise SchemaMismatch(f"column {twice!r} is there twice", column=twice)
        for name in given.names:
            if name not in self._names and name not in _STAMPED and not self._idle(given, name):
                raise self._unknown(name)
        for column in self.columns:
            at = places.get(column.name)
            if at is not None and not fits(given.field(at).type, column.kind):
                raise self._misfit(column, given.field(at).type)
        return _Plan(
            places=[places.get(name) for name in self.schema_names],
            idle=None if HEADERS in self._names else places.get(HEADERS),
        )

    def _idle(self, given: pa.Schema, name: str) -> bool:
        """Headers that a read always carries are no surprise; `_converted` sees they are empty."""
        return name == HEADERS and bool(pa.types.is_map(given.field(name).type))

    def _misfit(self, column: Column, given: pa.DataType) -> SchemaMismatch:
        return SchemaMismatch(
            f"column {column.name!r} is {describe(column.kind)}, but the values are {given}",
            column=column.name,
            hint=why_not(given, column.kind),
        )

    def _converted(self, batch: pa.RecordBatch, plan: _Plan, first_row: int) -> pa.RecordBatch:
        arrays = [
            column.nulls(batch.num_rows) if at is None else column.convert(batch.column(at), first_row)
            for column, at in zip(self.columns, plan.places, strict=True)
        ]
        if plan.idle is not None:
            headers = batch.column(plan.idle)
            if headers.null_count < len(headers):
                raise self._unknown(HEADERS)
        result = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._limits.check(result, first_row=first_row)
        return result

    def _validate(self, batch: pa.RecordBatch) -> None:
        try:
            batch.validate(full=True)
        except pa.ArrowException as error:
            raise SchemaMismatch(f"this is not valid Arrow data: {error}") from error


def open_arrow(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch], bool]:
    """Schema and batches of anything that speaks Arrow, and whether pyarrow made them."""
    is_own = isinstance(data, pa.RecordBatch | pa.Table | pa.RecordBatchReader)
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches()), is_own
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data), is_own
    if hasattr(data, "__arrow_c_stream__") and not is_own:
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader), is_own
    if hasattr(data, "__arrow_c_array__"):
        batch = data if is_own else pa.record_batch(data)
        return batch.schema, iter((batch,)), is_own
    raise SchemaMismatch(
        f"{type(data).__name__} is neither rows nor Arrow data",
        hint="append a dict, a list of dicts, or anything with __arrow_c_stream__",
    )
