"""What a column can become. Each method fits a type or refuses it, and changes whole arrays.

A null stays null under every method: masking hides what a value is, not whether there
is one. Where that says too much, drop the column or make it constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import UsageError, VirtaError
from virta.security.masking.key import PLACES, MaskingKey
from virta.security.masking.keyed import (
    KeyedHash,
    hexadecimal,
    is_bytes,
    is_text,
    kind_of,
    mapped,
    whole_numbers,
)
from virta.security.masking.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a method may see beside its column: the whole batch, and a number of each row that lasts."""

    batch: pa.RecordBatch
    identity: pa.Array | None = None


class Method(ABC):
    """One way of masking, with its options."""

    name: ClassVar[str]
    needs_key: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:
        """Made from what a policy says."""

    def field(self, field: pa.Field) -> pa.Field | None:
        """What the column is afterwards; None where it is gone; UsageError where it cannot be."""
        return field

    def columns(self) -> tuple[str, ...]:
        """Other columns it looks at."""
        return ()

    @abstractmethod
    def apply(self, array: pa.Array, rows: Rows) -> pa.Array: ...


class Simple(Method):
    """A method without options."""

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:  # noqa: ARG003 (the interface)
        return cls()


class Keep(Simple):
    """The column as it is."""

    name = "keep"

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        return array


class Drop(Simple):
    """No such column in the target."""

    name = "drop"

    def field(self, field: pa.Field) -> pa.Field | None:  # noqa: ARG002
        return None

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        raise AssertionError("a dropped column is never computed")


class Null(Simple):
    """The column, always null."""

    name = "null"

    def field(self, field: pa.Field) -> pa.Field | None:
        return field.with_nullable(True)

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        return pa.nulls(len(array), array.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Method):
    """Always the same value."""

    name = "constant"
    value: Any

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:  # noqa: ARG003
        return cls(value=options.anything("value"))

    def field(self, field: pa.Field) -> pa.Field | None:
        self._scalar(field.type)
        return field

    def _scalar(self, type_: pa.DataType) -> pa.Scalar:
        try:
            return pa.scalar(self.value, type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise UsageError(f"the constant {self.value!r} is no value of type {type_}") from None

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        filled = pa.repeat(self._scalar(array.type), len(array))
        return null_as(filled, array)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redact(Method):
    """Every text the same mark, so that not even its length is told."""

    name = "redact"
    mark: str

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:  # noqa: ARG003
        return cls(mark=options.text("mark", "[redacted]"))

    def field(self, field: pa.Field) -> pa.Field | None:
        if not (
            is_text(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        ):
            raise UsageError(
                f"redact is for text and bytes, not for {field.type}", hint="use null, constant or bucket"
            )
        return field

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        value: str | bytes = self.mark if is_text(array.type) else self.mark.encode()
        return null_as(pa.repeat(pa.scalar(value, array.type), len(array)), array)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial(Method):
    """Only the first or last few signs; the others become the fill. Short values are hidden whole."""

    name = "partial"
    first: int
    last: int
    fill: str

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:  # noqa: ARG003
        made = cls(
            first=options.number("first", 0, most=64),
            last=options.number("last", 0, most=64),
            fill=options.text("fill", "*"),
        )
        if len(made.fill) != 1:
            raise UsageError(f"the fill of partial is one sign, not {made.fill!r}")
        if made.first + made.last == 0:
            raise UsageError("partial shows the first or last signs", hint="say first = 2 or last = 4")
        return made

    def field(self, field: pa.Field) -> pa.Field | None:
        return only_text(self.name, field)

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        return mapped(array, lambda values: pa.array(map(self._hidden, values.to_pylist()), array.type))

    def _hidden(self, value: str | None) -> str | None:
        if value is None:
            return None
        hidden = len(value) - self.first - self.last
        if hidden < self.first + self.last:  # as much again has to be hidden as is shown
            return self.fill * len(value)
        return value[: self.first] + self.fill * hidden + value[len(value) - self.last :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hash(Method):
    """A keyed hash: the same value is the same pseudonym in every topic, so joins survive."""

    name = "hash"
    needs_key = True
    digest: KeyedHash

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:
        assert key is not None
        return cls(digest=KeyedHash(key, "hash", options.text("domain", "")))

    def field(self, field: pa.Field) -> pa.Field | None:
        return field.with_type(self._type(field.type))

    @staticmethod
    def _type(type_: pa.DataType) -> pa.DataType:
        kind_of(type_)
        if pa.types.is_integer(type_):
            return pa.int64()
        if pa.types.is_fixed_size_binary(type_):
            return pa.binary(min(32, type_.byte_width))
        if is_bytes(type_):
            return pa.binary()
        return pa.large_string() if pa.types.is_large_string(type_) else pa.string()

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        return mapped(array, self._changed)

    def _changed(self, values: pa.Array) -> pa.Array:
        found, type_ = self.digest(values), self._type(values.type)
        if pa.types.is_integer(type_):
            numbers = pa.array((whole_numbers(found) >> np.uint64(1)).astype(np.int64))
            return null_as(numbers, values)
        if is_bytes(type_):
            width = type_.byte_width if pa.types.is_fixed_size_binary(type_) else 16
            plain = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(found), [None, pa.py_buffer(np.ascontiguousarray(found[:, :width]))]
            )
            return null_as(plain.cast(type_), values)
        return null_as(hexadecimal(found, 16).cast(type_), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket(Method):
    """Numbers by steps of a width, dates and moments by their unit."""

    name = "bucket"
    width: float | None
    unit: str

    _UNITS: ClassVar[tuple[str, ...]] = ("hour", "day", "week", "month", "quarter", "year")

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:  # noqa: ARG003
        made = cls(width=options.positive("width"), unit=options.text("unit", ""))
        if (made.width is None) == (not made.unit):
            raise UsageError(
                "bucket needs either a width (for numbers) or a unit (for dates and times)",
                hint='say width = 10 or unit = "month"',
            )
        if made.unit and made.unit not in cls._UNITS:
            raise UsageError(f"the units of bucket are {', '.join(cls._UNITS)}, not {made.unit!r}")
        return made

    def field(self, field: pa.Field) -> pa.Field | None:
        type_ = field.type
        if self.unit and not (pa.types.is_date(type_) or pa.types.is_timestamp(type_)):
            raise UsageError(f"a bucket of a {self.unit} is for dates and timestamps, not for {type_}")
        if self.unit == "hour" and pa.types.is_date(type_):
            raise UsageError("a date has no hours to be put into buckets")
        if self.width is None:
            return field
        if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
            raise UsageError(f"a bucket with a width is for integers and floats, not for {type_}")
        if pa.types.is_integer(type_) and self.width != int(self.width):
            raise UsageError(f"buckets of integers have a whole width, not {self.width}")
        return field

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        if self.unit:
            return pc.floor_temporal(array, unit=self.unit).cast(array.type)
        assert self.width is not None
        if pa.types.is_floating(array.type):
            steps = pc.floor(pc.divide(array.cast(pa.float64()), self.width))
            return pc.multiply(steps, self.width).cast(array.type)
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        least = np.iinfo(numbers.dtype).min
        width = int(self.width)
        if width > np.iinfo(numbers.dtype).max:
            return null_as(pa.array(np.zeros_like(numbers), array.type), array)
        rest = np.mod(numbers, numbers.dtype.type(width))
        # the lowest bucket may begin below what the type can hold
        floored = np.where(numbers >= least + rest, numbers - rest, least)
        return null_as(pa.array(floored.astype(numbers.dtype), array.type), array)


def null_as(values: pa.Array, like: pa.Array) -> pa.Array:
    """Null wherever the other is."""
    if like.null_count == 0:
        return values
    return pc.if_else(like.is_valid(), values, pa.scalar(None, values.type))


def only_text(name: str, field: pa.Field) -> pa.Field:
    if not is_text(field.type):
        raise UsageError(f"{name} is for text, not for {field.type}", hint="hash fits every plain type")
    return field


# -- by name -----------------------------------------------------------------------------------


def make(
    name: str, options: dict[str, Any], key: MaskingKey | None, known: dict[str, type[Method]]
) -> Method:
    """The method a policy names, with its options."""
    found = known.get(name)
    if found is None:
        raise UsageError(f"there is no masking method {name!r}", hint=f"there are {', '.join(known)}")
    if found.needs_key and key is None:
        raise UsageError(
            f"the masking method {name!r} needs a masking key",
            hint=f"{PLACES}; make one: virta pipeline key FILE",
        )
    read = Options(name, options)
    method = found.of(read, key)
    read.end()
    return method


def in_column(error: VirtaError, path: str, topic: str) -> UsageError:
    """The refusal of a method, with the column it was for."""
    return UsageError(f'column "{path}" of "{topic}": {error.message}', hint=error.hint)
