"""What lake formats have in common: which types they can hold, and how rows are brought to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import UsageError
from virta.metadata.schemas import OFFSET, TIMESTAMP
from virta.pipelines.sources.base import PARTITION

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


def lake_type(type_: pa.DataType, column: str) -> pa.DataType:
    """The nearest type that Delta and Iceberg both have, or a refusal."""
    plain = _plain(type_)
    if plain is not None:
        return plain
    if pa.types.is_struct(type_):
        return pa.struct(
            [field.with_type(lake_type(field.type, f"{column}.{field.name}")) for field in type_]
        )
    if pa.types.is_map(type_):
        return pa.map_(lake_type(type_.key_type, column), lake_type(type_.item_type, column))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(pa.field("element", lake_type(type_.value_type, column)))
    raise UsageError(
        f"column {column!r}: lake tables have no type for {type_}",
        hint="turn it into another in a transformation, or drop it",
    )


def _plain(type_: pa.DataType) -> pa.DataType | None:
    if type_ in _UNSIGNED:
        return _UNSIGNED[type_]
    changes: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType | None], ...] = (
        (lambda each: each == pa.uint64(), pa.decimal128(20, 0)),
        (lambda each: each in (pa.int8(), pa.int16()), pa.int32()),
        (lambda each: pa.types.is_integer(each) or pa.types.is_boolean(each), None),
        (pa.types.is_float16, pa.float32()),
        (pa.types.is_floating, None),
        (lambda each: pa.types.is_decimal(each) and each.bit_width <= 128, None),
        (lambda each: pa.types.is_string(each) or pa.types.is_large_string(each), pa.string()),
        (lambda each: pa.types.is_string_view(each), pa.string()),
        (lambda each: pa.types.is_binary(each) or pa.types.is_large_binary(each), pa.binary()),
        (lambda each: pa.types.is_fixed_size_binary(each) or pa.types.is_binary_view(each), pa.binary()),
        (pa.types.is_date, pa.date32()),
    )
    for fits, becomes in changes:
        if fits(type_):
            return becomes if becomes is not None else type_
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    return None


def lake_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as a lake table has them."""
    return pa.schema(
        [
            pa.field(field.name, lake_type(_storage(field.type), field.name), nullable=field.nullable)
            for field in schema
        ]
    )


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def check_partition_by(names: Sequence[str], schema: pa.Schema, what: str, *, provenance: bool) -> None:
    """Lake tables are partitioned by columns that they have."""
    known = [*schema.names, *((PARTITION, OFFSET, TIMESTAMP) if provenance else ())]
    for name in names:
        if name not in known:
            raise UsageError(
                f"{what} cannot be partitioned by {name!r}, which is no column of the rows",
                hint='make one of it: sql = "select *, cast(at as date) as day from rows"; '
                "units like day(at) are for Parquet folders",
            )


def as_lake(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows under the lake's schema."""
    for batch in batches:
        columns = []
        for column, field in zip(batch.columns, schema, strict=True):
            plain = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
            columns.append(plain if plain.type == field.type else pc.cast(plain, field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
