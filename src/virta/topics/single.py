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

from virta.metadata.schemas import DELETED, is_untyped
from virta.storage import encode
from virta.storage.block import Prepared

# Larger values gain nothing here, and their limits are checked by the converter.
_SMALL = 32 * 1024
_KEY_SMALL = 1024
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

    def __init__(self, field: pa.Field, limit: int) -> None:
        self.name: str = field.name
        self.take = _FIXED.get(field.type) or _VARIABLE.get(field.type)
        self.variable = field.type in _VARIABLE
        self.limit = limit if self.variable else _SMALL
        self.null = _null_layout(field) if field.nullable else None


class _Shape:
    """What blocks of rows with equal sizes share: the message's head, and what lies between the values."""

    __slots__ = ("between", "fields_at", "head", "size")

    def __init__(self, prepared: Prepared, between: list[bytes]) -> None:
        self.head = bytes(prepared.head)
        self.fields_at = prepared.fields_at
        self.size = prepared.size
        self.between = between


# Rows of one producer have few sizes; one that has more gains little from remembering.
_SHAPE_LIMIT = 4096


class SingleRow:
    """Encodes single rows of one schema."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], row_limit_bytes: int) -> None:
        keys = keys or (("key",) if is_untyped(schema) else ())
        # a row that deletes is not plain: here `_deleted` is a constant before the columns
        self._says_deleted = schema.names[0] == DELETED
        if self._says_deleted:
            schema = pa.schema(list(schema)[1:], metadata=schema.metadata)
        # values of this size never reach the row's limit, however many columns there are
        small = min(_SMALL, row_limit_bytes // max(1, len(schema)))
        self._columns = [_Column(field, _KEY_SMALL if field.name in keys else small) for field in schema]
        # composite keys have one limit together, which the converter knows
        self.usable = all(column.take or column.null for column in self._columns) and len(keys) <= 1
        self._plan = [(column.name, column.take, column.limit) for column in self._columns]
        self._shapes: dict[tuple[int, ...], _Shape] = {}

    def prepare(self, row: Mapping[str, Any]) -> Prepared | None:
        """The block of this row, or None when the row is not plain."""
        values: list[bytes] = []
        sizes: list[int] = []
        left = len(row)
        for name, take, limit in self._plan:
            value = row.get(name)
            if value is None:
                if name in row:
                    left -= 1
                sizes.append(-1)
                continue
            if take is None:
                return None
            data = take(value)
            if data is None:
                return None
            size = len(data)
            if size > limit:
                return None
            left -= 1
            values.append(data)
            sizes.append(size)
        if left:
            return None
        key = tuple(sizes)
        shape = self._shapes.get(key) or self._remember(key)
        if shape is None:
            return None
        parts = shape.between.copy()
        parts[1::2] = values
        return Prepared(1, b"", shape.head, shape.fields_at, parts, None, 0, shape.size)

    def _remember(self, sizes: tuple[int, ...]) -> _Shape | None:
        """Lay out a row with values of these sizes; -1 stands for null."""
        at = _LEADING
        numbers: list[int] = []
        nodes: list[bytes] = []
        between: list[bytes] = []
        pending = b""  # bytes since the last value
        if self._says_deleted:
            nodes.append(_PRESENT)
            numbers += (at, 0, at, 8)
            pending = bytes(8)
            at += 8
        for column, size in zip(self._columns, sizes, strict=True):
            if size < 0:
                if column.null is None:
                    return None
                nodes.append(column.null[0])
                for start, length in column.null[1]:
                    numbers += (at + start, length)
                pending += column.null[2]
                at += len(column.null[2])
                continue
            nodes.append(_PRESENT)
            if column.variable:
                numbers += (at, 0, at, 8, at + 8, size)
                pad = bytes(-size % 8)
                between += (pending + _pack_offsets(0, size), b"")
                pending = pad
                at += 8 + size + len(pad)
            else:
                numbers += (at, 0, at, 8)
                between += (pending, b"")
                pending = b""
                at += 8
        between.append(pending)
        prepared = encode.assemble(
            rows=1,
            nodes=b"".join(nodes),
            buffers=struct.pack(f"<{len(numbers)}q", *numbers),
            parts=(bytes(at - _LEADING),),
        )
        shape = _Shape(prepared, between)
        if len(self._shapes) >= _SHAPE_LIMIT:
            self._shapes.clear()
        self._shapes[sizes] = shape
        return shape


_PRESENT = struct.pack("<qq", 1, 0)


def _null_layout(field: pa.Field) -> tuple[bytes, list[tuple[int, int]], bytes] | None:
    """Nodes, buffers and body of one null of this column, as pyarrow writes them."""
    if pa.types.is_dictionary(field.type):
        return None
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], schema=pa.schema([field]))
    layout, body = encode.layout_of(batch)
    if layout.variadic:
        return None
    numbers = struct.unpack(f"<{len(layout.buffers) // 8}q", layout.buffers)
    return layout.nodes, list(zip(numbers[::2], numbers[1::2], strict=True)), body
