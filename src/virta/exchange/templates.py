"""Made-up rows, from a template or from a topic's columns; the same seed gives the same rows.

A template is a JSON object whose texts hold functions in double braces:

    {"id": "{{count}}", "user": "{{name}}", "amount": "{{float 1 100}}", "note": "order {{count}}"}

A text that is one function alone takes the function's own type (a number, a list …); inside
other text it becomes text. What is no text is taken as it is. Rows are JSON values, so
whatever `append` takes from a file can be made up.
"""

from __future__ import annotations

import datetime
import json
import random
import re
import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from virta.errors import UsageError
from virta.exchange.binary_mark import as_mark

if TYPE_CHECKING:
    import pyarrow as pa

Maker: TypeAlias = Callable[[random.Random, int], Any]

NAMES = ("ada", "bob", "carol", "dan", "eve", "frank", "grace", "heidi", "ivan", "judy", "ken", "lin")
WORDS = (
    *("stream", "current", "river", "lake", "harbour", "rain", "delta", "ocean"),
    *("spring", "tide", "wave", "shore", "reed", "mist", "ice", "salt"),
)
CITIES = ("Helsinki", "Turku", "Tampere", "Oulu", "Kyiv", "Lyon", "Osaka", "Lima", "Accra", "Pune")
COUNTRIES = ("FI", "SE", "UA", "FR", "JP", "PE", "GH", "IN", "US", "BR")
PATHS = ("/", "/search", "/cart", "/checkout", "/help", "/account", "/item/17", "/item/42")

# Columns and rows of the built-in templates.
BUILT_IN: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "orders": (
        ("id:int", "user:str", "amount:float", "country:label"),
        {"id": "{{count 1}}", "user": "{{name}}", "amount": "{{float 1 200}}", "country": "{{country}}"},
    ),
    "clicks": (
        ("user:str", "path:label", "milliseconds:int", "referrer:str?"),
        {
            "user": "{{name}}",
            "path": "{{path}}",
            "milliseconds": "{{int 1 900}}",
            "referrer": "{{maybe 0.4 choice search mail ad}}",
        },
    ),
    "sensors": (
        ("sensor:label", "celsius:float", "humidity:float?", "measured:datetime"),
        {
            "sensor": "sensor-{{int 1 9}}",
            "celsius": "{{normal 20 4}}",
            "humidity": "{{maybe 0.8 float 0 1}}",
            "measured": "{{now}}",
        },
    ),
}


# -- functions --------------------------------------------------------------------------------


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f'"{text}" in {what} is not a number') from None


def _count(first: str = "0") -> Maker:
    start = int(_number(first, "count"))
    return lambda _, row: start + row


def _int(least: str = "0", most: str = "1000000") -> Maker:
    low, high = int(_number(least, "int")), int(_number(most, "int"))
    if low > high:
        raise UsageError(f"int {least} {most}: the least comes first")
    return lambda chance, _: chance.randint(low, high)


def _float(least: str = "0", most: str = "1", digits: str = "2") -> Maker:
    low, high, places = _number(least, "float"), _number(most, "float"), int(_number(digits, "float"))
    return lambda chance, _: round(chance.uniform(low, high), places)


def _normal(middle: str = "0", spread: str = "1") -> Maker:
    mean, deviation = _number(middle, "normal"), _number(spread, "normal")
    return lambda chance, _: round(chance.gauss(mean, deviation), 2)


def _choice(*options: str) -> Maker:
    if not options:
        raise UsageError("choice needs something to choose from", hint="{{choice red green blue}}")
    return lambda chance, _: chance.choice(options)


def _of(options: Sequence[str]) -> Callable[[], Maker]:
    return lambda: lambda chance, _: chance.choice(options)


def _words(number: str = "4") -> Maker:
    many = int(_number(number, "words"))
    return lambda chance, _: " ".join(chance.choices(WORDS, k=many))


def _bytes(number: str = "16") -> Maker:
    many = int(_number(number, "bytes"))
    return lambda chance, _: as_mark(chance.randbytes(many))


def _email() -> Maker:
    return lambda chance, _: f"{chance.choice(NAMES)}@{chance.choice(WORDS)}.example"


def _uuid() -> Maker:
    return lambda chance, _: str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _address() -> Maker:
    return lambda chance, _: f"192.0.2.{chance.randrange(1, 255)}"


def _now() -> Maker:
    return lambda _, __: _moment(time.time_ns() // 1000)


def _bool(share: str = "0.5") -> Maker:
    part = _number(share, "bool")
    return lambda chance, _: chance.random() < part


def _maybe(share: str, *rest: str) -> Maker:
    """The function that follows in this share of rows, else null."""
    part = _number(share, "maybe")
    inner = _function(rest)
    return lambda chance, row: inner(chance, row) if chance.random() < part else None


FUNCTIONS: dict[str, Callable[..., Maker]] = {
    "count": _count,
    "int": _int,
    "float": _float,
    "normal": _normal,
    "bool": _bool,
    "choice": _choice,
    "name": _of(NAMES),
    "word": _of(WORDS),
    "words": _words,
    "city": _of(CITIES),
    "country": _of(COUNTRIES),
    "path": _of(PATHS),
    "email": _email,
    "ip": _address,
    "uuid": _uuid,
    "bytes": _bytes,
    "now": _now,
    "maybe": _maybe,
}

_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def _function(words: Sequence[str]) -> Maker:
    if not words or words[0] not in FUNCTIONS:
        raise UsageError(
            f'there is no function "{words[0] if words else ""}" in templates',
            hint=f"the functions are: {', '.join(FUNCTIONS)}",
        )
    try:
        return FUNCTIONS[words[0]](*words[1:])
    except TypeError:
        raise UsageError(f'"{" ".join(words)}" has too many or too few arguments') from None


# -- templates ----------------------------------------------------------------------------------


def compile_template(document: Mapping[str, Any]) -> Maker:
    """The rows of a template."""
    makers = {name: _maker(value) for name, value in document.items()}
    return lambda chance, row: {name: make(chance, row) for name, make in makers.items()}


def _maker(value: Any) -> Maker:
    if isinstance(value, str):
        return _text_maker(value)
    if isinstance(value, Mapping):
        return compile_template(value)
    if isinstance(value, list):
        items = [_maker(item) for item in value]
        return lambda chance, row: [make(chance, row) for make in items]
    return lambda _, __: value


def _text_maker(text: str) -> Maker:
    whole = _BRACES.fullmatch(text)
    if whole and text.count("{{") == 1:
        return _function(shlex.split(whole.group(1)))
    pieces = _BRACES.split(text)
    makers = [_function(shlex.split(piece)) for piece in pieces[1::2]]
    if not makers:
        return lambda _, __: text

    def make(chance: random.Random, row: int) -> str:
        made = [str(each(chance, row)) for each in makers]
        return pieces[0] + "".join(a + b for a, b in zip(made, pieces[2::2], strict=True))

    return make


def read_template(text: str) -> tuple[Maker, tuple[str, ...] | None]:
    """A built-in name, JSON, or @FILE; with the columns a built-in one wants."""
    if text in BUILT_IN:
        columns, rows = BUILT_IN[text]
        return compile_template(rows), columns
    if text.startswith("@"):
        from pathlib import Path

        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"the template is not JSON: {error}",
            hint='write \'{"user": "{{name}}"}\', @FILE, or one of ' + ", ".join(BUILT_IN),
        ) from None
    if not isinstance(document, dict):
        raise UsageError("a template is a JSON object: a row", hint='{"user": "{{name}}"}')
    return compile_template(document), None


# -- from columns ---------------------------------------------------------------------------------

# What a text column probably holds, by its name.
_BY_NAME: tuple[tuple[tuple[str, ...], str], ...] = (
    (("email", "mail"), "email"),
    (("user", "name", "author", "customer", "owner"), "name"),
    (("city", "town"), "city"),
    (("country", "region"), "country"),
    (("url", "path", "page"), "path"),
    (("ip", "address", "host"), "ip"),
    (("status", "state"), "choice new open done failed"),
    (("id", "uuid", "key"), "uuid"),
)


def maker_of_schema(schema: pa.Schema) -> Maker:
    """Rows that fit a topic's columns; where null is allowed, one in ten is null."""
    makers = {
        field.name: _maker_of_field(field.name, field.type, field.nullable)
        for field in schema
        if field.name != "_headers"
    }
    return lambda chance, row: {name: make(chance, row) for name, make in makers.items()}


def _maker_of_field(name: str, kind: pa.DataType, nullable: bool) -> Maker:
    make = _maker_of_type(name, kind)
    if not nullable:
        return make
    return lambda chance, row: None if chance.random() < 0.1 else make(chance, row)


def _maker_of_type(name: str, kind: pa.DataType) -> Maker:
    import pyarrow as pa  # not for --help

    types = pa.types
    if isinstance(kind, pa.UuidType):
        return _uuid()
    if isinstance(kind, pa.BaseExtensionType):
        return _maker_of_type(name, kind.storage_type)
    if types.is_dictionary(kind):
        return _maker_of_type(name, kind.value_type)
    if types.is_integer(kind):
        return _maker_of_integer(name, kind)
    if types.is_floating(kind):
        return _float("0", "100")
    if types.is_boolean(kind):
        return _bool()
    if types.is_string(kind) or types.is_large_string(kind):
        return _maker_of_text(name)
    if types.is_decimal(kind):
        return _maker_of_decimal(kind)
    if types.is_fixed_size_binary(kind):
        return _bytes(str(kind.byte_width))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _uuid() if name == "key" else _words()
    if types.is_temporal(kind):
        return _maker_of_time(kind)
    return _maker_of_nested(name, kind)


def _maker_of_integer(name: str, kind: pa.DataType) -> Maker:
    most = min(1_000_000, (1 << (kind.bit_width - 1)) - 1)
    if name == "id" or name.endswith("_id"):
        return lambda _, row: row % (most + 1)
    return lambda chance, _: chance.randint(0, most)


def _maker_of_text(name: str) -> Maker:
    for parts, function in _BY_NAME:
        if any(part in name.lower().split("_") for part in parts):
            return _function(function.split())
    return _words("3")


def _maker_of_decimal(kind: pa.DataType) -> Maker:
    most = 10 ** min(kind.precision, 6) - 1
    scale = kind.scale

    def make(chance: random.Random, _: int) -> str:
        digits = str(chance.randint(0, most)).rjust(scale + 1, "0") if scale > 0 else "0"
        return f"{digits[:-scale]}.{digits[-scale:]}" if scale > 0 else digits

    return make


def _maker_of_time(kind: pa.DataType) -> Maker:
    import pyarrow as pa  # not for --help

    if pa.types.is_timestamp(kind):
        return lambda _, __: _moment(time.time_ns() // 1000, unit=kind.unit, zoned=kind.tz is not None)
    if pa.types.is_date(kind):
        return lambda chance, _: str(datetime.date(2026, 1, 1) + datetime.timedelta(chance.randrange(365)))
    if pa.types.is_time(kind):
        return lambda chance, _: f"{chance.randrange(24):02}:{chance.randrange(60):02}:00"
    return lambda chance, _: f"{chance.randrange(3600)}s"


def _moment(now_us: int, *, unit: str = "us", zoned: bool = True) -> str:
    precision = {"s": "seconds", "ms": "milliseconds"}.get(unit, "microseconds")
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=now_us)
    return moment.isoformat(timespec=precision) + ("Z" if zoned else "")


def _maker_of_nested(name: str, kind: pa.DataType) -> Maker:
    import pyarrow as pa  # not for --help

    if pa.types.is_struct(kind):
        return maker_of_schema(pa.schema(list(kind)))
    if pa.types.is_map(kind):
        key, item = _maker_of_type("word", kind.key_type), _maker_of_type(name, kind.item_type)
        return lambda chance, row: [[key(chance, row), item(chance, row)]]
    if pa.types.is_fixed_size_list(kind):
        each = _maker_of_type(name, kind.value_type)
        return lambda chance, row: [each(chance, row) for _ in range(kind.list_size)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _maker_of_type(name, kind.value_type)
        return lambda chance, row: [each(chance, row) for _ in range(chance.randrange(4))]
    return lambda _, __: None
