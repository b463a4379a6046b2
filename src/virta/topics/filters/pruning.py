"""Which outcomes a filter can have, given bounds of its columns: what to skip unread.

For each part of a filter the outcomes that some row could have are worked out, always
one too many rather than one too few: `true` is False only if no row can make it true.
Comparisons of a column with literals, `in`, `between`, `like` with a beginning, and null
tests say something; everything else may have any outcome.

Bounds are compared as the filter compares (see `binding`): a float literal rounds whole
numbers, a column of floats may hold NaN, which no bound speaks of. Where Python would
compare otherwise than Arrow, or not at all, any outcome is possible.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from virta.errors import UsageError
from virta.topics.filters import syntax
from virta.topics.filters.parser import moment_of
from virta.topics.filters.patterns import prefix_of, read_pattern

Statistics: TypeAlias = Mapping[str, tuple[Any, Any, int, int]]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What some row could give."""

    true: bool
    false: bool
    null: bool

    def inverted(self) -> Outcomes:
        return Outcomes(self.false, self.true, self.null)


ANYTHING = Outcomes(True, True, True)
_NULL_ONLY = Outcomes(False, False, True)


def outcomes(node: syntax.Node, stats: Statistics) -> Outcomes:
    """The outcomes a condition can have."""
    rule = _RULES.get(type(node))
    return ANYTHING if rule is None else rule(node, stats)


# -- logic ------------------------------------------------------------------------------------


def _literal(node: syntax.Literal, _stats: Statistics) -> Outcomes:
    if node.value is None:
        return _NULL_ONLY
    return Outcomes(node.value is True, node.value is False, False)


def _logic(node: syntax.Logic, stats: Statistics) -> Outcomes:
    parts = [outcomes(part, stats) for part in node.parts]
    if node.operator == "or":  # not (not a and not b)
        return _all([part.inverted() for part in parts]).inverted()
    return _all(parts)


def _all(parts: list[Outcomes]) -> Outcomes:
    return Outcomes(
        true=all(part.true for part in parts),
        false=any(part.false for part in parts),
        null=any(part.null for part in parts) and all(part.true or part.null for part in parts),
    )


def _not(node: syntax.Not, stats: Statistics) -> Outcomes:
    return outcomes(node.inner, stats).inverted()


# -- columns ----------------------------------------------------------------------------------


def _is_null(node: syntax.IsNull, stats: Statistics) -> Outcomes:
    found = _statistics(node.inner, stats)
    if found is None:
        return ANYTHING
    _, _, nulls, rows = found
    return Outcomes(nulls > 0, nulls < rows, False)


def _statistics(node: syntax.Node, stats: Statistics) -> tuple[Any, Any, int, int] | None:
    """What is known of a column; nothing is known of what lies inside one."""
    if isinstance(node, syntax.Column) and len(node.path) == 1:
        return stats.get(node.path[0])
    return None


_OPPOSITE = {"<>": "=", ">=": "<", ">": "<="}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _possible(operator: str, least: Any, greatest: Any, value: Any) -> tuple[bool, bool]:
    """Whether a value from least to greatest can make the comparison true, and false."""
    if operator == "=":
        return least <= value <= greatest, not least == value == greatest
    if operator == "<":
        return least < value, greatest >= value
    if operator == "<=":
        return least <= value, greatest > value
    true, false = _possible(_OPPOSITE[operator], least, greatest, value)
    return false, true


def _comparison(node: syntax.Comparison, stats: Statistics) -> Outcomes:
    if isinstance(node.left, syntax.Literal):
        return _compared(_MIRRORED[node.operator], node.right, node.left, stats)
    return _compared(node.operator, node.left, node.right, stats)


def _compared(operator: str, column: syntax.Node, other: syntax.Node, stats: Statistics) -> Outcomes:
    found = _statistics(column, stats)
    if found is None or not isinstance(other, syntax.Literal):
        return ANYTHING
    least, greatest, nulls, rows = found
    if other.value is None or nulls == rows:
        return _NULL_ONLY
    if least is None or greatest is None:
        return ANYTHING
    try:
        low, high, value = _comparable(least, greatest, other.value)
        true, false = _possible(operator, low, high, value)
    except (TypeError, ValueError, OverflowError, UsageError):
        return ANYTHING
    if isinstance(low, float) and not isinstance(least, int):
        # there may be NaN, which is unequal to everything and neither more nor less
        true, false = true or operator == "<>", True
    return Outcomes(true, false, nulls > 0)


def _comparable(least: Any, greatest: Any, value: Any) -> tuple[Any, Any, Any]:
    """Bounds and literal as the filter would compare them, or TypeError."""
    if isinstance(least, bool) or isinstance(value, bool):
        return _same(least, greatest, value)
    if isinstance(least, float) and isinstance(value, int | decimal.Decimal):
        return least, greatest, float(value)
    if isinstance(least, int) and isinstance(value, float):
        return float(least), float(greatest), value
    if isinstance(least, decimal.Decimal) and isinstance(value, float):
        raise TypeError("Arrow rounds decimals to floats in its own way")
    if isinstance(least, datetime.datetime):
        return least, greatest, _moment(value, like=least)
    if type(least) is datetime.date and isinstance(value, str):
        return least, greatest, datetime.date.fromisoformat(value)
    if isinstance(least, bytes) and isinstance(value, str):
        if len(least) == 16:
            raise TypeError("a UUID, it may be")
        return least, greatest, value.encode()
    if isinstance(least, int | decimal.Decimal) and isinstance(value, int | decimal.Decimal):
        return least, greatest, value
    return _same(least, greatest, value)


def _same(least: Any, greatest: Any, value: Any) -> tuple[Any, Any, Any]:
    """Values of one type, and no subclass: a datetime is a date to Python."""
    if not type(least) is type(greatest) is type(value):
        raise TypeError("not of one type")
    return least, greatest, value


def _moment(value: Any, *, like: datetime.datetime) -> datetime.datetime:
    """A literal as a timestamp; one without a zone is UTC where the column has one."""
    if isinstance(value, str):
        value = moment_of(value)
    elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        raise TypeError("not a time")
    if value.tzinfo is None and like.tzinfo is not None:
        return value.replace(tzinfo=datetime.UTC)
    return value


def _between(node: syntax.Between, stats: Statistics) -> Outcomes:
    low = _compared(">=", node.inner, node.low, stats)
    return _all([low, _compared("<=", node.inner, node.high, stats)])


def _among(node: syntax.Among, stats: Statistics) -> Outcomes:
    parts = [_compared("=", node.inner, option, stats) for option in node.options]
    return _all([part.inverted() for part in parts]).inverted()


def _like(node: syntax.Like, stats: Statistics) -> Outcomes:
    """What begins with a text lies between bounds; nothing is said about what does not."""
    pattern = node.pattern.value if isinstance(node.pattern, syntax.Literal) else None
    if node.ignores_case or not isinstance(pattern, str):
        return ANYTHING
    parts = read_pattern(pattern)
    return ANYTHING if parts is None else _beginning(node.inner, prefix_of(parts), stats)


def _call(node: syntax.Call, stats: Statistics) -> Outcomes:
    if node.function != "starts_with" or not isinstance(node.arguments[1], syntax.Literal):
        return ANYTHING
    return _beginning(node.arguments[0], node.arguments[1].value, stats)


def _beginning(column: syntax.Node, prefix: Any, stats: Statistics) -> Outcomes:
    found = _statistics(column, stats)
    if found is None or not isinstance(prefix, str | bytes):
        return ANYTHING
    least, greatest, nulls, rows = found
    if nulls == rows:
        return _NULL_ONLY
    if isinstance(least, bytes) and isinstance(prefix, str):
        prefix = prefix.encode()
    if not type(least) is type(greatest) is type(prefix):
        return ANYTHING
    true = least[: len(prefix)] <= prefix and greatest >= prefix
    return Outcomes(true, True, nulls > 0)


_RULES: dict[type[syntax.Node], Callable[[Any, Statistics], Outcomes]] = {
    syntax.Literal: _literal,
    syntax.Logic: _logic,
    syntax.Not: _not,
    syntax.IsNull: _is_null,
    syntax.Comparison: _comparison,
    syntax.Between: _between,
    syntax.Among: _among,
    syntax.Like: _like,
    syntax.Call: _call,
}
