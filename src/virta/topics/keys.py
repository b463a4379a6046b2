"""What a key is: when two are the same, its canonical bytes, and its 64-bit hash.

A key is the values of a topic's key columns, in the order of `config.keys`. It is judged
by value and not by how it is stored: a column that was widened (int32 to int64, a
dictionary to plain text, a decimal of more digits) keeps the keys it had.

Every value has one of four forms:

    word    8 bytes   bool, integers, dates, times, timestamps, durations, floats
    bytes             text (UTF-8), bytes, UUIDs, decimals (as text)
    group             a struct: its fields in order; the key itself is the group of its columns
    items             a list: its elements in order

    word of …    bool: 0 or 1 · integer: two's complement, 64 bits · date: milliseconds ·
                 time: nanoseconds · timestamp, duration: the count of its own unit ·
                 float: its bits as a double, where −0.0 is 0.0 and every NaN is
                 0x7ff8000000000000. So NaN is a key like any other, and −0.0 is 0.0.
    a decimal is its shortest plain text: "-12.5", "100", "0"

    canonical bytes   null: 00 · else 01, then a word: 8 bytes little-endian · bytes: length
                      as u32, the bytes · group: its fields · items: count as u32, elements

    mix(x)       x ^= x >> 33; x *= 0xff51afd7ed558ccd; x ^= x >> 33;
                 x *= 0xc4ceb9fe1a85ec53; x ^= x >> 33                     (modulo 2^64)
    fold(s, w…)  h = mix(s); for each w: h = mix(h ^ w)
    hash         null: NULL · word w: mix(w ^ WORD) · bytes of length n: fold(BYTES ^ n, its
                 bytes as words, little-endian, the last filled up with zeros) · group of n
                 fields: fold(GROUP ^ n, their hashes) · items: fold(ITEMS ^ n, their hashes)

The hash spreads, it does not protect: whoever chooses keys can make hashes collide, so
whoever compares hashes compares keys as well (`Form.same`), unless the hash is exact.
Stored indexes and the place of a key in a partition depend on every line above: it does
not change. Knows Arrow arrays; no topics, no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = Indices | slice

_WORD = 0x9E3779B97F4A7C15
_BYTES = 0xD1B54A32D192ED03
_GROUP = 0x8CB92BA72F3D8DD7
_ITEMS = 0xAEF17502108EF2D9
_NULL = 0xF1357AEA2E62A9C5
_FACTORS = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_ALL = (1 << 64) - 1
_NAN_BITS = np.uint64(0x7FF8000000000000)

# So many rows are hashed at once: their words stay in the processor's cache.
_ROWS_AT_ONCE = 32_768

# What remains of the last word of 1 to 8 bytes.
_LAST = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


# -- hashing words ------------------------------------------------------------------------------


def _mix(words: Words) -> Words:
    """`mix` of each, in place."""
    words ^= words >> np.uint64(33)
    words *= np.uint64(_FACTORS[0])
    words ^= words >> np.uint64(33)
    words *= np.uint64(_FACTORS[1])
    words ^= words >> np.uint64(33)
    return words


def _mix_one(word: int) -> int:
    word ^= word >> 33
    word = word * 0xFF51AFD7ED558CCD & _ALL
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 & _ALL
    return word ^ word >> 33


def _fold(seed: int, sizes: Indices, counts: Indices, word_at: Callable[[Rows, int], Words]) -> Words:
    """`fold` of each row's words, of which it has `counts`, from the seed and its size."""
    hashes = _mix(sizes.astype(np.uint64) ^ np.uint64(seed))
    if not len(counts):
        return hashes
    common, most = int(counts.min()), int(counts.max())
    for place in range(common):
        hashes ^= word_at(slice(None), place)
        _mix(hashes)
    rows = np.arange(len(counts)) if most > common else np.zeros(0, np.int64)
    for place in range(common, most):
        rows = rows[counts[rows] > place]
        hashes[rows] = _mix(hashes[rows] ^ word_at(rows, place))
    return hashes


# -- the four forms --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WordForm:
    """Values of 8 bytes; under nulls anything."""

    words: Words
    nulls: Mask | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def is_exact(self) -> bool:
        """Whether equal hashes are equal values: every step of a word's hash can be undone."""
        return self.nulls is None

    def hashes(self) -> Words:
        return _with_nulls(_mix(self.words ^ np.uint64(_WORD)), self.nulls)

    def same(self, left: Indices, right: Indices) -> Mask:
        return _same(self.nulls, left, right, self.words[left] == self.words[right])

    def encoded(self) -> list[bytes]:
        data = self.words.astype("<u8").tobytes()
        return _encoded(self.nulls, [data[at : at + 8] for at in range(0, len(data), 8)])

    def take(self, rows: Indices) -> WordForm:
        return WordForm(words=self.words[rows], nulls=_taken(self.nulls, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesForm:
    """Texts and bytes, as places in one buffer that has 8 bytes more than it needs."""

    data: npt.NDArray[np.uint8]
    starts: Indices
    lengths: Indices
    nulls: Mask | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_exact(self) -> bool:
        return False

    def _word_at(self, rows: Rows, place: int) -> Words:
        # a word at every byte: texts are not aligned
        words: Words = np.ndarray((len(self.data) - 7,), "<u8", self.data.data, 0, (1,))
        found = words[self.starts[rows] + 8 * place]
        found &= _LAST[np.minimum(self.lengths[rows] - 8 * place, 8)]
        return found

    def hashes(self) -> Words:
        lengths = self.lengths
        return _with_nulls(_fold(_BYTES, lengths, (lengths + 7) >> 3, self._word_at), self.nulls)

    def same(self, left: Indices, right: Indices) -> Mask:
        found = self.lengths[left] == self.lengths[right]
        rows = np.flatnonzero(found)
        place = 0
        while len(rows := rows[self.lengths[left[rows]] > 8 * place]):
            equal = self._word_at(left[rows], place) == self._word_at(right[rows], place)
            found[rows] = equal
            rows = rows[equal]
            place += 1
        return _same(self.nulls, left, right, found)

    def encoded(self) -> list[bytes]:
        data = self.data.tobytes()
        places = zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        parts = [size.to_bytes(4, "little") + data[at : at + size] for at, size in places]
        return _encoded(self.nulls, parts)

    def take(self, rows: Indices) -> BytesForm:
        return BytesForm(
            data=self.data,
            starts=self.starts[rows],
            lengths=self.lengths[rows],
            nulls=_taken(self.nulls, rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForm:
    """Fields side by side: a struct, or a whole key."""

    count: int
    fields: tuple[Form, ...]
    nulls: Mask | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def is_exact(self) -> bool:
        return self.nulls is None and len(self.fields) == 1 and self.fields[0].is_exact

    def hashes(self) -> Words:
        hashes = np.full(self.count, _mix_one(_GROUP ^ len(self.fields)), dtype=np.uint64)
        for field in self.fields:
            hashes ^= field.hashes()
            _mix(hashes)
        return _with_nulls(hashes, self.nulls)

    def same(self, left: Indices, right: Indices) -> Mask:
        found = np.ones(len(left), dtype=np.bool_)
        for field in self.fields:
            found &= field.same(left, right)
        return _same(self.nulls, left, right, found)

    def encoded(self) -> list[bytes]:
        return _encoded(self.nulls, self.joined())

    def joined(self) -> list[bytes]:
        """The canonical bytes of the fields, without the mark that they are there."""
        if not self.fields:
            return [b""] * self.count
        parts = zip(*(field.encoded() for field in self.fields), strict=True)
        return [b"".join(each) for each in parts]

    def take(self, rows: Indices) -> GroupForm:
        fields = tuple(field.take(rows) for field in self.fields)
        return GroupForm(count=len(rows), fields=fields, nulls=_taken(self.nulls, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsForm:
    """Lists, as places in the form of their elements."""

    items: Form
    starts: Indices
    counts: Indices
    nulls: Mask | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_exact(self) -> bool:
        return False

    def hashes(self) -> Words:
        words = self.items.hashes()
        hashes = _fold(_ITEMS, self.counts, self.counts, lambda rows, place: words[self.starts[rows] + place])
        return _with_nulls(hashes, self.nulls)

    def same(self, left: Indices, right: Indices) -> Mask:
        found = self.counts[left] == self.counts[right]
        rows = np.flatnonzero(found)
        place = 0
        while len(rows := rows[self.counts[left[rows]] > place]):
            equal = self.items.same(self.starts[left[rows]] + place, self.starts[right[rows]] + place)
            found[rows] = equal
            rows = rows[equal]
            place += 1
        return _same(self.nulls, left, right, found)

    def encoded(self) -> list[bytes]:
        items = self.items.encoded()
        places = zip(self.starts.tolist(), self.counts.tolist(), strict=True)
        parts = [size.to_bytes(4, "little") + b"".join(items[at : at + size]) for at, size in places]
        return _encoded(self.nulls, parts)

    def take(self, rows: Indices) -> ItemsForm:
        return ItemsForm(
            items=self.items,
            starts=self.starts[rows],
            counts=self.counts[rows],
            nulls=_taken(self.nulls, rows),
        )


Form: TypeAlias = WordForm | BytesForm | GroupForm | ItemsForm


def _with_nulls(hashes: Words, nulls: Mask | None) -> Words:
    if nulls is not None:
        hashes[nulls] = np.uint64(_NULL)
    return hashes


def _same(nulls: Mask | None, left: Indices, right: Indices, found: Mask) -> Mask:
    """What was found of values, with null the same as null and as nothing else."""
    if nulls is None:
        return found
    first, second = nulls[left], nulls[right]
    return (found & ~first & ~second) | (first & second)


def _encoded(nulls: Mask | None, parts: list[bytes]) -> list[bytes]:
    if nulls is None:
        return [b"\x01" + part for part in parts]
    return [b"\0" if null else b"\x01" + part for null, part in zip(nulls.tolist(), parts, strict=True)]


def _taken(nulls: Mask | None, rows: Indices) -> Mask | None:
    return None if nulls is None else nulls[rows]


# -- from Arrow ------------------------------------------------------------------------------------


def form_of(columns: Sequence[pa.Array]) -> GroupForm:
    """The keys whose columns these are."""
    if not columns:
        raise ValueError("a key has at least one column")
    return GroupForm(count=len(columns[0]), fields=tuple(_form(column) for column in columns))


def _form(array: pa.Array) -> Form:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _form(array.storage)
    if pa.types.is_dictionary(kind):
        return _form_of_dictionary(array)
    nulls = _nulls(array)
    if pa.types.is_struct(kind):
        fields = tuple(_form(array.field(at)) for at in range(kind.num_fields))
        return GroupForm(count=len(array), fields=fields, nulls=nulls)
    if _is_list(kind) or pa.types.is_map(kind):
        return _form_of_list(array, nulls)
    if pa.types.is_fixed_size_binary(kind):
        return _form_of_fixed_bytes(array, nulls)
    if _is_bytes(kind):
        return _form_of_bytes(array, nulls)
    if pa.types.is_decimal(kind):
        return _form_of_bytes(_decimal_texts(array), nulls)
    return WordForm(words=_words(array, nulls), nulls=nulls)


def _nulls(array: pa.Array) -> Mask | None:
    if not array.null_count:
        return None
    found: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _form_of_dictionary(array: pa.DictionaryArray) -> Form:
    values = array.dictionary
    if values.null_count or len(values) > len(array) or not len(values):
        return _form(array.dictionary_decode())
    nulls = _nulls(array)
    indices = array.indices.fill_null(0) if nulls is not None else array.indices
    taken = _form(values).take(indices.to_numpy(zero_copy_only=False).astype(np.int64))
    return replace(taken, nulls=nulls)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _places(array: pa.Array, buffer: int, wide: bool) -> tuple[Indices, Indices]:
    """Starts and sizes of what an array with offsets holds."""
    offsets = array.buffers()[buffer]
    if not len(array) or offsets is None:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.int64)
    width = np.dtype(np.int64 if wide else np.int32)
    ends = np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize).astype(np.int64)
    return ends[:-1], ends[1:] - ends[:-1]


def _form_of_bytes(array: pa.Array, nulls: Mask | None) -> BytesForm:
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    starts, lengths = _places(array, 1, wide)
    return _placed_bytes(array.buffers()[2], starts, lengths, nulls)


def _form_of_fixed_bytes(array: pa.Array, nulls: Mask | None) -> BytesForm:
    width = array.type.byte_width
    starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
    return _placed_bytes(array.buffers()[1], starts, np.full(len(array), width, np.int64), nulls)


def _placed_bytes(buffer: Any, starts: Indices, lengths: Indices, nulls: Mask | None) -> BytesForm:
    """Only the bytes in use, with room for reading a whole word at the last of them."""
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
        starts = np.where(nulls, starts[0] if len(starts) else 0, starts)
    first = int(starts.min()) if len(starts) else 0
    last = int((starts + lengths).max()) if len(starts) else 0
    data = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(buffer, np.uint8, last - first, first)
    return BytesForm(data=data, starts=starts - first, lengths=lengths, nulls=nulls)


def _form_of_list(array: Any, nulls: Mask | None) -> ItemsForm:
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * size
        counts = np.full(len(array), size, np.int64)
    else:
        starts, counts = _places(array, 1, pa.types.is_large_list(array.type))
    if nulls is not None:
        counts = np.where(nulls, 0, counts)
        starts = np.where(nulls, starts[0] if len(starts) else 0, starts)
    first = int(starts.min()) if len(starts) else 0
    last = int((starts + counts).max()) if len(starts) else 0
    if pa.types.is_map(array.type):  # no key, but two rows can be compared
        both = array.keys.slice(first, last - first), array.items.slice(first, last - first)
        items: Form = form_of(both)
    else:
        items = _form(array.values.slice(first, last - first))
    return ItemsForm(items=items, starts=starts - first, counts=counts, nulls=nulls)


_MILLISECONDS_PER_DAY = 86_400_000
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def _words(array: pa.Array, nulls: Mask | None) -> Words:
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64())
    elif not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        raise TypeError(f"values of type {kind} are no keys")
    if nulls is not None:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        return _float_words(values)
    if values.dtype == np.uint64:
        return np.array(values, dtype=np.uint64)
    words = values.astype(np.int64)
    if pa.types.is_date32(kind):
        words *= _MILLISECONDS_PER_DAY
    elif pa.types.is_time(kind):
        words *= _NANOSECONDS[kind.unit]
    found: Words = words.view(np.uint64)
    return found


def _float_words(values: Any) -> Words:
    floats = values.astype(np.float64) + 0.0  # −0.0 becomes 0.0
    words: Words = floats.view(np.uint64)
    words[np.isnan(floats)] = _NAN_BITS
    return words


def _decimal_texts(array: pa.Array) -> pa.Array:
    """The shortest plain text of each: no exponent, no zeros behind the last digit of a fraction."""
    texts = array.cast(pa.string())
    if array.type.scale == 0:
        return texts
    if array.type.scale < 0 or pc.any(pc.match_substring(texts, "E")).as_py():
        plain = [None if value is None else f"{value:f}" for value in array.to_pylist()]
        texts = pa.array(plain, pa.string())
        if array.type.scale < 0:
            return texts
    return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")


# -- hashing -----------------------------------------------------------------------------------------


def hash_columns(columns: Sequence[pa.Array]) -> Words:
    """The hashes of the keys whose columns these are."""
    count = len(columns[0])
    if count <= _ROWS_AT_ONCE:
        return form_of(columns).hashes()
    parts = [
        form_of([column.slice(start, _ROWS_AT_ONCE) for column in columns]).hashes()
        for start in range(0, count, _ROWS_AT_ONCE)
    ]
    return np.concatenate(parts)


def hash_rows(batch: pa.RecordBatch, keys: Iterable[str]) -> Words:
    """The hashes of a batch's keys."""
    return hash_columns([batch.column(key) for key in keys])


def encode_rows(batch: pa.RecordBatch, keys: Iterable[str]) -> list[bytes]:
    """The canonical bytes of a batch's keys."""
    return form_of([batch.column(key) for key in keys]).joined()


def always_exact(kinds: Sequence[tuple[pa.DataType, bool]]) -> bool:
    """Whether keys of these types (and whether they may be null) with equal hashes are equal."""
    if len(kinds) != 1 or kinds[0][1]:
        return False
    kind = kinds[0][0]
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(plain or pa.types.is_temporal(kind))


def plain_hash(value: object) -> int | None:
    """The hash of an int (of at most 64 bits), text, bytes or null; None for anything else."""
    kind = type(value)
    if kind is int:
        return _mix_one(value & _ALL ^ _WORD)  # type: ignore[operator]
    if kind is str:
        return _bytes_hash(value.encode())  # type: ignore[attr-defined]
    if kind is bytes:
        return _bytes_hash(value)  # type: ignore[arg-type]
    return _NULL if value is None else None


def _bytes_hash(data: bytes) -> int:
    size = len(data)
    found = _mix_one(_BYTES ^ size)
    for at in range(0, size, 8):
        found = _mix_one(found ^ int.from_bytes(data[at : at + 8], "little"))
    return found


def combined_hash(hashes: Sequence[int]) -> int:
    """The hash of a key from those of its columns."""
    found = _mix_one(_GROUP ^ len(hashes))
    for each in hashes:
        found = _mix_one(found ^ each)
    return found
