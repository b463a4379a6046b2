"""One row into a block, without Arrow's builders: for rows that are appended one at a time.

The message of a one-row batch has the same shape for every row of a schema; only a few
numbers in it and the values change. They are put together here by hand. Whatever is not
plain (another type, a large value, a column too many) is left to `RowConverter`, which
takes it or says what is wrong with it; so this file refuses nothing, it only declines.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from virta.storage import block
from virta.storage.block import Prepared

# Larger values gain nothing here, and their limits are checked by the converter.
_SMALL = 32 * 1024
_KEY_SMALL = 1024
_PAD = [bytes(-size % 8) for size in range(8)]
_LEADING = 16  # bytes of _offset and _timestamp before the first column

_pack_i64 = struct.Struct("<q").pack
_pack_f64 = struct.Struct("<d").pack
_pack_offsets = struct.Struct("<ii").pack
_I64 = (-(1 << 63), (1 << 63) - 1)


def _whole_number(value: Any) -> bytes | None:
    if type(value) is int and _I64[0] <= value <= _I64[1]:
        return _pack_i64(value)
    return None


def _float(value: Any) -> bytes | None:
    return _pack_f64(value) if type(value) is float else None


def _bytes(value: Any) -> bytes | None:
    return value if type(value) is bytes and len(value) <= _SMALL else None


def _text(value: Any) -> bytes | None:
    if type(value) is str and len(value) <= _SMALL:
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None
    return None


_FIXED: dict[pa.DataType, Callable[[Any], bytes | None]] = {pa.int64(): _whole_number, pa.float64(): _float}
_VARIABLE: dict[pa.DataType, Callable[[Any], bytes | None]] = {pa.binary(): _bytes, pa.string(): _text}


class _Column:
    __slots__ = ("limit", "name", "null", "take", "variable")

    def __init__(self, field: pa.Field, *, is_key: bool) -> None:
        self.name: str = field.name
        self.take = _FIXED.get(field.type) or _VARIABLE.get(field.type)
        self.variable = field.type in _VARIABLE
        self.limit = _KEY_SMALL if is_key else _SMALL
        self.null = _null_layout(field) if field.nullable else None


class SingleRow:
    """Encodes single rows of one schema."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        self._columns = [_Column(field, is_key=field.name in keys) for field in schema]
        # composite keys have one limit together, which the converter knows
        self.usable = all(column.take or column.null for column in self._columns) and len(keys) <= 1
        self._node_count = sum(_node_count(field.type) for field in schema)

    def prepare(self, row: Mapping[str, Any]) -> Prepared | None:
        """The block of this row, or None when the row is not plain."""
        get = row.get
        left = len(row)
        at = _LEADING
        numbers: list[int] = []
        nodes: list[bytes] = []
        parts: list[bytes] = []
        for column in self._columns:
            value = get(column.name)
            if value is None:
                null = column.null
                if null is None:
                    return None
                if column.name in row:
                    left -= 1
                nodes.append(null[0])
                for start, length in null[1]:
                    numbers += (at + start, length)
                parts.append(null[2])
                at += len(null[2])
                continue
            if column.take is None:
                return None
            data = column.take(value)
            if data is None:
                return None
            left -= 1
            size = len(data)
            nodes.append(_PRESENT)
            if column.variable:
                if size > column.limit:
                    return None
                numbers += (at, 0, at, 8, at + 8, size)
                pad = _PAD[size & 7]
                parts += (_pack_offsets(0, size), data, pad)
                at += 8 + size + len(pad)
            else:
                numbers += (at, 0, at, 8)
                parts.append(data)
                at += 8
        if left:
            return None
        return block.assemble(
            rows=1,
            nodes=b"".join(nodes),
            buffers=struct.pack(f"<{len(numbers)}q", *numbers),
            body=b"".join(parts),
        )


_PRESENT = struct.pack("<qq", 1, 0)


def _node_count(kind: pa.DataType) -> int:
    return 1 + sum(_node_count(kind.field(index).type) for index in range(kind.num_fields))


def _null_layout(field: pa.Field) -> tuple[bytes, list[tuple[int, int]], bytes] | None:
    """Nodes, buffers and body of one null of this column, as pyarrow writes them."""
    if pa.types.is_dictionary(field.type):
        return None
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], schema=pa.schema([field]))
    layout, body = block.layout_of(batch)
    if layout.variadic:
        return None
    numbers = struct.unpack(f"<{len(layout.buffers) // 8}q", layout.buffers)
    return layout.nodes, list(zip(numbers[::2], numbers[1::2], strict=True)), body
