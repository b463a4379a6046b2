"""What a topic's columns are in Spark, and values carried over exactly, in both directions.

    in the topic                            in Spark
    int8 … int64, float32, float64, bool    the same
    uint8, uint16, uint32                   the next wider signed integer
    uint64                                  decimal(20, 0)
    float16                                 float
    text, also large; dictionary of text    string
    bytes, also large or of fixed size      binary
    UUID                                    string, as it is written
    decimal of up to 38 digits              decimal
    date32, date64                          date
    timestamp with a zone                   timestamp (the same moment, to the microsecond)
    timestamp without                       timestamp_ntz
    time                                    time(6)
    duration                                interval day to second
    list, struct, map                       array, struct, map

Nothing is rounded: a nanosecond that Spark cannot hold is refused with the column's name.
What has no counterpart (decimals of more than 38 digits) is refused when the schema is
asked for; columns can be left out by naming the others.

Knows Arrow and Spark types; no topic, no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from virta.errors import SchemaMismatch
from virta.metadata.python_types import describe
from virta.topics.casts import fits

_types = pa.types

_PLAIN: dict[pa.DataType, type[DataType]] = {
    pa.bool_(): BooleanType,
    pa.int8(): ByteType,
    pa.int16(): ShortType,
    pa.int32(): IntegerType,
    pa.int64(): LongType,
    pa.uint8(): ShortType,
    pa.uint16(): IntegerType,
    pa.uint32(): LongType,
    pa.float16(): FloatType,
    pa.float32(): FloatType,
    pa.float64(): DoubleType,
    pa.string(): StringType,
    pa.large_string(): StringType,
    pa.binary(): BinaryType,
    pa.large_binary(): BinaryType,
    pa.date32(): DateType,
    pa.date64(): DateType,
    pa.uuid(): StringType,
}
_SPARK_DIGITS = 38


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of a DataFrame over these columns."""
    return StructType(
        [StructField(field.name, spark_type(field.type, field.name), field.nullable) for field in schema]
    )


def spark_type(kind: pa.DataType, column: str) -> DataType:
    """The Spark type that holds every value of an Arrow type; SchemaMismatch when there is none."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain()
    if _types.is_dictionary(kind):
        return spark_type(kind.value_type, column)
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type, column)
    if _types.is_uint64(kind):
        return DecimalType(20, 0)
    if _types.is_fixed_size_binary(kind):
        return BinaryType()
    if _types.is_timestamp(kind):
        return TimestampType() if kind.tz else TimestampNTZType()
    if _types.is_time(kind):
        return TimeType(6)
    if _types.is_duration(kind):
        return DayTimeIntervalType()
    if _types.is_decimal(kind) and kind.precision <= _SPARK_DIGITS and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    return _nested_type(kind, column)


def _nested_type(kind: pa.DataType, column: str) -> DataType:
    if _is_list(kind):
        inner = kind.value_field
        return ArrayType(spark_type(inner.type, f"{column}.{inner.name}"), inner.nullable)
    if _types.is_map(kind):
        return MapType(
            spark_type(kind.key_type, f"{column}.key"),
            spark_type(kind.item_type, f"{column}.value"),
            kind.item_field.nullable,
        )
    if _types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return StructType(
            [
                StructField(each.name, spark_type(each.type, f"{column}.{each.name}"), each.nullable)
                for each in fields
            ]
        )
    raise SchemaMismatch(
        f"column {column!r} is {describe(kind)}, for which Spark has no type",
        column=column,
        hint="read the other columns: .option('columns', 'a,b,c')",
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects of the batches that it is given: exactly this."""
    return to_arrow_schema(schema, timezone="UTC")


def topic_schema(schema: StructType) -> pa.Schema:
    """The columns of a topic that is made for these rows."""
    fields = [
        field.with_type(pa.time64("us")) if _types.is_time64(field.type) else field.with_metadata(None)
        for field in arrow_schema(schema)
    ]
    return pa.schema(fields)


# -- values -------------------------------------------------------------------------------------


def exact_batch(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """These columns as a batch of the schema, every value unchanged or refused."""
    arrays = [exact(column, field.type, field.name) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def exact(array: pa.Array, target: pa.DataType, column: str) -> pa.Array:
    """The array as another type, every value unchanged; SchemaMismatch where one would change."""
    if array.type.equals(target):
        return array
    try:
        return _cast(array, target)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SchemaMismatch(
            f"column {column!r} holds a value that does not go from {describe(array.type)} to "
            f"{describe(target)} unchanged: {reason}",
            column=column,
        ) from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if source.equals(target):
        return array
    if _types.is_dictionary(source):
        return _cast(array.dictionary_decode(), target)
    if _types.is_dictionary(target):
        return _cast(array, target.value_type).dictionary_encode().cast(target)
    if isinstance(source, pa.BaseExtensionType):
        return _from_extension(array, target)
    if isinstance(target, pa.BaseExtensionType):
        return _to_extension(array, target)
    if _types.is_struct(source) and _types.is_struct(target):
        return _cast_struct(array, target)
    if _types.is_map(source) and _types.is_map(target):
        return _cast_map(array, target)
    if _is_list(source) and _is_list(target):
        return _cast_list(array, target)
    if not _is_tried(source, target):
        raise ValueError("they are different kinds of values")
    found = array.cast(target)
    if _types.is_floating(source) and _types.is_floating(target) and target.bit_width < source.bit_width:
        _check_floats(array, found)  # Arrow rounds them without a word
    return found


def _is_tried(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values may go over at all: a number is not text, a moment not a time of day somewhere."""
    if _types.is_timestamp(source) and _types.is_timestamp(target):
        return bool(source.tz) == bool(target.tz)
    if _types.is_floating(source) and _types.is_floating(target):
        return True
    if _types.is_decimal(source) and _types.is_integer(target):
        return True
    return fits(source, target)


def _check_floats(array: pa.Array, narrowed: pa.Array) -> None:
    back = narrowed.cast(array.type)
    same = pc.or_(pc.equal(back, array), pc.and_(pc.is_nan(back), pc.is_nan(array)))
    if pc.any(pc.invert(same)).as_py():
        raise ValueError("it would be rounded")


def _from_extension(array: Any, target: pa.DataType) -> pa.Array:
    if array.type.equals(pa.uuid()) and _types.is_string(target):
        return uuid_text(array.storage)
    return _cast(array.storage, target)


def _to_extension(array: pa.Array, target: Any) -> pa.Array:
    if target.equals(pa.uuid()) and (_types.is_string(array.type) or _types.is_large_string(array.type)):
        array = uuid_bytes(array)
    storage = _cast(array, target.storage_type)
    return pa.ExtensionArray.from_storage(target, storage)


def uuid_text(storage: pa.Array) -> pa.Array:
    """Sixteen bytes each, as a UUID is written."""
    digits = pc.ascii_lower(
        pa.array([None if each is None else each.hex() for each in storage.to_pylist()], pa.string())
    )
    parts = [pc.utf8_slice_codeunits(digits, start, stop) for start, stop in _UUID_PARTS]
    return pc.binary_join_element_wise(*parts, "-")


_UUID_PARTS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


def uuid_bytes(text: pa.Array) -> pa.Array:
    """UUIDs as they are written, as sixteen bytes each."""
    import uuid

    return pa.array(
        [None if each is None else uuid.UUID(each).bytes for each in text.to_pylist()], pa.binary(16)
    )


def _cast_struct(array: Any, target: Any) -> pa.Array:
    names = [field.name for field in array.type]
    if names != [field.name for field in target]:
        raise ValueError(f"the fields are {', '.join(names)}")
    # flatten() puts the struct's own nulls into its fields, which may not be null themselves
    fields = [_cast(array.field(at), target.field(at).type) for at in range(target.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(target), mask=mask)


def _cast_list(array: Any, target: Any) -> pa.Array:
    if _types.is_fixed_size_list(array.type) or _types.is_fixed_size_list(target):
        inner = pa.list_(target.value_field) if _types.is_fixed_size_list(target) else target
        source = array.type.value_field
        plain = array.cast(pa.list_(source)) if _types.is_fixed_size_list(array.type) else array
        whole = _cast(plain, inner)
        return whole if whole.type.equals(target) else whole.cast(target)
    if _types.is_large_list(array.type) != _types.is_large_list(target):
        same = pa.large_list if _types.is_large_list(target) else pa.list_
        array = array.cast(same(array.type.value_field))
        if array.type.equals(target):
            return array
    first, last = _bounds(array)
    values = _cast(array.values.slice(first, last - first), target.value_type)
    offsets = pc.subtract(array.offsets, pa.scalar(first, array.offsets.type))
    return type(array).from_arrays(offsets, values, type=target, mask=_mask(array))


def _cast_map(array: Any, target: Any) -> pa.Array:
    first, last = _bounds(array)
    keys = _cast(array.keys.slice(first, last - first), target.key_type)
    items = _cast(array.items.slice(first, last - first), target.item_type)
    offsets = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_mask(array))


def _bounds(array: Any) -> tuple[int, int]:
    offsets = array.offsets
    return (offsets[0].as_py(), offsets[len(offsets) - 1].as_py()) if len(array) else (0, 0)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
