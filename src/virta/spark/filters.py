"""Filters that Spark hands over, in our words: a narrower range, and an expression for rows.

Only what means the same on both sides is taken, and Spark looks at every row again, so a
filter that is left out costs time and nothing else. Left out are comparisons of floats
that Spark answers for NaN (there it is the greatest number), and fields inside structs.

Why this has to be asked for (`pushdown`, `once`): Spark 4.3 keeps what a reader planned
with the DataFrame's source, and a second query over the same DataFrame that has no filter
to hand over, or two filtered uses of it in one query, read what was planned for another.
Rows would be missing without a word. `where`, `starting` and `ending` are always right.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from virta.errors import UsageError
from virta.metadata.schemas import OFFSET, TIMESTAMP
from virta.spark.plan import Span
from virta.spark.reading import PARTITION
from virta.topics.filters import parse_filter

_SIGNS: dict[type[Filter], str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
# Longer lists are quicker looked up by Spark than written out.
_LIST_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What filters leave of a topic."""

    partitions: frozenset[int] | None = None
    start: int | None = None
    end: int | None = None
    since_us: int | None = None
    until_us: int | None = None
    text: str | None = None

    def narrow(self, span: Span, offset_at: Callable[[int], int]) -> Span:
        """The part of a span that can hold matching rows; `offset_at` finds a moment's first row."""
        if self.partitions is not None and span.partition not in self.partitions:
            return replace(span, end=span.start)
        starts = [span.start, self.start, None if self.since_us is None else offset_at(self.since_us)]
        ends = [span.end, self.end, None if self.until_us is None else offset_at(self.until_us)]
        return replace(
            span,
            start=max(start for start in starts if start is not None),
            end=min(end for end in ends if end is not None),
        )


def _either(choose: Any, *moments: int | None) -> int | None:
    said = [moment for moment in moments if moment is not None]
    return choose(said) if said else None


def push(filters: Iterable[Filter], schema: pa.Schema) -> Pushed:
    """What can be made of these filters, all of which hold."""
    found = Pushed()
    texts: list[str] = []
    for each in filters:
        column = _column(each)
        if column == PARTITION:
            found = _by_partition(found, each)
        elif column == OFFSET:
            found = _by_offset(found, each)
        elif column == TIMESTAMP:
            found = _by_time(found, each)
        elif column is not None:
            text = _text(each, column, schema)
            if text is not None and _is_understood(text, schema):
                texts.append(text)
    return replace(found, text=" and ".join(texts) or None)


def _column(each: Filter) -> str | None:
    path = getattr(each, "attribute", None)
    return path[0] if path is not None and len(path) == 1 else None


def _by_partition(found: Pushed, each: Filter) -> Pushed:
    if isinstance(each, EqualTo | In):
        values = each.value if isinstance(each, In) else (each.value,)
        wanted = frozenset(value for value in values if isinstance(value, int))
        return replace(
            found, partitions=wanted & (found.partitions if found.partitions is not None else wanted)
        )
    return found


def _by_offset(found: Pushed, each: Filter) -> Pushed:
    start, end = _bounds(each)
    return replace(found, start=_either(max, found.start, start), end=_either(min, found.end, end))


def _by_time(found: Pushed, each: Filter) -> Pushed:
    start, end = _bounds(each, moment=True)
    return replace(
        found,
        since_us=_either(max, found.since_us, start),
        until_us=_either(min, found.until_us, end),
    )


def _bounds(each: Filter, *, moment: bool = False) -> tuple[int | None, int | None]:
    """Whole numbers from, and up to and not including."""
    values = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    numbers = [
        number for value in values if isinstance(number := _microseconds(value) if moment else value, int)
    ]
    if not numbers or len(numbers) < len(values):
        return None, None
    low, high = min(numbers), max(numbers)
    if isinstance(each, EqualTo | In):
        return low, high + 1
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return low + isinstance(each, GreaterThan), None
    if isinstance(each, LessThan | LessThanOrEqual):
        return None, high + isinstance(each, LessThanOrEqual)
    return None, None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime.datetime):
        return None
    moment = value if value.tzinfo is not None else value.astimezone()
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


# -- the user's columns -------------------------------------------------------------------------


def _text(each: Filter, column: str, schema: pa.Schema) -> str | None:
    if column not in schema.names:
        return None
    kind = schema.field(column).type
    name = '"' + column.replace('"', '""') + '"'
    if isinstance(each, IsNull):
        return f"{name} is null"
    if isinstance(each, IsNotNull):
        return f"{name} is not null"
    if isinstance(each, StringStartsWith):
        plain = all(sign not in each.value for sign in "%_\\")
        return f"{name} like {_literal(each.value + '%')}" if plain and _is_text(kind) else None
    if isinstance(each, In):
        values = [_literal(value, kind) for value in each.value if value is not None]
        if not values or len(values) > _LIST_LIMIT or None in values:
            return None
        return f"{name} in ({', '.join(value for value in values if value is not None)})"
    sign, literal = _SIGNS.get(type(each)), _literal(getattr(each, "value", None), kind)
    if sign is None or literal is None or (pa.types.is_floating(kind) and sign.startswith(">")):
        return None
    return f"{name} {sign} {literal}"


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _literal(value: Any, kind: pa.DataType | None = None) -> str | None:
    """A value as an expression says it; None for what is left to Spark."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | decimal.Decimal):
        return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) < 1e15 and "e" not in repr(value) else None
    if isinstance(value, str) and (kind is None or _is_text(kind)):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime.datetime):
        if kind is None or not pa.types.is_timestamp(kind):
            return None
        moment = value.astimezone(datetime.UTC) if kind.tz else value
        return "'" + moment.isoformat() + "'"
    if isinstance(value, datetime.date):
        return f"'{value.isoformat()}'"
    return None


def _is_understood(text: str, schema: pa.Schema) -> bool:
    """Whether the expression goes with the columns' types; what does not is Spark's business."""
    try:
        parse_filter(text).check(schema)
    except UsageError:
        return False
    return True
