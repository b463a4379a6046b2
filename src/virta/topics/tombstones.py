"""Tombstones: rows that say that their key is gone. All columns but the key's are null, zero or empty."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

from virta.metadata.schemas import DELETED


def tombstones(keys: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a schema with `_deleted` that delete these keys."""
    columns = [_column(field, keys) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, keys: pa.RecordBatch) -> pa.Array:
    if field.name == DELETED:
        return pa.repeat(pa.scalar(True), keys.num_rows)
    place = keys.schema.get_field_index(field.name)
    if place >= 0:
        return keys.column(place)
    if field.nullable:
        return pa.nulls(keys.num_rows, field.type)
    return empties(field.type, keys.num_rows)


def empties(kind: pa.DataType, count: int) -> pa.Array:
    """A column of zeros, or of whatever of its type holds nothing."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, empties(kind.storage_type, count))
    if pa.types.is_dictionary(kind):
        values = empties(kind.value_type, 1)
        indices = pa.array([0] * count, kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)
    return pa.array([_empty(kind)] * count, kind)


def _empty(kind: pa.DataType) -> Any:
    """The Python value that pyarrow makes the zero of."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_decimal(kind):
        return decimal.Decimal(0)
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return {field.name: None if field.nullable else _empty(field.type) for field in fields}
    if pa.types.is_fixed_size_list(kind):
        inside = kind.value_field
        return [None if inside.nullable else _empty(inside.type)] * kind.list_size
    if pa.types.is_nested(kind):
        return []
    return datetime.timedelta(0) if pa.types.is_duration(kind) else 0
