"""Schemas as people type them: `id:int user:str? amount:float tags:str[]`.

    column    name:type
    type      int float str bool bytes datetime date time duration decimal uuid label, or Arrow's
              own names with what they need in brackets: int8 … uint64, float32, large_str,
              decimal(10,2), decimal256(50,4), timestamp(ms), timestamp(ns,Europe/Helsinki),
              time32(s), time64(ns), duration(ms), date64, bytes(16)
    null      a `?` at the end: without it the column is never null
    list      str[]  str?[]  float[3] (of fixed length)
    struct    {lat:float,lon:float?}
    map       map<str,int>
    label     text of few different values, stored once per block (a dictionary)

`text_of` is the way back, so what `topic show` prints makes the same topic again.
A JSON file says the same: {"id": "int", "place": {"lat": "float"}}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.errors import UsageError
from virta.exchange.files import own_columns, schema_of_file
from virta.metadata.schemas import HEADERS, suggest

FORMS = "id:int user:str? amount:float at:datetime tags:str[] price:decimal(10,2) place:{lat:float,lon:float}"

_UNITS = ("s", "ms", "us", "ns")
_MOMENT = pa.timestamp("us", tz="UTC")

# The first name of a type is the one that is printed.
_PLAIN: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "datetime": _MOMENT,
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "decimal": pa.decimal128(38, 9),
    "uuid": pa.uuid(),
    "label": pa.dictionary(pa.int32(), pa.string()),
    "large_str": pa.large_string(),
    "large_bytes": pa.large_binary(),
    "date64": pa.date64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32)},
    **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
}
_ALIASES = {
    "string": "str",
    "text": "str",
    "binary": "bytes",
    "integer": "int",
    "int64": "int",
    "float64": "float",
    "double": "float",
    "boolean": "bool",
    "timestamp": "datetime",
    "timedelta": "duration",
    "date32": "date",
    "large_string": "large_str",
    "large_binary": "large_bytes",
    "decimal128": "decimal",
    "category": "label",
}

_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|(\d+)|(.))", re.DOTALL)


# -- from text ----------------------------------------------------------------------------------


def schema_of_words(words: Iterable[str]) -> pa.Schema:
    """The schema of `id:int user:str?`, given word by word."""
    fields = []
    for word in words:
        name, colon, text = word.partition(":")
        if not colon or not name or not text:
            raise UsageError(f'"{word}" is not a column', hint=f"write name:type, as in {FORMS}")
        fields.append(_field(name, text))
    return pa.schema(fields)


def _field(name: str, text: str) -> pa.Field:
    kind, nullable = _Parser(name, text).whole()
    return pa.field(name, kind, nullable=nullable)


class _Parser:
    """Recursive descent over one type."""

    def __init__(self, column: str, text: str) -> None:
        self._column = column
        self._text = text
        self._at = 0

    def whole(self) -> tuple[pa.DataType, bool]:
        found = self._type()
        if self._peek():
            raise self._wrong()
        return found

    def _type(self) -> tuple[pa.DataType, bool]:
        kind = self._base()
        nullable = False
        while True:
            if self._take("?"):
                nullable = True
            elif self._take("["):
                item = pa.field("item", kind, nullable=nullable)
                kind = pa.list_(item) if self._peek() == "]" else pa.list_(item, self._number())
                self._expect("]")
                nullable = False
            else:
                return kind, nullable

    def _base(self) -> pa.DataType:
        if self._take("{"):
            return self._struct()
        name = self._word()
        if name in ("map", "dict"):
            return self._map()
        arguments = self._arguments() if self._take("(") else []
        return self._named(_ALIASES.get(name, name), arguments)

    def _struct(self) -> pa.DataType:
        fields = []
        while True:
            name = self._word()
            self._expect(":")
            kind, nullable = self._type()
            fields.append(pa.field(name, kind, nullable=nullable))
            if self._take("}"):
                return pa.struct(fields)
            self._expect(",")

    def _map(self) -> pa.DataType:
        self._expect("<")
        key, _ = self._type()
        self._expect(",")
        item, nullable = self._type()
        self._expect(">")
        return pa.map_(key, pa.field("value", item, nullable=nullable))

    def _arguments(self) -> list[str]:
        end = self._text.find(")", self._at)
        if end < 0:
            raise self._wrong()
        inside = self._text[self._at : end]
        self._at = end + 1
        return [part.strip() for part in inside.split(",")]

    def _named(self, name: str, arguments: Sequence[str]) -> pa.DataType:
        try:
            if not arguments:
                return _PLAIN[name]
            return _with_arguments(name, arguments)
        except KeyError:
            known = sorted({*_PLAIN, "map"})
            near = suggest(name, known)
            raise UsageError(
                f'column "{self._column}": there is no type "{name}"',
                hint=near if near.startswith("did") else f"the types are: {', '.join(_PLAIN)}",
            ) from None
        except (ValueError, TypeError, pa.ArrowException):
            raise self._wrong() from None

    # -- signs ------------------------------------------------------------------------------------

    def _next(self) -> tuple[str, int]:
        match = _TOKEN.match(self._text, self._at)
        return (match.group(1) or match.group(2) or match.group(3), match.end()) if match else ("", self._at)

    def _peek(self) -> str:
        return self._next()[0]

    def _take(self, sign: str) -> bool:
        found, end = self._next()
        if found != sign:
            return False
        self._at = end
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong()

    def _word(self) -> str:
        found, end = self._next()
        if not (found and (found[0].isalpha() or found[0] == "_")):
            raise self._wrong()
        self._at = end
        return found

    def _number(self) -> int:
        found, end = self._next()
        if not found.isdigit():
            raise self._wrong()
        self._at = end
        return int(found)

    def _wrong(self) -> UsageError:
        return UsageError(
            f'column "{self._column}": "{self._text}" is not a type', hint=f"write types as in {FORMS}"
        )


def _with_arguments(name: str, arguments: Sequence[str]) -> pa.DataType:
    if name == "decimal":
        return pa.decimal128(*_numbers(arguments, 2))
    if name == "decimal256":
        return pa.decimal256(*_numbers(arguments, 2))
    if name == "bytes":
        return pa.binary(*_numbers(arguments, 1))
    if name == "datetime":
        zone = ",".join(arguments[1:])
        return pa.timestamp(_unit(arguments[0]), tz=zone or None)
    makers = {"time32": pa.time32, "time64": pa.time64, "duration": pa.duration}
    if len(arguments) != 1:
        raise ValueError
    return makers[name](_unit(arguments[0]))


def _numbers(arguments: Sequence[str], count: int) -> list[int]:
    if len(arguments) != count:
        raise ValueError
    return [int(argument) for argument in arguments]


def _unit(text: str) -> str:
    if text not in _UNITS:
        raise ValueError
    return text


# -- from files -----------------------------------------------------------------------------------


def schema_of_json(path: Path) -> tuple[pa.Schema, bool]:
    """The schema in a JSON file (names and types, structs as objects), and whether it has headers."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if isinstance(document, dict) and isinstance(document.get("schema"), dict):
        document = document["schema"]  # what `topic show -o json` printed
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds no object", hint='write {"id": "int", "user": "str?"}')
    fields = [_field_of_json(name, wanted) for name, wanted in document.items() if name != HEADERS]
    return pa.schema(fields), HEADERS in document


def _field_of_json(name: str, wanted: Any) -> pa.Field:
    if isinstance(wanted, str):
        return _field(name, wanted)
    if isinstance(wanted, Mapping):
        inside = [_field_of_json(inner, each) for inner, each in wanted.items()]
        return pa.field(name, pa.struct(inside), nullable=False)
    raise UsageError(f'column "{name}" has {json.dumps(wanted)} as its type', hint='write "int" or "str?"')


def schema_of_data(path: Path) -> pa.Schema:
    """The schema of a Parquet or Arrow file, without the columns that are Virta's own."""
    return own_columns(schema_of_file(path), path)


# -- back to text -----------------------------------------------------------------------------------

_NAMES = {kind: name for name, kind in reversed(_PLAIN.items())}


def text_of(field: pa.Field) -> str:
    """The type of a column as it is typed."""
    return _text(field.type) + ("?" if field.nullable else "")


def texts_of(schema: pa.Schema) -> dict[str, str]:
    return {field.name: text_of(field) for field in schema}


def _text(kind: pa.DataType) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_struct(kind):
        return "{" + ",".join(f"{field.name}:{text_of(field)}" for field in kind) + "}"
    if pa.types.is_map(kind):
        return f"map<{_text(kind.key_type)},{text_of(kind.item_field)}>"
    if pa.types.is_fixed_size_list(kind):
        return f"{text_of(kind.value_field)}[{kind.list_size}]"
    if pa.types.is_list(kind):
        return f"{text_of(kind.value_field)}[]"
    if pa.types.is_decimal(kind):
        name = "decimal256" if pa.types.is_decimal256(kind) else "decimal"
        return f"{name}({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return f"timestamp({kind.unit}{',' + kind.tz if kind.tz else ''})"
    if pa.types.is_time(kind):
        return f"time{kind.bit_width}({kind.unit})"
    if pa.types.is_duration(kind):
        return f"duration({kind.unit})"
    if pa.types.is_fixed_size_binary(kind):
        return f"bytes({kind.byte_width})"
    return str(kind)
