"""Rows as the browser gets them: JSON values in the order of the columns, none of them long.

A value that is longer than the bound comes cut: `{"$cut": "<its beginning>", "size": n}`. Whole
numbers that JavaScript cannot hold come as text. Bytes come as text where they are UTF-8 without
control characters, else as `{"$hex": "<beginning>", "size": n}`.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.exchange.json_values import to_json
from virta.exchange.schema_text import text_of

CELL_LIMIT = 256
# The bound of a value that is looked at alone; more than that comes on demand.
VALUE_LIMIT = 4096
_SAFE_INTEGER = (1 << 53) - 1

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def dump(value: Any) -> str:
    """JSON, as short as it gets."""
    return _dump(value)


def columns_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """The columns, as the browser wants to know them."""
    return [
        {
            "name": field.name,
            "type": str(field.type),
            "said": text_of(field).removesuffix("?"),
            "nullable": field.nullable,
            "number": _is_number(field.type),
            "binary": is_binary(field.type),
        }
        for field in schema
    ]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def encode_rows(batch: pa.RecordBatch, limit: int = CELL_LIMIT) -> list[list[Any]]:
    """`[offset, microseconds, values …]` for each row of a batch with the leading columns."""
    offsets = batch.column(0).to_pylist()
    stamps = batch.column(1).cast(pa.int64()).to_pylist()
    values = [encode_column(column, limit) for column in batch.columns[2:]]
    return [list(row) for row in zip(offsets, stamps, *values, strict=True)]


def encode_column(column: pa.Array, limit: int = CELL_LIMIT) -> list[Any]:
    """A column as JSON values, long ones cut."""
    kind = column.type
    if _is_text(kind):
        return _texts(column, limit)
    if is_binary(kind):
        return [None if value is None else encode_bytes(value, limit) for value in column.to_pylist()]
    values = to_json(column)
    if pa.types.is_integer(kind):
        if kind.bit_width == 64:
            return [_whole(value) for value in values]
        return values
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return [_short(value, limit) for value in values]
    return values


def _texts(column: pa.Array, limit: int) -> list[Any]:
    sizes = pc.binary_length(column)
    longest = pc.max(sizes).as_py()
    if longest is None or longest <= limit:
        return list(column.to_pylist())
    cut = pc.utf8_slice_codeunits(column, 0, limit).to_pylist()
    return [
        {"$cut": text, "size": size} if text is not None and size > limit else text
        for text, size in zip(cut, sizes.to_pylist(), strict=True)
    ]


def encode_bytes(value: bytes, limit: int) -> Any:
    """Bytes as text where they are text, else their beginning in hexadecimal digits."""
    size, head = len(value), value[:limit]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # a sign that the cut went through the middle of is no reason to call it bytes
        if size <= limit or error.start < len(head) - 3:
            return {"$hex": head[: limit // 2].hex(), "size": size}
        text = head[: error.start].decode()
    if any(ord(sign) < 32 and sign not in "\t\r\n" for sign in text):
        return {"$hex": head[: limit // 2].hex(), "size": size}
    return {"$cut": text, "size": size} if size > limit else text


def _whole(value: Any) -> Any:
    if isinstance(value, int) and not -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
        return str(value)
    return value


def _short(value: Any, limit: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else dump(value)
    if len(text) <= limit:
        return value
    return {"$cut": text[:limit], "size": len(text.encode())}
