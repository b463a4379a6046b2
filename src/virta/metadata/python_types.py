"""What Python types mean as Arrow types, and which Arrow types a topic may have.

    int      int64          datetime  timestamp[us, UTC]     UUID          arrow.uuid
    float    float64        date      date32                 list[T]       list<T>
    str      string         time      time64[us]             dict[str, T]  map<string, T>
    bool     bool           timedelta duration[us]           {...}, dataclass, TypedDict  struct
    bytes    binary         Decimal   decimal128(38, 9)      Literal, Enum of text  dictionary<string>

Inside other types, dictionaries are plain values and a UUID is 16 bytes. A type is
"not null" unless it says `| None`; a pyarrow type alone may be null, as it may in a
pyarrow field. Knows no topics and no rows.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from virta.errors import SchemaMismatch

Spec: TypeAlias = Mapping[str, Any]

# Deeper nesting than this is a mistake or an attack; every reader recurses over it.
DEPTH_LIMIT = 32

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", tz="UTC"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 9),
    uuid.UUID: pa.uuid(),
}

# Layouts are not values: some are stored as a plainer type that holds the same values.
# A view shares its bytes with others, so a slice of it cannot be cut out and hashed.
_SETTLED: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}

_LABELS = pa.dictionary(pa.int32(), pa.string())

_HINT = (
    "use int, float, str, bool, bytes, datetime, date, time, timedelta, Decimal, UUID, "
    "list[T], dict[str, T], a dict of columns, a dataclass, a pyarrow type, or any of these | None"
)


def describe(kind: pa.DataType) -> str:
    """A type as people write it."""
    for wanted, known in _PLAIN.items():
        if kind.equals(known):
            return str(wanted.__name__)
    return str(kind)


# -- Python types ---------------------------------------------------------------------------


def field_of(name: Any, wanted: Any, *, depth: int = 0) -> pa.Field:
    """One column from its name and what was given as its type."""
    if not isinstance(name, str):
        raise SchemaMismatch(f"a column's name is text, not {name!r}")
    if isinstance(wanted, pa.Field):
        return wanted.with_name(name)
    if isinstance(wanted, pa.DataType):
        return pa.field(name, wanted)
    kind, nullable = _resolve(wanted, name, depth)
    return pa.field(name, kind, nullable=nullable)


def fields_of_class(wanted: type) -> list[pa.Field]:
    """The columns of a dataclass or TypedDict."""
    return _class_fields(wanted, wanted.__name__, depth=0)


def _resolve(wanted: Any, column: str, depth: int) -> tuple[pa.DataType, bool]:
    """The Arrow type, and whether null is allowed."""
    if depth > DEPTH_LIMIT:
        raise SchemaMismatch(f"column {column!r} is nested deeper than {DEPTH_LIMIT}", column=column)
    wanted = _unwrapped(wanted)
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return _resolve_union(arguments, column, depth)
    if origin is typing.Literal:
        return _labels(arguments, column), None in arguments
    if isinstance(wanted, pa.Field):
        return wanted.type, wanted.nullable
    if isinstance(wanted, pa.DataType):
        return wanted, True
    return _resolve_type(wanted, origin, arguments, column, depth), False


def _unwrapped(wanted: Any) -> Any:
    """What stands inside Annotated, NewType, Required and NotRequired."""
    while True:
        origin = typing.get_origin(wanted)
        if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
            wanted = typing.get_args(wanted)[0]
        elif isinstance(wanted, typing.NewType):
            wanted = wanted.__supertype__
        else:
            return wanted


def _resolve_union(arguments: Sequence[Any], column: str, depth: int) -> tuple[pa.DataType, bool]:
    rest = [argument for argument in arguments if argument is not types.NoneType]
    if len(rest) != 1:
        raise SchemaMismatch(f"column {column!r} cannot hold one of several types", column=column, hint=_HINT)
    kind, nullable = _resolve(rest[0], column, depth + 1)
    return kind, nullable or len(rest) < len(arguments)


def _resolve_type(wanted: Any, origin: Any, arguments: Sequence[Any], column: str, depth: int) -> pa.DataType:
    if isinstance(wanted, Mapping):
        return _struct([field_of(name, inner, depth=depth + 1) for name, inner in wanted.items()])
    if origin in (list, Sequence, tuple):
        return _list(origin, arguments, column, depth)
    if origin in (dict, Mapping):
        return _map(arguments, column, depth)
    if isinstance(wanted, type):
        if wanted in _PLAIN:
            return _PLAIN[wanted]
        if issubclass(wanted, enum.Enum):
            return _labels([member.value for member in wanted], column)
        if dataclasses.is_dataclass(wanted) or typing.is_typeddict(wanted):
            return _struct(_class_fields(wanted, column, depth=depth + 1))
    raise unsupported(column, wanted)


def unsupported(column: str, wanted: Any) -> SchemaMismatch:
    """The refusal of a type that no column can have."""
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    hint = _HINT
    if wanted is list or wanted is dict:
        hint = f"say what is in it: {'list[str]' if wanted is list else 'dict[str, int]'}"
    return SchemaMismatch(f"column {column!r} cannot have the type {name}", column=column, hint=hint)


def _struct(fields: Sequence[pa.Field]) -> pa.DataType:
    return pa.struct(fields)


def _list(origin: Any, arguments: Sequence[Any], column: str, depth: int) -> pa.DataType:
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise SchemaMismatch(
            f"column {column!r}: a tuple of fixed length is not a type here",
            column=column,
            hint="use list[T], tuple[T, ...] or a dict of fields",
        )
    return pa.list_(field_of("item", arguments[0], depth=depth + 1))


def _map(arguments: Sequence[Any], column: str, depth: int) -> pa.DataType:
    key, nullable = _resolve(arguments[0], column, depth + 1)
    if nullable or pa.types.is_nested(key):
        raise SchemaMismatch(
            f"column {column!r}: the keys of a dict are plain values and never None", column=column
        )
    return pa.map_(key, field_of("value", arguments[1], depth=depth + 1))


def _labels(values: Sequence[Any], column: str) -> pa.DataType:
    """A closed set of values: text is stored once per block, numbers as they are."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return _LABELS
    if kinds and all(issubclass(kind, int) and kind is not bool for kind in kinds):
        return pa.int64()
    raise SchemaMismatch(
        f"column {column!r}: the values of a Literal or Enum are all text or all int",
        column=column,
    )


def _class_fields(wanted: type, column: str, *, depth: int) -> list[pa.Field]:
    if not (dataclasses.is_dataclass(wanted) or typing.is_typeddict(wanted)):
        raise unsupported(column, wanted)
    try:
        hints = typing.get_type_hints(wanted, include_extras=True)
    except (NameError, TypeError) as error:
        raise SchemaMismatch(f"the types of {wanted.__name__} cannot be found: {error}") from error
    return [
        field_of(name, hint | None if _is_optional(wanted, name, hint) else hint, depth=depth)
        for name, hint in hints.items()
    ]


def _is_optional(wanted: type, name: str, hint: Any) -> bool:
    """Whether a TypedDict lets this key be absent; its own list misses postponed annotations."""
    if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
        return typing.get_origin(hint) is typing.NotRequired
    optional: frozenset[str] = getattr(wanted, "__optional_keys__", frozenset())
    return name in optional


# -- Arrow types ----------------------------------------------------------------------------


def settle(field: pa.Field) -> pa.Field:
    """The field as it is stored; refuses types that a block cannot hold."""
    return field.with_type(_settled(field.type, field.name, 0))


def _settled(kind: pa.DataType, column: str, depth: int) -> pa.DataType:
    if depth > DEPTH_LIMIT:
        raise SchemaMismatch(f"column {column!r} is nested deeper than {DEPTH_LIMIT}", column=column)
    if kind in _SETTLED:
        return _SETTLED[kind]
    if isinstance(kind, pa.BaseExtensionType):
        return _settled_extension(kind, column, depth)
    if pa.types.is_dictionary(kind):
        return _settled_dictionary(kind, column, depth)
    if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind):
        return _settled_nested(kind, column, depth)
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _settled_nested(kind, column, depth)
    if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
        raise unsupported(column, kind)
    return kind


def _settled_extension(kind: pa.DataType, column: str, depth: int) -> pa.DataType:
    storage = _settled(kind.storage_type, column, depth)
    if depth:
        # pyarrow cannot filter or take rows of structs and lists that hold extensions
        return storage
    if not storage.equals(kind.storage_type):
        raise unsupported(column, kind)
    return kind


def _settled_dictionary(kind: pa.DataType, column: str, depth: int) -> pa.DataType:
    inner = kind.value_type
    if pa.types.is_nested(inner) or pa.types.is_dictionary(inner):
        raise unsupported(column, kind)
    value = _settled(kind.value_type, column, depth + 1)
    if depth:
        # under a null struct pyarrow puts index 0 into a dictionary that may be empty
        return value
    return pa.dictionary(kind.index_type, value, ordered=kind.ordered)


def _settled_nested(kind: pa.DataType, column: str, depth: int) -> pa.DataType:
    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_settled(field.type, f"{column}.{field.name}", depth + 1))

    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_struct(kind):
        return _settled_struct([inner(kind.field(at)) for at in range(kind.num_fields)], column)
    value = inner(kind.value_field)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return pa.large_list(value) if pa.types.is_large_list(kind) else pa.list_(value)


def _settled_struct(fields: Sequence[pa.Field], column: str) -> pa.DataType:
    names = [field.name for field in fields]
    if not names or len(set(names)) != len(names):
        raise SchemaMismatch(
            f"column {column!r}: a struct needs fields, each with its own name", column=column
        )
    return pa.struct(fields)
