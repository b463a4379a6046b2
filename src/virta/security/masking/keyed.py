"""Keyed hashes of whole columns: each distinct value once, the same value always the same.

A value is hashed as its canonical bytes, so the same number has the same pseudonym in an
int32 and in an int64 column, and the same text in `string` and `large_string`:

    text, bytes              as they are (text in UTF-8)
    integers, bool           int64, little-endian
    float                    float64; -0.0 is 0.0, every NaN is one
    date, time, timestamp,   int64: days, or microseconds
    duration
    decimal                  its text

Kinds of values do not share pseudonyms: the key of each is another (`MaskingKey.purpose`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3
from numpy.typing import NDArray

from virta.errors import UsageError
from virta.security.masking.blake3_blocks import BLOCK_BYTES, digests
from virta.security.masking.key import MaskingKey

DIGEST_BYTES = 32
_HEX = np.array([[ord(sign) for sign in f"{byte:02x}"] for byte in range(256)], np.uint8)

Digests = NDArray[np.uint8]


def is_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)
    )


def is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_binary_view(type_)
    )


def kind_of(type_: pa.DataType) -> str:
    """Values of one kind share their pseudonyms."""
    kinds: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
        (is_text, "text"),
        (is_bytes, "bytes"),
        (lambda each: pa.types.is_integer(each) or pa.types.is_boolean(each), "integer"),
        (pa.types.is_floating, "float"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
        (lambda each: pa.types.is_time(each) or pa.types.is_duration(each), "time"),
        (pa.types.is_decimal, "decimal"),
    )
    for fits, kind in kinds:
        if fits(type_):
            return kind
    raise UsageError(
        f"values of type {type_} cannot be hashed",
        hint="for a struct, name its fields (address.street); else drop, null or keep the column",
    )


def mapped(array: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The array with each distinct value changed once; null stays null."""
    encoded = array.dictionary_encode() if not pa.types.is_dictionary(array.type) else array
    if len(encoded.dictionary) == 0:
        return pa.nulls(len(array), change(encoded.dictionary).type)
    changed = change(encoded.dictionary)
    return changed.take(encoded.indices)


class KeyedHash:
    """Digests of values under the key of one purpose."""

    def __init__(self, key: MaskingKey, purpose: str, domain: str = "") -> None:
        self._key = key
        self._words = (purpose, domain)

    def __call__(self, values: pa.Array) -> Digests:
        """One digest of 32 bytes for each value; what a null's is has no meaning."""
        key = self._key.purpose(*self._words, kind_of(values.type))
        if len(values) == 0:
            return np.empty((0, DIGEST_BYTES), np.uint8)
        if is_text(values.type) or is_bytes(values.type):
            return _of_bytes(key, values.cast(pa.large_binary()))
        if pa.types.is_decimal(values.type):
            return _of_bytes(key, values.cast(pa.string()).cast(pa.large_binary()))
        return _of_numbers(key, _numbers(values))

    def one(self, value: bytes, size: int = DIGEST_BYTES) -> bytes:
        """The digest of one text, as long as wanted."""
        return blake3(value, key=self._key.purpose(*self._words, "text")).digest(size)


def _numbers(values: pa.Array) -> NDArray[Any]:
    type_ = values.type
    if pa.types.is_floating(type_):
        floats = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        return np.where(np.isnan(floats), np.nan, floats).astype("<f8")
    if pa.types.is_date(type_):
        whole = values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_timestamp(type_):
        whole = values.cast(pa.timestamp("us", type_.tz), safe=False).cast(pa.int64())
    elif pa.types.is_time(type_):
        whole = values.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif pa.types.is_duration(type_):
        whole = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif pa.types.is_boolean(type_):
        whole = values.cast(pa.int8()).cast(pa.int64())
    else:
        whole = values.cast(pa.int64(), safe=False)
    return whole.fill_null(0).to_numpy(zero_copy_only=False).astype("<i8")  # type: ignore[no-any-return]


def _of_numbers(key: bytes, numbers: NDArray[Any]) -> Digests:
    blocks = np.zeros((len(numbers), BLOCK_BYTES), np.uint8)
    blocks[:, :8] = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8)
    return digests(key, blocks, np.full(len(numbers), 8))


def _of_bytes(key: bytes, values: pa.Array) -> Digests:
    """Short values all at once, long ones one by one."""
    _, place, data = values.buffers()
    offsets = np.frombuffer(place, np.int64)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(offsets)
    flat = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    result = np.empty((len(values), DIGEST_BYTES), np.uint8)
    short = np.flatnonzero(lengths <= BLOCK_BYTES)
    result[short] = digests(key, _padded(flat, offsets[short], lengths[short]), lengths[short])
    for at in np.flatnonzero(lengths > BLOCK_BYTES).tolist():
        value = flat[offsets[at] : offsets[at + 1]]
        result[at] = np.frombuffer(blake3(value.tobytes(), key=key).digest(), np.uint8)
    return result


def _padded(flat: Digests, starts: NDArray[Any], lengths: NDArray[Any]) -> Digests:
    """Values of at most 64 bytes in rows of 64, zeros behind them."""
    blocks = np.zeros((len(starts), BLOCK_BYTES), np.uint8)
    rows = np.repeat(np.arange(len(starts)), lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    blocks.reshape(-1)[rows * BLOCK_BYTES + within] = flat[np.repeat(starts, lengths) + within]
    return blocks


def hexadecimal(found: Digests, size: int) -> pa.Array:
    """The first `size` bytes of each digest as text."""
    text = np.ascontiguousarray(_HEX[found[:, :size]]).reshape(len(found), 2 * size)
    places = np.arange(len(found) + 1, dtype=np.int32) * (2 * size)
    return pa.StringArray.from_buffers(len(found), pa.py_buffer(places), pa.py_buffer(text))


def whole_numbers(found: Digests) -> NDArray[np.uint64]:
    """The first 8 bytes of each digest as a number."""
    return np.ascontiguousarray(found[:, :8]).view("<u8").reshape(-1)


def shares(found: Digests) -> NDArray[np.float64]:
    """Each digest as a number from 0 up to, not including, 1."""
    return (whole_numbers(found) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
