"""One row on its way in, when its like was taken before.

A client that sends rows one at a time sends the same message over and over, with other
values in it. Once a message with one row was read and checked in full (`intake`), the next
one with the same head differs from it in nothing but the bytes of its values: every other
byte is held against the first one's. What is left to check are texts, which must be
UTF-8. Sizes stand in the head, so limits that held hold again.

What is not known here is declined, never refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from virta.storage import encode, message
from virta.storage.block import Prepared

# Types whose every value of a given size is valid; of texts, those that are UTF-8.
_FREE = frozenset((pa.int64(), pa.float64(), pa.binary()))
_TEXT = pa.string()
# Rows of one producer have few sizes; a client that sends more gains little from being remembered.
_HEADS_LIMIT = 4096


class _Known:
    """What all messages with one head share."""

    __slots__ = ("constants", "fields_at", "head", "length", "size", "texts")

    def __init__(
        self,
        prepared: Prepared,
        length: int,
        constants: list[tuple[int, int, bytes]],
        texts: list[tuple[int, int]],
    ) -> None:
        self.head = bytes(prepared.head)
        self.fields_at = prepared.fields_at
        self.size = prepared.size
        self.length = length
        self.constants = constants
        self.texts = texts


class SingleRows:
    """Heads of one-row messages that were taken before, for one form of a topic."""

    __slots__ = ("_columns", "_head_size", "_heads")

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = [_Column(field) for field in columns]
        self._heads: dict[bytes, _Known] = {}
        self._head_size = 0

    def take(self, body: memoryview) -> Prepared | None:
        """The row, ready to be stamped; None when it has to be looked at in full."""
        head_size = self._head_size
        known = self._heads.get(bytes(body[:head_size]))
        if known is None or len(body) != known.length:
            return None
        columns = bytes(body[head_size:])
        for start, end, expected in known.constants:
            if columns[start:end] != expected:
                return None
        for start, end in known.texts:
            try:
                columns[start:end].decode()
            except UnicodeDecodeError:
                return None
        return Prepared(1, b"", known.head, known.fields_at, (columns,), None, 0, known.size)

    def remember(
        self, body: memoryview, head_size: int, layout: message.BatchLayout, prepared: Prepared
    ) -> None:
        """The message was taken the long way: what follows it need not be."""
        if layout.rows != 1 or layout.codec is not None or prepared.dictionaries:
            return
        if len(self._heads) >= _HEADS_LIMIT or head_size != self._head_size:
            self._heads.clear()
            self._head_size = head_size
        columns = bytes(body[head_size:])
        values = sorted(self._values(layout))
        if any(end > following for (_, end, _), (following, _, _) in pairwise(values)):
            return  # values that share bytes are for the long way
        constants, at = [], 0
        for start, end, _ in values:
            constants.append((at, start, columns[at:start]))
            at = end
        constants.append((at, len(columns), columns[at:]))
        constants = [(start, end, expected) for start, end, expected in constants if end > start]
        texts = [(start, end) for start, end, kind in values if kind == _TEXT]
        self._heads[bytes(body[:head_size])] = _Known(prepared, len(body), constants, texts)

    def _values(self, layout: message.BatchLayout) -> Iterator[tuple[int, int, pa.DataType]]:
        """Where the bytes of each value lie; a null has none, and what is nested stays as it was."""
        buffers = list(struct.iter_unpack("<qq", layout.buffers))
        nodes = list(struct.iter_unpack("<qq", layout.nodes))
        at = node = 0
        for column in self._columns:
            start, length = buffers[at + column.buffers - 1]
            if column.width is not None:
                length = min(length, column.width)
            if column.is_free and not nodes[node][1] and length > 0:
                yield start, start + length, column.kind
            at += column.buffers
            node += column.nodes


class _Column:
    """How many nodes and buffers a column takes, and whether its values may be any bytes."""

    __slots__ = ("buffers", "is_free", "kind", "nodes", "width")

    def __init__(self, field: pa.Field) -> None:
        empty, _ = encode.layout_of(pa.RecordBatch.from_pylist([], schema=pa.schema([field])))
        self.kind = field.type
        self.nodes = len(empty.nodes) // 16
        self.buffers = len(empty.buffers) // 16
        self.is_free = field.type in _FREE or field.type == _TEXT
        # numbers are followed by padding; texts and bytes are as long as their buffer says
        self.width = 8 if field.type in (pa.int64(), pa.float64()) else None
