"""Values between Arrow and JSON, without loss: what `-o jsonl` prints, `append` takes back.

    Arrow                    JSON
    integers, bool, text     as they are
    floats                   numbers; "NaN", "Infinity", "-Infinity" as text
    decimal                  text: "12.50"
    timestamp                text: "2026-11-18T10:00:00.123456Z"; without Z where the column has no zone
    date, time               text: "2026-11-18", "10:00:00.000001"
    duration                 text, in seconds: "90.000001s"
    binary                   its text where it is valid UTF-8, else {"$binary": "<base64>"}
    uuid                     text
    list                     array
    struct                   object
    map                      object where the keys are text and differ, else an array of pairs
    null                     null

The column's type decides on the way back, so nothing here is ambiguous: a binary
column never holds objects, a float column never text. Both directions go column by
column; Arrow's own casts do the work where there are many values.
"""

from __future__ import annotations

import decimal
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.exchange.binary_mark import MARK_BEGINS, as_mark, bytes_of

_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_OUT_OF_RANGE = "<value out of range"


class Unfit(ValueError):
    """A JSON value that a column cannot hold; the words finish "column x …"."""


# -- Arrow into JSON --------------------------------------------------------------------------


def json_columns(batch: pa.RecordBatch) -> list[list[Any]]:
    """The batch's columns as lists of what the json module can write."""
    return [to_json(column) for column in batch.columns]


def to_json(array: pa.Array) -> list[Any]:
    kind = array.type
    for matches, convert in _TO_JSON:
        if matches(kind):
            return convert(array)
    return list(array.to_pylist())


def _is_extension(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _extension_to_json(array: pa.Array) -> list[Any]:
    if isinstance(array.type, pa.UuidType):
        return [None if value is None else str(value) for value in array.to_pylist()]
    return to_json(array.storage)


def _float_to_json(array: pa.Array) -> list[Any]:
    values = array.to_pylist()
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return list(values)
    return [_float_text(value) for value in values]


def _float_text(value: float | None) -> float | str | None:
    if value is None or value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _decimal_to_json(array: pa.Array) -> list[Any]:
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def _timestamp_to_json(array: pa.Array) -> list[Any]:
    zoned = array.type.tz is not None
    plain = array.cast(pa.timestamp(array.type.unit)) if zoned else array
    texts = plain.cast(pa.string()).to_pylist()
    mark = "Z" if zoned else ""
    return [None if text is None else _moment_text(text, mark, plain, at) for at, text in enumerate(texts)]


def _moment_text(text: str, mark: str, plain: pa.Array, at: int) -> Any:
    if text.startswith(_OUT_OF_RANGE):  # beyond the calendar: the number itself
        return plain[at].value
    return text.replace(" ", "T", 1) + mark


def _text_to_json(array: pa.Array) -> list[Any]:
    return list(array.cast(pa.string()).to_pylist())


def _duration_to_json(array: pa.Array) -> list[Any]:
    per_second = _UNITS_PER_SECOND[array.type.unit]
    return [_duration_text(value, per_second) for value in array.cast(pa.int64()).to_pylist()]


def _duration_text(value: int | None, per_second: int) -> str | None:
    if value is None:
        return None
    whole, part = divmod(abs(value), per_second)
    digits = len(str(per_second)) - 1
    fraction = f".{part:0{digits}d}".rstrip("0") if part else ""
    return f"{'-' if value < 0 else ''}{whole}{fraction}s"


def _binary_to_json(array: pa.Array) -> list[Any]:
    return [None if value is None else _binary_json(value) for value in array.to_pylist()]


def _binary_json(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return as_mark(value)


def _dictionary_to_json(array: pa.DictionaryArray) -> list[Any]:
    values = to_json(array.dictionary)
    return [None if index is None else values[index] for index in array.indices.to_pylist()]


def _list_to_json(array: pa.Array) -> list[Any]:
    flat = to_json(array.flatten())
    result: list[Any] = []
    at = 0
    for length in pc.list_value_length(array).to_pylist():
        result.append(None if length is None else flat[at : at + length])
        at += length or 0
    return result


def _map_to_json(array: pa.Array) -> list[Any]:
    kind = array.type
    pair = pa.struct([pa.field("key", kind.key_type, nullable=False), kind.item_field.with_name("value")])
    as_lists = array.cast(pa.list_(pair))
    pairs = as_lists.flatten()
    keys, items = to_json(pairs.field(0)), to_json(pairs.field(1))
    text = pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)
    result: list[Any] = []
    at = 0
    for length in pc.list_value_length(as_lists).to_pylist():
        if length is None:
            result.append(None)
            continue
        entries = list(zip(keys[at : at + length], items[at : at + length], strict=True))
        at += length
        as_object = dict(entries) if text else {}
        result.append(as_object if text and len(as_object) == length else [list(each) for each in entries])
    return result


def _struct_to_json(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    if not names:
        return [{} if valid else None for valid in array.is_valid().to_pylist()]
    children = [to_json(child) for child in array.flatten()]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*children, strict=True)]
    if not array.null_count:
        return list(rows)
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


_TO_JSON: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], list[Any]]], ...] = (
    (_is_extension, _extension_to_json),
    (pa.types.is_floating, _float_to_json),
    (pa.types.is_timestamp, _timestamp_to_json),
    (pa.types.is_date, _text_to_json),
    (pa.types.is_time, _text_to_json),
    (pa.types.is_decimal, _decimal_to_json),
    (pa.types.is_duration, _duration_to_json),
    (_is_binary, _binary_to_json),
    (pa.types.is_dictionary, _dictionary_to_json),
    (pa.types.is_map, _map_to_json),
    (_is_list, _list_to_json),
    (pa.types.is_struct, _struct_to_json),
)


# -- JSON into Arrow --------------------------------------------------------------------------


def plain(kind: pa.DataType) -> pa.DataType:
    """The type to build: without dictionaries and extensions, which `append` puts back."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), _plain_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type))


def wants_exact_numbers(schema: pa.Schema) -> bool:
    """Whether JSON numbers must keep their digits, because a decimal column may take them."""
    return any("decimal" in str(field.type) for field in schema)


class ColumnDecoder:
    """Turns the JSON values of one column into an array."""

    def __init__(self, field: pa.Field) -> None:
        self.name: str = field.name
        self.kind = plain(field.type)
        self._decode = decoder(field.type)
        self._quick = _quick_types(self.kind) if not _is_extension(field.type) else frozenset()
        self._extension = field.type if _is_extension(field.type) else None

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Raises Unfit with `row` set to the place of the value that does not fit."""
        result = self._quickly(values)
        if result is None:
            result = self._carefully(values)
        return self._extension.wrap_array(result) if self._extension is not None else result

    def _quickly(self, values: Sequence[Any]) -> pa.Array | None:
        if not self._quick.issuperset(map(type, values)):
            return None
        try:
            if _is_written_as_text(self.kind):
                return pa.array(values, pa.string()).cast(self.kind)
            return pa.array(values, self.kind)
        except (pa.ArrowException, OverflowError, ValueError):
            return None  # the careful way finds the value

    def _carefully(self, values: Sequence[Any]) -> pa.Array:
        decoded = []
        for row, value in enumerate(values):
            try:
                decoded.append(None if value is None else self._decode(value))
            except Unfit as error:
                raise _at(error, row) from None
        try:
            return pa.array(decoded, self.kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            raise self._culprit(values, decoded) from None

    def _culprit(self, values: Sequence[Any], decoded: Sequence[Any]) -> Unfit:
        for row, value in enumerate(decoded):
            try:
                pa.array([value], self.kind)
            except (pa.ArrowException, OverflowError, ValueError, TypeError):
                return _at(misfit(values[row], self.kind), row)
        return _at(Unfit("does not fit into one block: append fewer rows at a time"), 0)


def _at(error: Unfit, row: int) -> Unfit:
    error.row = row  # type: ignore[attr-defined]
    return error


def misfit(value: Any, kind: pa.DataType) -> Unfit:
    shown = repr(value) if not isinstance(value, decimal.Decimal) else str(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return Unfit(f"is {kind}, which {shown} does not fit")


_NULL = type(None)


def _is_written_as_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _quick_types(kind: pa.DataType) -> frozenset[type]:
    """The Python types of JSON values that Arrow takes for this type without being asked twice."""
    if pa.types.is_integer(kind):
        return frozenset((int, _NULL))
    if pa.types.is_floating(kind):
        return frozenset((float, _NULL))
    if pa.types.is_boolean(kind):
        return frozenset((bool, _NULL))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_written_as_text(kind):
        return frozenset((str, _NULL))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return frozenset((str, _NULL))
    return frozenset()


def decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    """From one JSON value that is not null to what `pa.array` takes for `plain(kind)`."""
    if isinstance(kind, pa.UuidType):
        return _uuid_from_json
    if isinstance(kind, pa.BaseExtensionType):
        return decoder(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return decoder(kind.value_type)
    if _is_list(kind):
        return _list_decoder(kind)
    if pa.types.is_map(kind):
        return _map_decoder(kind)
    if pa.types.is_struct(kind):
        return _struct_decoder(kind)
    for matches, make in _LEAVES:
        if matches(kind):
            return make(kind)
    raise Unfit(f"is {kind}, which has no form in JSON")


def _only(kind: pa.DataType, *wanted: type) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if type(value) not in wanted:
            raise misfit(value, kind)
        return value

    return decode


def _float_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if type(value) in (int, float):
            return value
        if isinstance(value, decimal.Decimal):
            return float(value)
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        raise misfit(value, kind)

    return decode


def _decimal_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        try:
            if type(value) in (int, str, decimal.Decimal):
                return pa.scalar(decimal.Decimal(value), kind).as_py()
        except (decimal.InvalidOperation, pa.ArrowException):
            pass
        raise misfit(value, kind)

    return decode


def _cast_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    """Moments and dates: Arrow reads the text, and a number is the stored value itself."""

    def decode(value: Any) -> Any:
        if type(value) is int and pa.types.is_timestamp(kind):
            return value
        if type(value) is not str:
            raise misfit(value, kind)
        try:
            return pa.scalar(value).cast(kind).value
        except pa.ArrowException:
            raise misfit(value, kind) from None

    return decode


_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?", re.ASCII)


def _clock_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    """Times of day, which Arrow prints but does not read."""
    per_second = _UNITS_PER_SECOND[kind.unit]

    def decode(value: Any) -> Any:
        match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise misfit(value, kind)
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
        nanoseconds = int((match[4] or "0").ljust(9, "0"))
        part, finer = divmod(nanoseconds * per_second, 10**9)
        if finer:
            raise misfit(value, kind)
        return seconds * per_second + part

    return decode


def _duration_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    per_second = _UNITS_PER_SECOND[kind.unit]

    def decode(value: Any) -> Any:
        if not isinstance(value, str) or not value.endswith("s"):
            raise misfit(value, kind)
        try:
            amount = decimal.Decimal(value[:-1]) * per_second
        except decimal.InvalidOperation:
            raise misfit(value, kind) from None
        if amount != amount.to_integral_value():
            raise misfit(value, kind)
        return int(amount)

    return decode


def _binary_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    width = kind.byte_width if pa.types.is_fixed_size_binary(kind) else None

    def decode(value: Any) -> bytes:
        try:
            data = bytes_of(value)
        except (ValueError, TypeError):
            raise misfit(value, kind) from None
        if width is not None and len(data) != width:
            raise misfit(value, kind)
        return data

    return decode


def _uuid_from_json(value: Any) -> bytes:
    try:
        return uuid.UUID(value).bytes
    except (ValueError, TypeError, AttributeError):
        raise misfit(value, pa.uuid()) from None


def _inside(decode: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else decode(value)


def _list_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    decode_item = decoder(kind.value_type)

    def decode(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise misfit(value, kind)
        return [_inside(decode_item, item) for item in value]

    return decode


def _map_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    decode_key, decode_item = decoder(kind.key_type), decoder(kind.item_type)

    def decode(value: Any) -> list[tuple[Any, Any]]:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
            raise misfit(value, kind)
        return [(_inside(decode_key, key), _inside(decode_item, item)) for key, item in pairs]

    return decode


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _struct_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    fields = {field.name: decoder(field.type) for field in kind}

    def decode(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise misfit(value, kind)
        for name in value:
            if name not in fields:
                raise Unfit(f"has no field {name!r} in {kind}")
        return {name: _inside(decode, value.get(name)) for name, decode in fields.items()}

    return decode


_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Callable[[Any], Any]]], ...] = (
    (pa.types.is_integer, lambda kind: _only(kind, int)),
    (pa.types.is_floating, _float_decoder),
    (pa.types.is_boolean, lambda kind: _only(kind, bool)),
    (pa.types.is_string, lambda kind: _only(kind, str)),
    (pa.types.is_large_string, lambda kind: _only(kind, str)),
    (_is_binary, _binary_decoder),
    (pa.types.is_decimal, _decimal_decoder),
    (pa.types.is_timestamp, _cast_decoder),
    (pa.types.is_date, _cast_decoder),
    (pa.types.is_time, _clock_decoder),
    (pa.types.is_duration, _duration_decoder),
    (pa.types.is_null, lambda kind: _only(kind, _NULL)),
)


# -- one cell of text, into a JSON value -------------------------------------------------------


def cell_reader(kind: pa.DataType, read_json: Callable[[str], Any]) -> Callable[[str], Any]:
    """From the text of a cell to the JSON value of a column of this type."""
    bare = plain(kind)
    if pa.types.is_integer(bare) or pa.types.is_boolean(bare) or pa.types.is_nested(bare):
        return lambda text: _parsed(text, bare, read_json)
    if pa.types.is_floating(bare):
        return lambda text: text if text in _NOT_FINITE else _float_of(text, bare)
    if pa.types.is_string(bare) or pa.types.is_large_string(bare):
        return _unmarked
    if _is_binary(bare) and not isinstance(kind, pa.UuidType):
        return lambda text: _parsed(text, bare, read_json) if text.startswith(MARK_BEGINS) else text
    return lambda text: text


def _unmarked(text: str) -> str:
    """Text of a text column; our mark only stands for text that began like the mark."""
    if not text.startswith(MARK_BEGINS):
        return text
    try:
        return bytes_of(json.loads(text)).decode()
    except ValueError:
        return text


def _parsed(text: str, kind: pa.DataType, read_json: Callable[[str], Any]) -> Any:
    try:
        return read_json(text)
    except ValueError:
        raise misfit(text, kind) from None


def _float_of(text: str, kind: pa.DataType) -> float:
    try:
        return float(text)
    except ValueError:
        raise misfit(text, kind) from None
