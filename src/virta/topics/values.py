"""Python values for one column: which are exact, and what to store for the rest.

`pa.array` alone is too willing: it makes 1 of 1.5, a date of a datetime, UTC of a
naive time, and drops fields a struct does not have. So each type has a `Check`:

- `exact(values)`: a quick test over a whole column that `pa.array` will store each of
  these values unchanged. It may say no to good values, never yes to bad ones.
- `normal(value)`: the exact rule for one value; gives what `pa.array` shall store,
  or raises `Misfit` with words that finish the sentence "column x …".

The quick test is what appends pay for; the exact rule runs only after it said no, so
it also finds the row to name. Knows no rows, no topics and no limits.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import numbers
import operator
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa

from virta.metadata.python_types import describe

_NONE = type(None)
_tzinfo_of = operator.attrgetter("tzinfo")


class Misfit(ValueError):
    """A value that a column cannot hold unchanged."""


class Check(Protocol):
    """What one type takes."""

    def exact(self, values: Sequence[Any]) -> bool: ...

    def normal(self, value: Any) -> Any: ...


def check_for(field: pa.Field) -> Check:
    """The check of a column or nested field."""
    return _check(field.type, bool(field.nullable))


def _check(kind: pa.DataType, nullable: bool) -> Check:
    if isinstance(kind, pa.UuidType):
        return _plain(kind, nullable, {uuid.UUID}, _uuid)
    if isinstance(kind, pa.BaseExtensionType):
        return _check(kind.storage_type, nullable)
    if pa.types.is_dictionary(kind):
        return _check(kind.value_type, nullable)
    if pa.types.is_struct(kind):
        return StructCheck(kind, nullable)
    if pa.types.is_map(kind):
        return MapCheck(kind, nullable)
    if pa.types.is_nested(kind):
        return ListCheck(kind, nullable)
    if pa.types.is_timestamp(kind):
        return MomentCheck(kind, nullable)
    if pa.types.is_time(kind):
        return ClockCheck(kind, nullable)
    return _scalar_check(kind, nullable)


def _scalar_check(kind: pa.DataType, nullable: bool) -> Check:
    for matches, exact, make in _SCALARS:
        if matches(kind):
            return _plain(kind, nullable, exact, make(kind))
    raise Misfit(f"of type {kind} takes no Python values")


# -- plain values -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class PlainCheck:
    """A type whose values are exact whenever they have one of a few Python types."""

    kind: pa.DataType
    types: frozenset[type]
    nullable: bool
    convert: Callable[[Any], Any]

    def exact(self, values: Sequence[Any]) -> bool:
        return self.types.issuperset(set(map(type, values)))

    def normal(self, value: Any) -> Any:
        if value is None:
            return _null(self.nullable, self.kind)
        return self.convert(value.value if isinstance(value, enum.Enum) else value)


def _plain(kind: pa.DataType, nullable: bool, exact: set[type], convert: Callable[[Any], Any]) -> PlainCheck:
    types = frozenset(exact | {_NONE}) if nullable else frozenset(exact)
    return PlainCheck(kind, types, nullable, convert)


def _null(nullable: bool, kind: pa.DataType) -> None:
    if not nullable:
        raise Misfit(f"is {describe(kind)} and not null, but the value is missing or None")


def wrong(value: Any, kind: pa.DataType, why: str = "") -> Misfit:
    """The refusal of one value, shown short."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return Misfit(f"is {describe(kind)}, but the value is {type(value).__name__} {shown}{why}")


def _whole(kind: pa.DataType) -> Callable[[Any], Any]:
    """Integers, and whatever is one by `__index__`; a bool is not a number."""
    signed = pa.types.is_signed_integer(kind)
    least = -(1 << (kind.bit_width - 1)) if signed else 0
    greatest = (1 << (kind.bit_width - signed)) - 1

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise wrong(value, kind)
        number = operator.index(value)
        if not least <= number <= greatest:
            raise wrong(value, kind, f", which is not from {least} to {greatest}")
        return number

    return convert


# The greatest finite value of each width; a float64 holds every Python float.
_FLOAT_MOST = {16: 65504.0, 32: 3.4028234663852886e38, 64: math.inf}


def _float(kind: pa.DataType) -> Callable[[Any], Any]:
    """Floats are rounded to a narrower column's precision; integers must be exact."""
    most = _FLOAT_MOST[kind.bit_width]
    whole = 2 ** {16: 11, 32: 24, 64: 53}[kind.bit_width]

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise wrong(value, kind)
        try:
            number = float(value)
        except OverflowError:
            raise wrong(value, kind, ", which is too large") from None
        if isinstance(value, numbers.Rational):
            if number != value or (kind.bit_width < 64 and abs(number) > whole):
                raise wrong(value, kind, ", which is not exact as a float")
        elif abs(number) > most and not math.isinf(number):
            raise wrong(value, kind, ", which is too large")
        return number

    return convert


def _text(kind: pa.DataType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            hint = ", which is to be decoded first" if isinstance(value, bytes) else ""
            raise wrong(value, kind, hint)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise wrong(value, kind, ", which is not valid Unicode") from None
        return str.__str__(value)

    return convert


def _bytes(kind: pa.DataType) -> Callable[[Any], Any]:
    """Bytes and their likes; text goes in as its UTF-8 and comes back as bytes."""

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise wrong(value, kind, ", which is not valid Unicode") from None
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong(value, kind)
        return bytes(value)

    return convert


def _fixed_bytes(kind: pa.DataType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            value = value.bytes
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong(value, kind)
        data = bytes(value)
        if len(data) != kind.byte_width:
            raise wrong(value, kind, f", which has not {kind.byte_width} but {len(data)} bytes")
        return data

    return convert


def _uuid(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes) and len(value) == 16:
        return value
    raise wrong(value, pa.uuid())


def _bool(kind: pa.DataType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        # numpy's own bool is no subclass of bool; there is no import of numpy for it here
        if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        raise wrong(value, kind)

    return convert


def _decimal(kind: pa.DataType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, decimal.Decimal | int):
            hint = ", which is not exact" if isinstance(value, float) else ""
            raise wrong(value, kind, hint)
        try:
            pa.scalar(value, kind)
        except pa.ArrowException:
            raise wrong(value, kind, ", which does not fit exactly") from None
        return value

    return convert


# -- times --------------------------------------------------------------------------------

# How many microseconds the unit of a column is; nanoseconds are finer than Python has.
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


def _too_fine(value: Any, microseconds: int, unit: str) -> bool:
    """Whether the value says more than the unit holds (pandas' values reach nanoseconds)."""
    finer = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return microseconds % _UNIT_US[unit] != 0 or (unit != "ns" and bool(finer))


def _is_nat(value: Any) -> bool:
    """Pandas' "not a time", which says it is a datetime and equals nothing, itself included."""
    return bool(value != value)


def _zones(values: Sequence[Any], wanted: type, nullable: bool) -> set[Any] | None:
    """The time zones of values that all have the wanted type (or are null), else None."""
    types = set(map(type, values))
    if _NONE in types and nullable:
        values = [value for value in values if value is not None]
        types.discard(_NONE)
    return set(map(_tzinfo_of, values)) if types <= {wanted} else None


def _fits_arrow(value: Any, kind: pa.DataType) -> Any:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        raise wrong(value, kind, ", which is out of range") from None
    return value


def _date(kind: pa.DataType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
            raise wrong(value, kind)
        return value

    return convert


def _span(kind: pa.DataType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, datetime.timedelta) or _is_nat(value):
            raise wrong(value, kind)
        if _too_fine(value, value.microseconds, kind.unit):
            raise wrong(value, kind, f", which is finer than {kind.unit}")
        return _fits_arrow(value, kind)

    return convert


@dataclasses.dataclass(frozen=True, slots=True)
class MomentCheck:
    """Timestamps: with a time zone or without, as the column says, and never a mix."""

    kind: pa.DataType
    nullable: bool

    def exact(self, values: Sequence[Any]) -> bool:
        # coarser units would round, nanoseconds reach less far than datetime
        zones = _zones(values, datetime.datetime, self.nullable)
        if zones is None or self.kind.unit != "us":
            return False
        return None not in zones if self.kind.tz is not None else zones <= {None}

    def normal(self, value: Any) -> Any:
        if value is None:
            return _null(self.nullable, self.kind)
        is_moment = isinstance(value, datetime.datetime)
        if not is_moment or _is_nat(value):
            raise wrong(value, self.kind)
        aware = value.utcoffset() is not None
        if aware and self.kind.tz is None:
            raise wrong(value, self.kind, ", which has a time zone")
        if not aware and self.kind.tz is not None:
            raise wrong(value, self.kind, ", which has no time zone: use datetime.now(timezone.utc)")
        if _too_fine(value, value.microsecond, self.kind.unit):
            raise wrong(value, self.kind, f", which is finer than {self.kind.unit}")
        return _fits_arrow(value, self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class ClockCheck:
    """Times of day, which have no time zone."""

    kind: pa.DataType
    nullable: bool

    def exact(self, values: Sequence[Any]) -> bool:
        zones = _zones(values, datetime.time, self.nullable)
        return zones is not None and zones <= {None} and self.kind.unit in ("us", "ns")

    def normal(self, value: Any) -> Any:
        if value is None:
            return _null(self.nullable, self.kind)
        if not isinstance(value, datetime.time):
            raise wrong(value, self.kind)
        if value.tzinfo is not None:
            raise wrong(value, self.kind, ", which has a time zone")
        if _too_fine(value, value.microsecond, self.kind.unit):
            raise wrong(value, self.kind, f", which is finer than {self.kind.unit}")
        return value


def _is_fine_span(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind)) and kind.unit in ("us", "ns")


_SCALARS: tuple[
    tuple[Callable[[pa.DataType], bool], set[type], Callable[[pa.DataType], Callable[[Any], Any]]],
    ...,
] = (
    (pa.types.is_integer, {int}, _whole),
    (pa.types.is_float64, {float, int}, _float),
    (pa.types.is_floating, set(), _float),
    (pa.types.is_boolean, {bool}, _bool),
    (pa.types.is_string, {str}, _text),
    (pa.types.is_large_string, {str}, _text),
    (pa.types.is_binary, {bytes, str}, _bytes),
    (pa.types.is_large_binary, {bytes, str}, _bytes),
    (pa.types.is_fixed_size_binary, {bytes}, _fixed_bytes),
    (pa.types.is_date, {datetime.date}, _date),
    (_is_fine_span, {datetime.timedelta}, _span),
    (pa.types.is_duration, set(), _span),
    (pa.types.is_decimal, {decimal.Decimal, int}, _decimal),
)


# -- values that hold values ------------------------------------------------------------------


class ListCheck:
    """Lists and tuples; the check of what is in them runs over all of them at once."""

    __slots__ = ("item", "kind", "nullable", "types")

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        self.kind = kind
        self.nullable = nullable
        self.item = check_for(kind.value_field)
        self.types = frozenset({list, tuple, _NONE} if nullable else {list, tuple})

    def exact(self, values: Sequence[Any]) -> bool:
        if not self.types.issuperset(set(map(type, values))):
            return False
        return self.item.exact(list(chain.from_iterable(filter(None, values))))

    def normal(self, value: Any) -> Any:
        if value is None:
            return _null(self.nullable, self.kind)
        if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
            value = list(value)  # numpy's arrays, element by element: `tolist` would lose types
        if not isinstance(value, list | tuple | set | frozenset | range):
            raise wrong(value, self.kind)
        size = self.kind.list_size if pa.types.is_fixed_size_list(self.kind) else len(value)
        if len(value) != size:
            raise wrong(value, self.kind, f", which has {len(value)} elements")
        return [self.item.normal(element) for element in value]


class StructCheck:
    """Dicts and dataclasses with exactly the fields of the struct; what may be null may be absent."""

    __slots__ = ("fields", "kind", "names", "nullable", "types")

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        self.kind = kind
        self.nullable = nullable
        self.fields = {field.name: check_for(field) for field in kind}
        self.names = frozenset(self.fields)
        self.types = frozenset({dict, _NONE} if nullable else {dict})

    def exact(self, values: Sequence[Any]) -> bool:
        if not self.types.issuperset(set(map(type, values))):
            return False
        present = [value for value in values if value is not None]
        if not self.names.issuperset(set().union(*present)):
            return False
        return all(check.exact([value.get(name) for value in present]) for name, check in self.fields.items())

    def normal(self, value: Any) -> Any:
        if value is None:
            return _null(self.nullable, self.kind)
        row = as_mapping(value)
        if row is None:
            raise wrong(value, self.kind)
        for name in row:
            if name not in self.names:
                raise wrong(value, self.kind, f", which has no field {name!r}")
        return {name: _inside(name, check, row.get(name)) for name, check in self.fields.items()}


def _inside(name: str, check: Check, value: Any) -> Any:
    try:
        return check.normal(value)
    except Misfit as misfit:
        raise Misfit(f"has a field {name!r} that {misfit}") from None


class MapCheck:
    """Dicts, or lists of pairs as Arrow gives maps back; keys are never null."""

    __slots__ = ("item", "key", "kind", "nullable", "types")

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        self.kind = kind
        self.nullable = nullable
        self.key = check_for(kind.key_field)
        self.item = check_for(kind.item_field)
        self.types = frozenset({dict, _NONE} if nullable else {dict})

    def exact(self, values: Sequence[Any]) -> bool:
        if not self.types.issuperset(set(map(type, values))):
            return False
        present = list(filter(None, values))
        return self.key.exact(list(chain.from_iterable(present))) and self.item.exact(
            list(chain.from_iterable(value.values() for value in present))
        )

    def normal(self, value: Any) -> Any:
        if value is None:
            return _null(self.nullable, self.kind)
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, Mapping | list | tuple):
            raise wrong(value, self.kind)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise wrong(value, self.kind)
        return [(self.key.normal(key), self.item.normal(item)) for key, item in pairs]


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """A dict of what has names: a mapping or a dataclass instance."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None
