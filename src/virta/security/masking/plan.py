"""A policy fitted to one schema: what comes out, what was refused, and the masking itself.

A rule for a struct column as a whole takes it whole; else each of its fields needs a rule
of its own, by its path (`address.street`). A list is masked value by value. Maps are
taken whole: keep, drop, null or constant.

**Deny by default**: a column without a rule stops everything, and the error lists all of
them. Nothing is read before that is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import Denied, UsageError
from virta.security.masking.methods import Constant, Drop, Keep, Method, Null, Rows, in_column

Choose: TypeAlias = Callable[[str, frozenset[str]], "tuple[Method, Mapping[str, Any]] | None"]
_TAGS = b"virta.tags"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedColumn:
    """One line of the report: a column, and what became of it."""

    path: str
    method: str
    options: Mapping[str, Any]
    before: str
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """What becomes of a field: a method for it, or nodes for its children."""

    field: pa.Field
    target: pa.Field | None
    method: Method | None = None
    children: tuple[_Node, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingPlan:
    """What each column of a topic becomes."""

    topic: str
    nodes: tuple[_Node, ...]
    columns: tuple[MaskedColumn, ...]
    source: pa.Schema
    target: pa.Schema

    @classmethod
    def of(cls, topic: str, schema: pa.Schema, choose: Choose) -> MaskingPlan:
        fitting = _Fitting(topic, schema, choose)
        nodes = tuple(fitting.node(field, field.name) for field in schema)
        if fitting.missing:
            listed = ", ".join(fitting.missing)
            raise Denied(
                f'no rule says what becomes of these columns of "{topic}": {listed}',
                hint='every column needs one; to copy it as it is: columns = ["'
                + fitting.missing[0]
                + '"], mask = "keep"',
            )
        target = pa.schema([node.target for node in nodes if node.target is not None])
        if not len(target):
            raise UsageError(f'every column of "{topic}" is dropped', hint="leave the topic out instead")
        return cls(topic=topic, nodes=nodes, columns=tuple(fitting.report), source=schema, target=target)

    def apply(self, batch: pa.RecordBatch, identity: pa.Array | None = None) -> pa.RecordBatch:
        """The masked rows. `identity`: a number of each row that lasts (its offset), for noise."""
        rows = Rows(batch=batch, identity=identity)
        kept = [node for node in self.nodes if node.target is not None]
        arrays = [_masked(batch.column(node.field.name), node, rows) for node in kept]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    @property
    def is_plain(self) -> bool:
        """Whether everything stays as it is."""
        return all(isinstance(node.method, Keep) for node in self.nodes)


class _Fitting:
    """Walks a schema, gathers columns without a rule."""

    def __init__(self, topic: str, schema: pa.Schema, choose: Choose) -> None:
        self._topic = topic
        self._schema = schema
        self._choose = choose
        self.missing: list[str] = []
        self.report: list[MaskedColumn] = []

    def node(self, field: pa.Field, path: str) -> _Node:
        chosen = self._choose(path, _tags(field))
        if chosen is None:
            return self._without_rule(field, path)
        method, options = chosen
        self._check_columns(method, path)
        target = self._target(method, field, path)
        self.report.append(
            MaskedColumn(
                path=path,
                method=method.name,
                options=dict(options),
                before=str(field.type),
                after=None if target is None else str(target.type),
            )
        )
        return _Node(field=field, target=target, method=method)

    def _without_rule(self, field: pa.Field, path: str) -> _Node:
        if not pa.types.is_struct(field.type):
            self.missing.append(path)
            return _Node(field=field, target=None)
        children = tuple(self.node(child, f"{path}.{child.name}") for child in field.type)
        fields = [child.target for child in children if child.target is not None]
        target = field.with_type(pa.struct(fields)) if fields else None
        return _Node(field=field, target=target, children=children)

    def _check_columns(self, method: Method, path: str) -> None:
        for name in method.columns():
            if name not in self._schema.names:
                raise UsageError(
                    f'column "{path}" of "{self._topic}": {method.name} goes by {name!r}, which is no column',
                    hint=f"the columns are {', '.join(self._schema.names)}",
                )

    def _target(self, method: Method, field: pa.Field, path: str) -> pa.Field | None:
        try:
            if isinstance(method, Keep | Drop | Null | Constant) or not pa.types.is_nested(field.type):
                return method.field(field)
            if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
                if method.columns():
                    raise UsageError(f"in a list, {method.name} cannot go by another column")
                inner = method.field(field.type.value_field)
                assert inner is not None
                make = pa.list_ if pa.types.is_list(field.type) else pa.large_list
                return field.with_type(make(inner))
        except UsageError as error:
            raise in_column(error, path, self._topic) from None
        raise UsageError(
            f'column "{path}" of "{self._topic}": {method.name} does not fit {field.type}',
            hint=f"name the fields of a struct ({path}.…), or keep, drop, null or constant for the whole",
        )


def _tags(field: pa.Field) -> frozenset[str]:
    text = (field.metadata or {}).get(_TAGS, b"").decode("utf-8", "replace")
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _masked(array: pa.Array, node: _Node, rows: Rows) -> pa.Array:
    assert node.target is not None
    if node.method is None:
        return _struct(array, node, rows)
    if isinstance(node.method, Keep | Null | Constant) or not pa.types.is_nested(array.type):
        return node.method.apply(array, rows)
    return _list(array, node)


def _struct(array: pa.Array, node: _Node, rows: Rows) -> pa.Array:
    """Field by field; a null struct stays null."""
    kept = [child for child in node.children if child.target is not None]
    arrays = [_masked(array.field(child.field.name), child, rows) for child in kept]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=[child.target for child in kept], mask=mask)


def _list(array: pa.Array, node: _Node) -> pa.Array:
    """Value by value. Rows' other columns do not line up with values, so none are to be seen."""
    assert node.method is not None
    assert node.target is not None
    flat = array.flatten()
    lengths = array.value_lengths().fill_null(0)
    places = pa.array([0, *_sums(lengths)], pa.int64())
    nested = Rows(batch=pa.RecordBatch.from_arrays([flat], names=["value"]))
    values = node.method.apply(flat, nested)
    large = pa.types.is_large_list(array.type)
    made = (pa.LargeListArray if large else pa.ListArray).from_arrays(
        places if large else places.cast(pa.int32()),
        values,
        mask=array.is_null() if array.null_count else None,
    )
    return made.cast(node.target.type)


def _sums(lengths: pa.Array) -> list[int]:
    return list(pc.cumulative_sum(lengths.cast(pa.int64())).to_pylist())
