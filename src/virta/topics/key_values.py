"""A key as somebody gives it: a dict of the key columns, or for one column its value.

Plain values (whole numbers, text, bytes) are hashed as they are; others go through Arrow,
by the rules that appended rows go by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from virta.errors import SchemaMismatch
from virta.metadata.schemas import suggest
from virta.topics.keys import combined_hash, form_of, hash_columns, plain_hash
from virta.topics.rows import RowConverter


class Key:
    """One key: its hash, and whether a row has it."""

    __slots__ = ("bytes", "hash", "plain")

    def __init__(self, hash_: int, plain: tuple[Any, ...] | None, bytes_: bytes | None) -> None:
        self.hash = hash_
        self.plain = plain  # the values, where they are plain; else there are the canonical bytes
        self.bytes = bytes_

    @property
    def identity(self) -> Any:
        """Equal for equal keys of one topic."""
        return self.plain if self.bytes is None else self.bytes

    def is_of(self, columns: Sequence[pa.Array], row: int) -> bool:
        """Whether the key columns hold this key there."""
        if self.plain is not None:
            return all(
                column[row].as_py() == value for column, value in zip(columns, self.plain, strict=True)
            )
        return form_of([column.slice(row, 1) for column in columns]).joined()[0] == self.bytes

    def __str__(self) -> str:
        return repr(self.plain) if self.plain is not None else f"with hash {self.hash:016x}"


class KeyReader:
    """Takes keys of one topic version."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self.schema = pa.schema([schema.field(name) for name in keys])
        self._converter = RowConverter(self.schema, keys=keys)
        self._bounds = [_plain_bounds(field.type) for field in self.schema]
        # keys that may be null are told apart by their bytes, all of them
        self._is_plain = all(self._bounds) and not any(field.nullable for field in self.schema)

    def read(self, given: Any) -> Key:
        values = self._values(given)
        plain = self._plain(values)
        return plain if plain is not None else self._through_arrow(values)

    def batches(self, given: Any) -> list[pa.RecordBatch]:
        """One key, a list of keys, or Arrow data with the key columns, as batches of them."""
        if isinstance(given, list):
            return self._converter.batches([self._as_row(each) for each in given])
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            return self._converter.batches(given)
        return self._converter.batches([self._as_row(given)])

    def _as_row(self, given: Any) -> dict[str, Any]:
        return dict(zip(self.keys, self._values(given), strict=True))

    def _values(self, given: Any) -> tuple[Any, ...]:
        keys = self.keys
        if isinstance(given, Mapping) and (len(keys) > 1 or keys[0] in given or not self._takes_mapping):
            missing = [name for name in keys if name not in given]
            if missing:
                raise SchemaMismatch(
                    f"the key column {missing[0]!r} is missing",
                    column=missing[0],
                    hint=f"a key is {_as_text(keys)}",
                )
            values = tuple([given[name] for name in keys])
            if len(given) != len(keys):
                other = next(name for name in given if name not in keys)
                raise SchemaMismatch(
                    f"{other!r} is not a key column", column=str(other), hint=suggest(str(other), keys)
                )
            return values
        if len(keys) == 1:
            return (given,)
        if isinstance(given, tuple) and len(given) == len(keys):
            return given
        raise SchemaMismatch(f"the key has {len(keys)} columns", hint=f"give them all: {_as_text(keys)}")

    @property
    def _takes_mapping(self) -> bool:
        return bool(pa.types.is_struct(self.schema.field(0).type))

    def _plain(self, values: tuple[Any, ...]) -> Key | None:
        hashes = []
        for value, bounds in zip(values, self._bounds, strict=True):
            if bounds is None or type(value) is not bounds[0]:
                return None
            if isinstance(value, int) and not bounds[1] <= value <= bounds[2]:
                return None
            found = plain_hash(value)
            if found is None:
                return None
            hashes.append(found)
        return Key(combined_hash(hashes), values, None)

    def _through_arrow(self, values: tuple[Any, ...]) -> Key:
        batch = self._converter.from_rows([dict(zip(self.keys, values, strict=True))])
        return self.keys_of(batch)[0]

    def keys_of(self, batch: pa.RecordBatch) -> list[Key]:
        """The keys of a batch of key columns."""
        hashes = hash_columns(batch.columns).tolist()
        if self._is_plain:
            values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            return [Key(hash_, plain, None) for hash_, plain in zip(hashes, values, strict=True)]
        encoded = form_of(batch.columns).joined()
        return [Key(hash_, None, data) for hash_, data in zip(hashes, encoded, strict=True)]


def _as_text(keys: Sequence[str]) -> str:
    return "{" + ", ".join(f"{name!r}: …" for name in keys) + "}"


def _plain_bounds(kind: pa.DataType) -> tuple[type, int, int] | None:
    """The Python type whose values are hashed as they are, and which of them the column holds."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str, 0, 0
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes, 0, 0
    if pa.types.is_signed_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return int, -half, half - 1
    if pa.types.is_unsigned_integer(kind):
        return int, 0, (1 << kind.bit_width) - 1
    return None
