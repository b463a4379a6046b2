"""Whether Arrow data that was not hashed can be read without leaving its buffers.

Reads of single columns do not hash blocks, since that would read what is to be skipped. Values
may then be wrong where a disk has changed bits (`verify` finds it), but Arrow believes offsets
and indices as they are, and wrong ones would take it out of its memory. So these are looked at:
they lie inside, and never fall. Cheap beside reading the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import Corrupt


def check_structure(columns: Iterable[pa.Array]) -> None:
    """Corrupt where a value of these columns would lie outside of its buffer."""
    for column in columns:
        try:
            column.validate()  # buffers are there and as large as the first and last offsets say
        except pa.ArrowException as error:
            raise Corrupt(f"Arrow cannot read the block: {error}") from error
        if len(column):
            _check(column)


def _check(array: Any) -> None:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        _check(array.storage)
    elif pa.types.is_dictionary(kind):
        _check_indices(array)
        check_structure((array.dictionary,))
    elif pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _check(array.field(place))
    elif pa.types.is_fixed_size_list(kind):
        _check(array.values)
    elif pa.types.is_map(kind):
        _check_offsets(array, np.int32)
        _check(array.keys)
        _check(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check_offsets(array, np.int64 if pa.types.is_large_list(kind) else np.int32)
        _check(array.values)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _check_offsets(array, np.int32)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        _check_offsets(array, np.int64)


def _check_offsets(array: pa.Array, width: type[Any]) -> None:
    if not len(array):
        return
    offsets = np.frombuffer(
        array.buffers()[1], width, len(array) + 1, array.offset * np.dtype(width).itemsize
    )
    if bool((offsets[1:] < offsets[:-1]).any()):
        raise Corrupt("Arrow cannot read the block: the offsets of a column fall")


def _check_indices(array: pa.DictionaryArray) -> None:
    bounds = pc.min_max(array.indices)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and not 0 <= least <= greatest < len(array.dictionary):
        raise Corrupt("Arrow cannot read the block: an index is not in its dictionary")
