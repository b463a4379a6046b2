"""Two tables held against each other by their keys: rows inserted, updated and deleted between them.

Columns go by name; one that only one side has is null on the other. Rows are compared by
the rule for keys (docs/format.md): null is null, NaN is NaN, and widened numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from virta.errors import SchemaMismatch, UsageError
from virta.metadata.schemas import DELETED, OFFSET, TIMESTAMP
from virta.topics.changes import Change, plain_rows
from virta.topics.keys import Indices, form_of, hash_columns
from virta.topics.newest import by_hash, newest_rows, pairs
from virta.topics.read import html_table
from virta.topics.table_state import DELETE, INSERT, UPDATE, plain_type

_LEADING = (OFFSET, TIMESTAMP, DELETED)


class Difference:
    """What has to happen to the first table to make it the second; worked out when it is asked for."""

    def __init__(
        self, names: tuple[str, str], keys: Sequence[str], read: Callable[[], tuple[pa.Table, pa.Table]]
    ) -> None:
        self._names = names
        self._keys = tuple(keys)
        self._read = read

    @cached_property
    def _found(self) -> pa.Table:
        before, after = _alike(*self._read(), self._names)
        return _compared(before, after, self._keys)

    @property
    def inserted(self) -> int:
        return self._count(INSERT)

    @property
    def updated(self) -> int:
        return self._count(UPDATE)

    @property
    def deleted(self) -> int:
        return self._count(DELETE)

    def _count(self, kind: str) -> int:
        kinds: list[str] = self._found.column(0).to_pylist()
        return kinds.count(kind)

    def __len__(self) -> int:
        return int(self._found.num_rows)

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return len(self) > 0

    def __iter__(self) -> Iterator[Change]:
        for batch in self._found.to_batches():
            sides = (plain_rows(batch.column(at)) for at in (1, 2))
            for kind, before, after in zip(batch.column(0).to_pylist(), *sides, strict=True):
                yield Change(kind=kind, before=before, after=after)

    def to_arrow(self) -> pa.Table:
        """`_change`, and the row `before` and `after`."""
        return self._found

    def to_pylist(self) -> list[Change]:
        return list(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._found.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Difference({self._names[0]!r}, {self._names[1]!r}, keys={self._keys})"

    def _repr_html_(self) -> str:
        return html_table(self._found[:20])


def newest_of_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Of rows in their order the last one of each key."""
    columns = [_one(rows.column(key)) for key in keys]
    return rows.take(pa.array(np.sort(newest_rows(hash_columns(columns), form_of(columns)))))


def _alike(before: pa.Table, after: pa.Table, names: tuple[str, str]) -> tuple[pa.Table, pa.Table]:
    """Both with the same columns of the same types, without those that say where a row stands."""
    before, after = (
        pa.Table.from_arrays(
            [_one(side.column(name)) for name in side.column_names if name not in _LEADING],
            names=[name for name in side.column_names if name not in _LEADING],
        )
        for side in (before, after)
    )
    try:
        schema = pa.unify_schemas([before.schema, after.schema], promote_options="permissive")
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"the columns of {names[0]!r} and {names[1]!r} do not go together: {error}"
        ) from error
    return _in_form(before, schema), _in_form(after, schema)


def _in_form(side: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        side.column(field.name).cast(field.type)
        if field.name in side.column_names
        else pa.nulls(side.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, names=schema.names)


def _one(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(plain_type(column.type))
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _compared(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> pa.Table:
    old, new = _matched(before, after, keys)
    others = [name for name in before.column_names if name not in keys]
    differs = np.zeros(len(old), dtype=np.bool_)
    if others:
        both = [pa.concat_arrays([_one(before.column(n)), _one(after.column(n))]) for n in others]
        differs = ~form_of(both).same(old, before.num_rows + new)
    there = np.full(after.num_rows, -1, dtype=np.int64)
    there[new] = old
    changed = there < 0
    changed[new] |= differs
    gone = np.ones(before.num_rows, dtype=np.bool_)
    gone[old] = False
    after_rows = np.flatnonzero(changed)
    before_rows = there[after_rows]
    deleted = np.flatnonzero(gone)
    kinds = np.where(before_rows < 0, INSERT, UPDATE).astype(object).tolist() + [DELETE] * len(deleted)
    nothing = np.full(len(deleted), -1, dtype=np.int64)
    return pa.table(
        {
            "_change": pa.array(kinds, pa.string()),
            "before": _structs(before, np.concatenate((before_rows, deleted))),
            "after": _structs(after, np.concatenate((after_rows, nothing))),
        }
    )


def _matched(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> tuple[Indices, Indices]:
    """The rows of both that have the same key."""
    sides = [[_one(side.column(key)) for key in keys] for side in (before, after)]
    hashes = [hash_columns(columns) for columns in sides]
    orders = [by_hash(each) for each in hashes]
    first, second = pairs(hashes[0][orders[0]], hashes[1][orders[1]])
    old, new = orders[0][first], orders[1][second]
    both = [pa.concat_arrays(list(each)) for each in zip(*sides, strict=True)]
    same = form_of(both).same(old, before.num_rows + new)
    return old[same], new[same]


def _structs(side: pa.Table, rows: Indices) -> pa.Array:
    """Rows as structs; -1 is none."""
    missing = rows < 0
    chosen = pa.array(rows, mask=missing)
    columns = [_one(side.column(name)).take(chosen) for name in side.column_names]
    return pa.StructArray.from_arrays(columns, names=side.column_names, mask=pa.array(missing))


def keyed(name: str, keys: Sequence[str], given: Any) -> tuple[str, ...]:
    """The keys to go by: those that were named, else the topic's own."""
    chosen = (given,) if isinstance(given, str) else tuple(given or keys)
    if not chosen:
        raise UsageError(f"topic {name!r} has no keys to go by", hint="name them: keys=['id']")
    return chosen
