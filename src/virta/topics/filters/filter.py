"""A filter as readers hold it: parsed once, bound to a schema when it meets one.

A row is kept when the expression is true for it; not when it is false, and not when it
is null, as in SQL. Knows batches and statistics, not where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.topics.filters.binding import Bound, bind_condition
from virta.topics.filters.parser import parse
from virta.topics.filters.pruning import outcomes
from virta.topics.filters.syntax import Node, columns_of


def parse_filter(text: str) -> Filter:
    """The filter that a text says, or a UsageError that points at what is wrong in it."""
    return Filter(((text, parse(text)),))


class Filter:
    """One expression, or several that must all be true."""

    __slots__ = ("_bound", "_parts", "columns")

    def __init__(self, parts: tuple[tuple[str, Node], ...]) -> None:
        self._parts = parts
        self.columns = frozenset[str]().union(*(columns_of(node) for _, node in parts))
        self._bound: tuple[pa.Schema, tuple[Bound, ...]] | None = None

    def __and__(self, other: Filter) -> Filter:
        return Filter(self._parts + other._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def __str__(self) -> str:
        if len(self._parts) == 1:
            return self._parts[0][0]
        return " and ".join(f"({text})" for text, _ in self._parts)

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns the schema does not have, and types that do not go together."""
        self._bind(schema)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True, false or null for each row."""
        masks = [bound.whole(batch) for bound in self._bind(batch.schema)]
        result = masks[0]
        for mask in masks[1:]:
            result = pc.and_kleene(result, mask)
        return result

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the filter is true."""
        for bound in self._bind(batch.schema):
            mask = bound.whole(batch)
            if mask.true_count < len(mask):
                batch = batch.filter(mask)
        return batch

    def may_match(self, stats: Mapping[str, tuple[Any, Any, int, int]]) -> bool:
        """False only if no row can match, given bounds for columns: (least, greatest, nulls, rows).

        `least` and `greatest` are Python values that no value lies outside of, or None if
        they are not known. Columns that are missing may hold anything.
        """
        return all(outcomes(node, stats).true for _, node in self._parts)

    def _bind(self, schema: pa.Schema) -> tuple[Bound, ...]:
        bound = self._bound
        if bound is None or not (bound[0] is schema or bound[0].equals(schema)):
            bound = (schema, tuple(bind_condition(text, node, schema) for text, node in self._parts))
            self._bound = bound
        return bound[1]
