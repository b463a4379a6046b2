"""What a filter is: a tree of literals, columns, operators and functions.

Every node knows where it stands in the text (for errors) and how deep the tree below
it is (evaluation recurses, so depth is bounded where nodes are made). Knows no types.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# The values that literals have; Decimal is a number written with a point, float one with an exponent.
Value: TypeAlias = (
    bool | int | float | decimal.Decimal | str | bytes | datetime.datetime | datetime.date | None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything an expression is made of."""

    position: int
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Node):
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Node):
    """A column, or a field of a struct in one, or the value of a map's key."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic(Node):
    """`and` or `or` of two or more."""

    operator: str
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not(Node):
    inner: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Node):
    """= <> < <= > >="""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Between(Node):
    inner: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Among(Node):
    """`x in (…)`"""

    inner: Node
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Like(Node):
    inner: Node
    pattern: Node
    ignores_case: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull(Node):
    inner: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic(Node):
    """+ - * / %"""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative(Node):
    inner: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    function: str
    arguments: tuple[Node, ...]


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below a node."""
    found: list[Node] = []
    for name in type(node).__dataclass_fields__:
        value: Any = getattr(node, name)
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(each for each in value if isinstance(each, Node))
    return tuple(found)


def columns_of(node: Node) -> frozenset[str]:
    """The names of the topic's columns that a tree reads."""
    names: set[str] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Column):
            names.add(current.path[0])
        pending.extend(children(current))
    return frozenset(names)
