"""Files of rows: their forms, which of them a folder holds, and the schema each one has.

Parquet has fewer types than Arrow: seconds become milliseconds, the index of a dictionary
becomes an int32. So the exact schema travels along, as an Arrow schema in base64 under
`virta.schema` in the file's own metadata, and is put back when the file is read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from virta.errors import SchemaMismatch, UsageError

FORMS = ("parquet", "arrow", "csv", "jsonl")
ENDINGS = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
_EXACT = b"virta.schema"


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The schema for a Parquet file: fields inside of others may be null, and itself is inside."""
    text = base64.b64encode(schema.serialize().to_pybytes())
    fields = [field.with_type(_relaxed(field.type)) for field in schema]
    return pa.schema(fields, metadata={**(schema.metadata or {}), _EXACT: text})


def _relaxed(kind: pa.DataType) -> pa.DataType:
    """The type with fields that may be null: Arrow writes no other ones where what holds them is null."""
    if pa.types.is_struct(kind):
        return pa.struct([_relaxed_field(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _relaxed_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_relaxed_field(kind.value_field), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_relaxed_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_relaxed_field(kind.value_field))
    return kind


def _relaxed_field(field: pa.Field) -> pa.Field:
    return field.with_type(_relaxed(field.type)).with_nullable(True)


class _Named:
    """An array under another type of the same layout: only names, metadata and "not null" may differ."""

    def __init__(self, array: pa.Array, kind: pa.DataType) -> None:
        self._array = array
        self._kind = kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def for_parquet(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under the schema that `parquet_schema` gave."""
    arrays = [_named(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _named(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if _same(column.type, kind) else pa.array(_Named(column, kind))


def _same(left: pa.DataType, right: pa.DataType) -> bool:
    return bool(left.equals(right, check_metadata=True))


def exact_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that a Parquet file was written from, if it says so; else what it has."""
    text = (schema.metadata or {}).get(_EXACT)
    if text is None:
        return schema
    try:
        exact = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, binascii.Error, OSError):
        return schema
    return exact if exact.names == schema.names else schema


def restored(batch: pa.RecordBatch, exact: pa.Schema) -> pa.RecordBatch:
    """The batch with the types it was exported with."""
    arrays = []
    for column, field in zip(batch.columns, exact, strict=True):
        if not _same(column.type, field.type):
            column = _named(column.cast(_relaxed(field.type)), field.type)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=exact)


def schema_of_file(path: Path) -> pa.Schema:
    """The schema of a Parquet or Arrow file; other forms have none."""
    try:
        with path.open("rb") as file:
            head = file.read(6)
            file.seek(0)
            if head.startswith(b"PAR1"):
                from pyarrow import parquet  # only for Parquet

                return exact_schema(parquet.read_schema(file))
            if head == b"ARROW1":
                return pa.ipc.open_file(file).schema
            return pa.ipc.open_stream(file).schema
    except (pa.ArrowException, EOFError) as error:
        raise UsageError(f"{path} is not a Parquet or Arrow file: {error}") from None


def own_columns(schema: pa.Schema, path: Path) -> pa.Schema:
    """What a topic made from the file has as its columns: those that are not Virta's own."""
    fields = [field for field in schema if not field.name.startswith("_")]
    if not fields:
        raise SchemaMismatch(f"{path} has no columns of its own")
    return pa.schema(fields, metadata=schema.metadata)


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files, and for a folder those in it that have a form, by name; `_…` and `.…` left out."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = [each for each in sorted(path.rglob("*")) if _is_data(each, path)]
        if not inside:
            raise UsageError(f"{path} holds no file that could be imported")
        found += inside
    return found


def _is_data(path: Path, root: Path) -> bool:
    names = path.relative_to(root).parts
    return path.is_file() and path.suffix.lower() in ENDINGS and not any(name[0] in "._" for name in names)
