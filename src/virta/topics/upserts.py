"""Partial updates: the given columns of a row replace what its key has; the others stay.

The rows that are there are read, completed, and appended on condition that nobody appended
meanwhile; else it begins anew. Where others never pause, the last try is made while nobody
else can append. So no column that somebody else has set is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from virta.errors import Conflict, SchemaMismatch
from virta.metadata.schemas import DELETED, suggest, written_schema
from virta.topics.acks import SpreadAck
from virta.topics.append import NOBODY, Appender, Origin
from virta.topics.key_values import Key, KeyReader
from virta.topics.lookup import PLAIN_TYPES, Found, Lookup
from virta.topics.partitioner import partition_of_hash
from virta.topics.rows import RowConverter, open_arrow
from virta.topics.values import as_mapping
from virta.types import Ack

# An append of ours takes about as long as one of theirs; so many in a row are lost to somebody steady.
_HOPEFUL_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Rows that name the same columns."""

    batch: pa.RecordBatch
    keys: Sequence[Key]


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """What is said of one key: for each column the batch and the row that said it last."""

    key: Key
    said: dict[str, tuple[pa.RecordBatch, int]]


class Upserts:
    """Completes partial rows of one topic version."""

    def __init__(self, stored_schema: pa.Schema, keys: Sequence[str], reader: KeyReader) -> None:
        self._stored_schema = stored_schema
        self._schema = written_schema(stored_schema)
        self._keys = tuple(keys)
        self._reader = reader

    # -- what is said ---------------------------------------------------------------------------------

    def take(self, rows: Any) -> list[Given]:
        """A dict, a list of them, or Arrow data, with the key columns and any others."""
        if as_mapping(rows) is not None:
            rows = [rows]
        if not isinstance(rows, list):
            schema, batches, _ = open_arrow(rows)
            converter = self._converter(schema.names)
            return [
                self._given(part) for batch in batches for part in converter.batches(batch) if part.num_rows
            ]
        found = []
        for names, same in _by_shape(rows):
            found.append(self._given(self._converter(names).from_rows(same)))
        return found

    def _converter(self, names: Sequence[str]) -> RowConverter:
        """For rows that name these columns."""
        for key in self._keys:
            if key not in names:
                raise SchemaMismatch(
                    f"the key column {key!r} is missing", column=key, hint="an upsert names its key"
                )
        for name in names:
            if not name.startswith("_") and name not in self._schema.names:
                hint = suggest(name, self._schema.names)
                raise SchemaMismatch(f"there is no column {name!r}", column=name, hint=hint)
        fields = [field for field in self._schema if field.name in names and field.name != DELETED]
        return RowConverter(pa.schema(fields), keys=self._keys)

    def _given(self, batch: pa.RecordBatch) -> Given:
        return Given(batch=batch, keys=self._reader.keys_of(batch.select(self._keys)))

    def merged(self, given: Sequence[Given]) -> list[_Wanted]:
        """One wish for each key: what is said later of a column counts."""
        wanted: dict[Any, _Wanted] = {}
        for each in given:
            names = each.batch.schema.names
            for row, key in enumerate(each.keys):
                one = wanted.setdefault(key.identity, _Wanted(key=key, said={}))
                one.said.update((name, (each.batch, row)) for name in names)
        return list(wanted.values())

    # -- completing ------------------------------------------------------------------------------------

    def complete(self, wanted: Sequence[_Wanted], old: Sequence[Found | None]) -> pa.Table:
        """Whole rows: of each key what is said, and else what it has."""
        columns = [self._column(field, wanted, old) for field in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _column(self, field: pa.Field, wanted: Sequence[_Wanted], old: Sequence[Found | None]) -> pa.Array:
        if field.name == DELETED:
            return pa.repeat(pa.scalar(False), len(wanted))
        if field.type in PLAIN_TYPES:
            return self._plain_column(field, wanted, old)
        parts: list[pa.Array] = []
        run: tuple[pa.RecordBatch, int, int] | None = None  # rows of one batch that follow each other
        for each, there in zip(wanted, old, strict=True):
            source = each.said.get(field.name)
            if source is None and there is not None:
                if run is not None:
                    parts.append(_slice(run, field))
                run = None
                parts.append(there.column(field.name))
                continue
            if run is not None and source is not None and source[0] is run[0] and source[1] == run[2]:
                run = run[0], run[1], run[2] + 1
                continue
            if run is not None:
                parts.append(_slice(run, field))
            run = None
            if source is not None:
                run = source[0], source[1], source[1] + 1
            elif field.nullable:
                parts.append(pa.nulls(1, field.type))
            else:
                raise _missing(field, each)
        if run is not None:
            parts.append(_slice(run, field))
        return _joined(parts, field)

    def _plain_column(
        self, field: pa.Field, wanted: Sequence[_Wanted], old: Sequence[Found | None]
    ) -> pa.Array:
        """By way of Python: a thousand arrays of one value cost more than a thousand values."""
        place = self._stored_schema.get_field_index(field.name)
        said: dict[int, list[Any]] = {}  # a batch's column, made plain once
        values: list[Any] = []
        for each, there in zip(wanted, old, strict=True):
            source = each.said.get(field.name)
            if source is not None:
                batch, row = source
                known = said.get(id(batch))
                if known is None:
                    known = said[id(batch)] = batch.column(field.name).to_pylist()
                values.append(known[row])
            elif there is not None:
                values.append(there.value(field.name, place, self._stored_schema))
            elif field.nullable:
                values.append(None)
            else:
                raise _missing(field, each)
        return pa.array(values, field.type)


def _missing(field: pa.Field, wanted: _Wanted) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {field.name!r} is not null, and the key {wanted.key} has no row yet that could give it",
        column=field.name,
        hint="give all columns that are not null",
    )


def _slice(run: tuple[pa.RecordBatch, int, int], field: pa.Field) -> pa.Array:
    batch, start, stop = run
    return batch.column(field.name).slice(start, stop - start)


def _joined(parts: list[pa.Array], field: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(field.type):
        plain = pa.concat_arrays([part.dictionary_decode() for part in parts])
        return plain.dictionary_encode().cast(field.type)
    return pa.concat_arrays(parts)


def _by_shape(rows: Sequence[Any]) -> list[tuple[tuple[str, ...], list[Any]]]:
    """Runs of rows that name the same columns."""
    found: list[tuple[tuple[str, ...], list[Any]]] = []
    for at, row in enumerate(rows):
        mapping = as_mapping(row)
        if mapping is None:
            raise SchemaMismatch(
                f"row {at} is {type(row).__name__}, not a dict of columns and values", row=at
            )
        names = tuple(mapping)
        if found and found[-1][0] == names:
            found[-1][1].append(mapping)
        else:
            found.append((names, [mapping]))
    return found


def upsert(
    rows: Any,
    upserts: Callable[[], Upserts],
    partitions: Sequence[tuple[Lookup, Appender]],
) -> Ack:
    """Append the completed rows, each partition's atomically."""
    made = upserts()
    acks = append_completed(made, made.take(rows), partitions)
    if not acks:
        return partitions[0][1].append([])
    return acks[0] if len(acks) == 1 else SpreadAck.of(acks)


def append_completed(
    upserts: Upserts,
    given: Sequence[Given],
    partitions: Sequence[tuple[Lookup, Appender]],
    origins: Mapping[int, Origin] | None = None,
) -> list[Ack]:
    """For each partition that got rows what became of them; of an origin nothing is written twice."""
    by_partition: dict[int, list[_Wanted]] = {}
    for each in upserts.merged(given):
        by_partition.setdefault(partition_of_hash(each.key.hash, len(partitions)), []).append(each)
    return [
        _upsert_one(part, upserts, *partitions[number], (origins or {}).get(number, NOBODY))
        for number, part in sorted(by_partition.items())
    ]


def _upsert_one(
    wanted: Sequence[_Wanted], upserts: Upserts, lookup: Lookup, appender: Appender, origin: Origin
) -> Ack:
    keys = [each.key for each in wanted]
    for _ in range(_HOPEFUL_TRIES):
        offset, old = lookup.rows(keys)
        try:
            return appender.append(upserts.complete(wanted, old), expected_offset=offset, origin=origin)
        except Conflict:
            continue
    return appender.append_alone(lambda: upserts.complete(wanted, lookup.rows(keys)[1]), origin=origin)
