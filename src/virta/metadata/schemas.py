"""Schemas: what a user asks for, what is stored, and how one may become the next.

Three forms of one thing:

- the *user* schema: the topic's own columns, and `_headers` at the end where enabled;
- the *stored* schema: `_offset`, `_timestamp`, in update topics `_deleted`, then the user schema;
- the *bytes*: the stored schema as one Arrow IPC message, which is what is hashed.

Every column of the user carries a number in its field metadata (`virta.id`) that it
keeps for life: a rename changes the name, never the number, so an old block finds its
place in a newer schema.

This module knows types and nothing else: no rows, no files, no topics. What Python
types mean is in `python_types`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from blake3 import blake3

from virta.errors import Corrupt, SchemaMismatch
from virta.metadata.python_types import Spec, describe, field_of, fields_of_class, settle

OFFSET = "_offset"
TIMESTAMP = "_timestamp"
HEADERS = "_headers"
DELETED = "_deleted"

FIELD_ID = b"virta.id"

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.map_(pa.string(), pa.binary())

# A name is written into every data file and shown in every table: long ones are mistakes.
NAME_LIMIT_BYTES = 1024
# Each column costs a few buffers in every block and a few objects in every read.
COLUMN_LIMIT = 4096

_OFFSET_FIELD = pa.field(OFFSET, pa.int64(), nullable=False)
_TIMESTAMP_FIELD = pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False)
_HEADERS_FIELD = pa.field(HEADERS, HEADERS_TYPE)
_DELETED_FIELD = pa.field(DELETED, pa.bool_(), nullable=False)


# A dict of types, a class with typed fields, an Arrow schema, or anything that exports one.
AnySpec: TypeAlias = Spec | pa.Schema | type | Sequence[pa.Field]


# -- what users ask for -------------------------------------------------------------------


def build_schema(
    spec: AnySpec | None,
    *,
    headers: bool = False,
    keys: Iterable[str] = (),
) -> pa.Schema:
    """The user schema for what `create_topic` was given; None is key, value and headers."""
    if spec is None:
        fields, metadata, headers = _untyped_fields(), None, True
    else:
        fields, metadata = _fields_of_spec(spec)
    _check_names(fields)
    fields = _with_ids([settle(field) for field in fields])
    schema = pa.schema([*fields, _HEADERS_FIELD] if headers else fields, metadata=metadata)
    check_keys(schema, keys)
    return schema


def is_untyped(schema: pa.Schema) -> bool:
    """Whether this is the schema of a topic made without one."""
    return bool(schema.equals(UNTYPED))


def check_keys(schema: pa.Schema, keys: Iterable[str]) -> None:
    """Keys must be there once, and their values must have one hash."""
    seen: set[str] = set()
    for key in keys:
        if key not in schema.names or key.startswith("_"):
            raise SchemaMismatch(f"key {key!r} is not a column", column=key, hint=suggest(key, schema.names))
        if key in seen:
            raise SchemaMismatch(f"key {key!r} is named twice", column=key)
        seen.add(key)
        if not can_be_key(schema.field(key).type):
            raise SchemaMismatch(
                f"column {key!r} cannot be a key: it is {describe(schema.field(key).type)}",
                column=key,
                hint="a key is anything but a map, or what holds one: two maps may differ only in order",
            )


def can_be_key(kind: pa.DataType) -> bool:
    """Whether values of this type are the same or not, whatever order they were built in."""
    if isinstance(kind, pa.BaseExtensionType):
        return can_be_key(kind.storage_type)
    if pa.types.is_map(kind):
        return False
    if pa.types.is_struct(kind):
        return all(can_be_key(kind.field(at).type) for at in range(kind.num_fields))
    return not pa.types.is_nested(kind) or can_be_key(kind.value_type)


def suggest(name: str, names: Iterable[str], what: str = "columns") -> str:
    """A hint for a name that is not there: the nearest one, else all of them."""
    shown = [known for known in names if known not in (OFFSET, TIMESTAMP, DELETED)]
    near = difflib.get_close_matches(name, shown, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    listed = ", ".join(shown[:20]) + (", …" if len(shown) > 20 else "")
    return f"the {what} are: {listed}" if listed else f"there are no {what}"


def _untyped_fields() -> list[pa.Field]:
    return [pa.field("key", pa.binary()), pa.field("value", pa.binary())]


def _fields_of_spec(spec: Any) -> tuple[list[pa.Field], Mapping[bytes, bytes] | None]:
    if isinstance(spec, pa.Schema):
        return list(spec), spec.metadata
    if isinstance(spec, Mapping):
        return [field_of(name, wanted) for name, wanted in spec.items()], None
    if isinstance(spec, type):
        return fields_of_class(spec), None
    if hasattr(spec, "__arrow_c_schema__"):
        schema = pa.schema(spec)
        return list(schema), schema.metadata
    if isinstance(spec, Sequence) and all(isinstance(field, pa.Field) for field in spec):
        return list(spec), None
    raise SchemaMismatch(
        f"a schema cannot be made from {type(spec).__name__}",
        hint="give a dict of names and types, a dataclass, a pyarrow schema, or None",
    )


def _check_names(fields: Sequence[pa.Field]) -> None:
    if not fields:
        raise SchemaMismatch(
            "a schema needs at least one column", hint="leave the schema out for key and value"
        )
    if len(fields) > COLUMN_LIMIT:
        raise SchemaMismatch(f"{len(fields)} columns are more than {COLUMN_LIMIT}")
    seen: set[str] = set()
    for field in fields:
        _check_name(field.name)
        if field.name in seen:
            raise SchemaMismatch(f"column {field.name!r} is there twice", column=field.name)
        seen.add(field.name)


def _check_name(name: str) -> None:
    if not name:
        raise SchemaMismatch("a column needs a name")
    if name.startswith("_"):
        raise SchemaMismatch(
            f"column {name!r}: names beginning with '_' belong to Virta",
            column=name,
            hint="headers are enabled with headers=True" if name == HEADERS else None,
        )
    if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES:
        raise SchemaMismatch(
            f"column name {name[:40]!r}… is over {NAME_LIMIT_BYTES} bytes or holds a zero byte",
            column=name,
        )


# -- field ids --------------------------------------------------------------------------------


def field_id(field: pa.Field) -> int | None:
    """The number a column keeps for life, or None if it has none."""
    text = (field.metadata or {}).get(FIELD_ID, b"")
    return int(text) if text.isdigit() and len(text) <= 9 else None


def _with_id(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), FIELD_ID: b"%d" % number})


def _with_ids(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Number the columns; numbers they brought along stay, if each is there once."""
    numbers = [field_id(field) for field in fields]
    brought = [number for number in numbers if number is not None]
    if len(set(brought)) != len(brought):
        numbers, brought = [None] * len(fields), []
    free = iter(range(max(brought, default=0) + 1, 1 << 62))
    return [
        _with_id(field, next(free) if number is None else number)
        for field, number in zip(fields, numbers, strict=True)
    ]


UNTYPED = pa.schema([*_with_ids(_untyped_fields()), _HEADERS_FIELD])


# -- what is stored ---------------------------------------------------------------------------


def stored_schema(user: pa.Schema, *, tombstones: bool = False) -> pa.Schema:
    """The schema of the data files: position and time first, then the user's columns.

    With `tombstones`, as in update topics, each row says between them whether it deletes its key.
    """
    own = [field for field in user if field.name != HEADERS]
    fields = [_OFFSET_FIELD, _TIMESTAMP_FIELD]
    if tombstones:
        fields.append(_DELETED_FIELD)
    fields += _with_ids(own)
    if HEADERS in user.names:
        fields.append(_HEADERS_FIELD)
    return pa.schema(fields, metadata=user.metadata)


def user_schema(stored: pa.Schema) -> pa.Schema:
    """The other way: a stored schema without position, time and tombstones."""
    kept = [field for field in stored if field.name not in (OFFSET, TIMESTAMP, DELETED)]
    return pa.schema(kept, metadata=stored.metadata)


def written_schema(stored: pa.Schema) -> pa.Schema:
    """What an append fills in of a stored schema: all but position and time."""
    kept = [field for field in stored if field.name not in (OFFSET, TIMESTAMP)]
    return pa.schema(kept, metadata=stored.metadata)


def given_schema(spec: AnySpec) -> pa.Schema:
    """What a user gave as a schema, in Arrow's form and not checked: to be sent to where it will be."""
    fields, metadata = _fields_of_spec(spec)
    return pa.schema(fields, metadata=metadata)


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """The schema as one Arrow IPC message."""
    return bytes(schema.serialize().to_pybytes())


def schema_from_bytes(data: bytes | bytearray | memoryview) -> pa.Schema:
    """The schema back; anything that is not one is damage."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, ValueError, TypeError, EOFError) as error:
        raise Corrupt(f"this is not an Arrow schema: {error}") from error


def schema_digest(schema: pa.Schema | bytes) -> bytes:
    """BLAKE3 of the schema's bytes: what control blocks put into the chain."""
    data = schema if isinstance(schema, bytes) else schema_to_bytes(schema)
    return bytes(blake3(data).digest())


# -- how one schema becomes the next ----------------------------------------------------------


def evolve(
    old: pa.Schema,
    new: AnySpec,
    *,
    headers: bool | None = None,
    renames: Mapping[str, str] | None = None,
) -> pa.Schema:
    """The user schema after a change from `old` to `new`, or SchemaMismatch that says why not.

    `new` is what the user gave (a dict, a pyarrow schema, …), not made by `build_schema`,
    which numbers columns as those of a new topic.

    Allowed: new columns that may be null, types that hold all they held before and more,
    "not null" given up, headers, and renames. A column whose name is gone is looked for
    under its new name in `renames` (old name to new), else under its number. Columns stay
    in the order they have; new ones come after them, in whatever order `new` lists them.
    """
    before = [field for field in old if field.name != HEADERS]
    fields, metadata = _fields_of_spec(new)
    headers = headers or HEADERS in (field.name for field in fields)
    after = [settle(field) for field in fields if field.name != HEADERS]
    _check_names(after)
    pairs = _paired(before, after, renames or {})
    kept = [_evolved(field, pairs[field.name]) for field in before]
    taken = {field.name for field in pairs.values()}
    added = _numbered_after(kept, [field for field in after if field.name not in taken])
    with_headers = [_HEADERS_FIELD] if headers or HEADERS in old.names else []
    return pa.schema([*kept, *added, *with_headers], metadata=metadata or old.metadata)


def _paired(
    before: Sequence[pa.Field], after: Sequence[pa.Field], renames: Mapping[str, str]
) -> dict[str, pa.Field]:
    """For each old column the new one it becomes: by name, else by number."""
    names = {field.name: field for field in after}
    olds = {field.name for field in before}
    numbers = {field_id(field): field for field in after if field.name not in olds}
    pairs = {
        field.name: names.get(renames.get(field.name, field.name)) or numbers.get(field_id(field) or -1)
        for field in before
    }
    for name, found in pairs.items():
        if found is None:
            raise SchemaMismatch(
                f"column {name!r} cannot be taken away",
                column=name,
                hint="keep it; to rename it, say so, or keep the virta.id of its field",
            )
        if sum(found is other for other in pairs.values()) > 1:
            raise SchemaMismatch(f"column {found.name!r} cannot be two columns at once", column=name)
    for name in renames:
        if name not in pairs:
            raise SchemaMismatch(f"column {name!r} to rename is not there", column=name)
    return pairs


def _evolved(old: pa.Field, new: pa.Field) -> pa.Field:
    if not widens(old.type, new.type):
        raise SchemaMismatch(
            f"column {old.name!r} cannot change from {describe(old.type)} to {describe(new.type)}",
            column=old.name,
            hint="a type may only grow: every value it held must still fit",
        )
    if old.nullable and not new.nullable:
        raise SchemaMismatch(
            f"column {old.name!r} cannot become not null: stored rows may hold nulls",
            column=old.name,
        )
    number = field_id(old)
    return new if number is None else _with_id(new, number)


def _numbered_after(kept: Sequence[pa.Field], added: Sequence[pa.Field]) -> Iterator[pa.Field]:
    """New columns with fresh numbers; one brought from another topic means nothing here."""
    number = max((field_id(field) or 0 for field in kept), default=0)
    for field in added:
        if not field.nullable:
            raise SchemaMismatch(
                f"new column {field.name!r} must allow null: stored rows have no value for it",
                column=field.name,
                hint=f"write it as {describe(field.type)} | None",
            )
        number += 1
        yield _with_id(field, number)


_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float16(), pa.float32(), pa.float64())

# From a type to those that hold everything it can hold; the rest is in `widens`.
_WIDER: dict[pa.DataType, frozenset[pa.DataType]] = {
    **{kind: frozenset(_SIGNED[at:]) for at, kind in enumerate(_SIGNED)},
    **{kind: frozenset((*_UNSIGNED[at:], *_SIGNED[at + 1 :])) for at, kind in enumerate(_UNSIGNED)},
    **{kind: frozenset(_FLOATS[at:]) for at, kind in enumerate(_FLOATS)},
    pa.string(): frozenset((pa.string(), pa.large_string())),
    pa.binary(): frozenset((pa.binary(), pa.large_binary())),
    pa.date32(): frozenset((pa.date32(), pa.date64())),
    pa.time32("s"): frozenset((pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    pa.time32("ms"): frozenset((pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    pa.time64("us"): frozenset((pa.time64("us"), pa.time64("ns"))),
}


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether `new` holds every value that `old` can hold.

    Finer timestamps are not wider: they reach less far.
    """
    if old.equals(new) or new in _WIDER.get(old, ()):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole = bool(new.precision - new.scale >= old.precision - old.scale)
        return whole and bool(new.scale >= old.scale)
    if pa.types.is_dictionary(old):
        return _widens_dictionary(old, new)
    if _is_list(old) and _is_list(new):
        return _widens_list(old, new)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return widens(old.key_type, new.key_type) and _widens_field(old.item_field, new.item_field)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _widens_struct(old, new)
    return False


def _widens_dictionary(old: pa.DataType, new: pa.DataType) -> bool:
    if not pa.types.is_dictionary(new):
        return widens(old.value_type, new)
    return (
        widens(old.index_type, new.index_type)
        and widens(old.value_type, new.value_type)
        and old.ordered == new.ordered
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _widens_list(old: pa.DataType, new: pa.DataType) -> bool:
    shrinks = bool(pa.types.is_large_list(old) and not pa.types.is_large_list(new))
    return not shrinks and _widens_field(old.value_field, new.value_field)


def _widens_field(old: pa.Field, new: pa.Field) -> bool:
    return widens(old.type, new.type) and (new.nullable or not old.nullable)


def _widens_struct(old: pa.DataType, new: pa.DataType) -> bool:
    """Fields stay in their order; what comes after them may be null."""
    if new.num_fields < old.num_fields:
        return False
    kept = all(
        old.field(at).name == new.field(at).name and _widens_field(old.field(at), new.field(at))
        for at in range(old.num_fields)
    )
    return kept and all(new.field(at).nullable for at in range(old.num_fields, new.num_fields))


# -- old blocks in a newer schema ---------------------------------------------------------------


def unify(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch stored under an older schema, as the newer `schema` has it."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    places = {_identity(field): at for at, field in enumerate(batch.schema)}
    columns = [_unified(batch, field, places.get(_identity(field))) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _identity(field: pa.Field) -> int | str:
    """What a column is known by over versions: its number, or its name if it has none."""
    number = field_id(field)
    return str(field.name) if number is None else number


def _unified(batch: pa.RecordBatch, field: pa.Field, place: int | None) -> pa.Array:
    if place is None:
        if not field.nullable:
            raise SchemaMismatch(
                f"these rows have no column {field.name!r}, which is not null", column=field.name
            )
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(place)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"column {field.name!r} does not go from {column.type} to {field.type}: {error}",
            column=field.name,
        ) from error


def with_name(schema: pa.Schema, old: str, new: str) -> pa.Schema:
    """The schema with one column renamed; its number stays."""
    place = schema.get_field_index(old)
    if place < 0:
        raise SchemaMismatch(f"there is no column {old!r}", column=old, hint=suggest(old, schema.names))
    return schema.set(place, schema.field(place).with_name(new))


__all__ = [
    "DELETED",
    "FIELD_ID",
    "HEADERS",
    "HEADERS_TYPE",
    "OFFSET",
    "TIMESTAMP",
    "TIMESTAMP_TYPE",
    "UNTYPED",
    "build_schema",
    "can_be_key",
    "check_keys",
    "evolve",
    "field_id",
    "is_untyped",
    "schema_digest",
    "schema_from_bytes",
    "schema_to_bytes",
    "stored_schema",
    "suggest",
    "unify",
    "user_schema",
    "widens",
    "with_name",
    "written_schema",
]
