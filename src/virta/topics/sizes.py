"""How large rows are, and how batches are cut so that no block grows too large.

Two measures, both decoded bytes and neither counting padding:

- what a row *holds*: the bytes of its texts, byte strings and lists. This is what the
  row limit is about; numbers and times cannot be large and do not count, nor do key
  columns, which have a limit of their own. So one value of exactly the limit fits,
  whatever small columns stand beside it.
- what a row *takes* in a block: all of it, offsets and null bits included.

Both are upper bounds where Arrow keeps bytes under nulls. Knows Arrow arrays, and not
whose they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import TooLarge

Sizes = npt.NDArray[np.int64]

BLOCK_LIMIT_BYTES = 16 * 1024 * 1024
KEY_LIMIT_BYTES = 1024
ROW_LIMIT_BYTES = 10 * 1024 * 1024

# `_offset` and `_timestamp`, which every stored row has besides.
_POSITION_BYTES = 16
# Arrow pads each buffer to 64 bytes; a column has at most three of them, its message a header.
_COLUMN_PADDING_BYTES = 256
# A dictionary smaller than this is not worth cutting down to the values in use.
_SMALL_DICTIONARY_BYTES = 4096


# -- measuring ----------------------------------------------------------------------------


def element_sizes(array: pa.Array) -> Sizes:
    """The bytes of each element: its own, and of all it holds."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return element_sizes(array.storage)
    if is_binary_like(kind):
        return binary_lengths(array)
    if pa.types.is_dictionary(kind):
        return _dictionary_sizes(array)
    if pa.types.is_struct(kind):
        parts = [element_sizes(array.field(at)) for at in range(kind.num_fields)]
        return np.asarray(np.sum(parts, axis=0), dtype=np.int64)
    if pa.types.is_fixed_size_list(kind):
        return _fixed_list_sizes(array)
    if pa.types.is_nested(kind):
        return _list_sizes(array)
    return np.full(len(array), fixed_width(kind), dtype=np.int64)


def fixed_width(kind: pa.DataType) -> int:
    """The bytes one value of a plain type takes; a bool counts as a whole byte."""
    return max(1, int(kind.bit_width) // 8)


def is_binary_like(kind: pa.DataType) -> bool:
    """Texts and byte strings of any length."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _offset_width(kind: pa.DataType) -> np.dtype[Any] | None:
    """How the offsets of texts or byte strings are stored; None for other types."""
    if not is_binary_like(kind):
        return None
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return np.dtype(np.int64 if wide else np.int32)


def is_variable(kind: pa.DataType) -> bool:
    """Whether values of this type differ in size."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_variable(kind.storage_type)
    return is_binary_like(kind) or bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


def binary_lengths(array: pa.Array) -> Sizes:
    """The lengths of texts or byte strings, read from their offsets."""
    offsets = array.buffers()[1]
    width = _offset_width(array.type)
    if not len(array) or offsets is None or width is None:
        return np.zeros(len(array), dtype=np.int64)
    ends = np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize)
    return np.asarray(ends[1:] - ends[:-1], dtype=np.int64)


def _dictionary_sizes(array: pa.DictionaryArray) -> Sizes:
    if not len(array.dictionary):
        return np.zeros(len(array), dtype=np.int64)
    indices = array.indices.fill_null(0) if array.indices.null_count else array.indices
    sizes = element_sizes(array.dictionary)[indices.to_numpy(zero_copy_only=False)]
    return np.asarray(sizes + fixed_width(array.type.index_type), dtype=np.int64)


def _list_sizes(array: Any) -> Sizes:
    """Lists and maps: the difference of running sums over the elements."""
    if pa.types.is_map(array.type):
        elements = element_sizes(array.keys) + element_sizes(array.items)
    else:
        elements = element_sizes(array.values)
    running = np.concatenate(([0], np.cumsum(elements, dtype=np.int64)))
    ends = array.offsets.to_numpy(zero_copy_only=False)
    return np.asarray(np.diff(running[ends]), dtype=np.int64)


def _fixed_list_sizes(array: pa.FixedSizeListArray) -> Sizes:
    size = array.type.list_size
    inside = array.values.slice(array.offset * size, len(array) * size)
    return np.asarray(element_sizes(inside).reshape(len(array), size).sum(axis=1), dtype=np.int64)


def _taken(array: pa.Array) -> Sizes:
    """The bytes each row takes in a block, of one column."""
    offsets = 8 if is_variable(array.type) else 0
    return np.asarray(element_sizes(array) + (offsets + 1), dtype=np.int64)


# -- limits -------------------------------------------------------------------------------


class Limits:
    """What one row and its keys may hold; the check costs next to nothing for ordinary rows."""

    __slots__ = ("_key_width", "_keys", "_values", "key_limit_bytes", "row_limit_bytes")

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        row_limit_bytes: int = ROW_LIMIT_BYTES,
        key_limit_bytes: int = KEY_LIMIT_BYTES,
    ) -> None:
        self.row_limit_bytes = row_limit_bytes
        self.key_limit_bytes = key_limit_bytes
        self._keys = [at for at, field in enumerate(schema) if field.name in keys]
        self._key_width = _offset_width(schema.field(self._keys[0]).type) if len(self._keys) == 1 else None
        self._values = [
            at for at, field in enumerate(schema) if is_variable(field.type) and field.name not in keys
        ]

    def check(self, batch: pa.RecordBatch, *, first_row: int = 0) -> None:
        """Refuse the batch if one of its rows is over a limit."""
        # no row can hold more than all rows together
        total = batch.get_total_buffer_size()
        if total > self.key_limit_bytes and self._keys and not self._keys_are_small(batch):
            self._check(batch, self._keys, self.key_limit_bytes, "key", first_row)
        if total > self.row_limit_bytes and self._values:
            self._check(batch, self._values, self.row_limit_bytes, "row", first_row)

    def _keys_are_small(self, batch: pa.RecordBatch) -> bool:
        """The short way for one key column of texts or bytes; False says nothing."""
        width = self._key_width
        if width is None or not batch.num_rows:
            return False
        column = batch.column(self._keys[0])
        offsets = column.buffers()[1]
        if offsets is None:
            return False
        ends = np.frombuffer(offsets, width, len(column) + 1, column.offset * width.itemsize)
        return bool((ends[1:] - ends[:-1]).max() <= self.key_limit_bytes)

    def _check(
        self, batch: pa.RecordBatch, places: Sequence[int], limit: int, what: str, first_row: int
    ) -> None:
        columns = [batch.column(at) for at in places]
        if sum(column.get_total_buffer_size() for column in columns) <= limit:
            return
        sizes = [_held(column) for column in columns]
        total = sizes[0] if len(sizes) == 1 else np.sum(sizes, axis=0)
        if len(total) and total.max() > limit:
            row = int(np.argmax(total > limit))
            largest = max(range(len(places)), key=lambda at: int(sizes[at][row]))
            self._refuse(
                batch.schema.field(places[largest]).name,
                first_row + row,
                int(total[row]),
                limit,
                what,
            )

    def _refuse(self, column: str, row: int, size: int, limit: int, what: str) -> None:
        raise TooLarge(
            f"row {row}: the {what} holds {size:,} bytes, more than the {limit:,} allowed; "
            f"most of it is in column {column!r}",
            column=column,
            row=row,
            size=size,
            limit=limit,
            hint="split the row, or store large values elsewhere and append where they are",
        )


def _held(column: pa.Array) -> Sizes:
    """What each row holds; bytes under nulls do not count where they could refuse a row."""
    sizes = element_sizes(column)
    if column.null_count:
        sizes = np.where(column.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
    return sizes


# -- cutting ------------------------------------------------------------------------------


def split(batch: pa.RecordBatch, max_bytes: int = BLOCK_LIMIT_BYTES) -> list[pa.RecordBatch]:
    """The batch in pieces that each fit a block; a single row too large is its own piece."""
    overhead = batch.num_rows * _POSITION_BYTES + batch.num_columns * _COLUMN_PADDING_BYTES
    if batch.get_total_buffer_size() + overhead <= max_bytes or batch.num_rows <= 1:
        return [_with_small_dictionaries(batch)]
    if batch.nbytes + overhead <= max_bytes:  # a slice of something larger
        return [_with_small_dictionaries(batch)]
    budget = max(1, max_bytes - batch.num_columns * _COLUMN_PADDING_BYTES)
    running = np.cumsum(np.sum([_taken(column) for column in batch.columns], axis=0))
    running += np.arange(1, batch.num_rows + 1) * _POSITION_BYTES
    return [
        _with_small_dictionaries(batch.slice(start, end - start)) for start, end in _cuts(running, budget)
    ]


def _cuts(running: Sizes, budget: int) -> list[tuple[int, int]]:
    """Ranges of rows of at most `budget` bytes, from the running sum of their sizes."""
    cuts: list[tuple[int, int]] = []
    start, before = 0, 0
    while start < len(running):
        end = int(np.searchsorted(running, before + budget, side="right"))
        end = max(end, start + 1)
        cuts.append((start, end))
        start, before = end, int(running[end - 1])
    return cuts


def _with_small_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each block carries its dictionaries whole, so leave out what its rows do not use."""
    for at, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type):
            column = compacted(batch.column(at))
            if column is not batch.column(at):
                batch = batch.set_column(at, field, column)
    return batch


def compacted(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values with a dictionary of only those in use, in the order they were."""
    dictionary = array.dictionary
    if len(dictionary) <= len(array) or dictionary.nbytes <= _SMALL_DICTIONARY_BYTES:
        return array
    used = pc.unique(array.indices).drop_null().sort()
    indices = pc.index_in(array.indices, value_set=used).cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, dictionary.take(used), ordered=array.type.ordered)
