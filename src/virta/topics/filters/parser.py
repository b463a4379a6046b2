"""From words to a tree, by recursive descent: one method for each level of binding.

    expression  = conjunction { or conjunction }
    conjunction = negation { and negation }
    negation    = not negation | test
    test        = sum [ (= | == | <> | != | < | <= | > | >=) sum
                      | [not] in ( expression, … ) | [not] between sum and sum
                      | [not] like sum | [not] ilike sum | is [not] null ]
    sum         = product { (+ | -) product }
    product     = factor { (* | / | %) factor }
    factor      = - factor | literal | column | function ( expression, … ) | ( expression )
    literal     = number | 'text' | x'hex' | true | false | null | timestamp '…' | date '…'
    column      = name { . name }

Tests do not chain: `a < b < c` is refused. Knows the grammar and no types.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from virta.errors import UsageError
from virta.requests import parse_moment
from virta.topics.filters.syntax import (
    Among,
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    IsNull,
    Like,
    Literal,
    Logic,
    Negative,
    Node,
    Not,
    Value,
)
from virta.topics.filters.tokens import Mark, Token, cut, refuse

# Parsing takes about ten Python frames a level and evaluation two; Python has a thousand.
DEPTH_LIMIT = 50

# How many arguments a function takes, at least and at most.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "lower": (1, 1),
    "upper": (1, 1),
    "length": (1, 1),
    "abs": (1, 1),
    "coalesce": (1, 100),
    "starts_with": (2, 2),
    "contains": (2, 2),
}

_RESERVED = frozenset(("and", "or", "not", "in", "between", "like", "ilike", "is", "null", "true", "false"))
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}
_COMPARISONS = {"==": "=", "!=": "<>"}

Made = TypeVar("Made", bound=Node)


def parse(text: str) -> Node:
    """The tree of a filter's text, or a UsageError that points at what is wrong."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = cut(text)
        self._at = 0
        self._open = 0

    # -- words --------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.mark is not Mark.END
        return token

    def _word(self, *words: str) -> Token | None:
        """The next token if it is one of the keywords."""
        return self._take() if any(self._next.is_word(word) for word in words) else None

    def _sign(self, *signs: str) -> Token | None:
        return self._take() if self._next.is_sign(*signs) else None

    def _expect(self, sign: str) -> None:
        if self._sign(sign) is None:
            self._refuse(self._next, f"expected {sign!r}")

    def _refuse(self, token: Token, why: str) -> NoReturn:
        found = "the filter ends here" if token.mark is Mark.END else f"found {token.text!r}"
        refuse(self._text, token.position, f"{why}, but {found}")

    def _made(self, node: Made) -> Made:
        if node.depth > DEPTH_LIMIT:
            refuse(self._text, node.position, f"nested or chained deeper than {DEPTH_LIMIT}")
        return node

    def _deeper(self, level: Callable[[], Node], token: Token) -> Node:
        """Parse one level further in, within the bound."""
        self._open += 1
        if self._open > DEPTH_LIMIT:
            refuse(self._text, token.position, f"nested or chained deeper than {DEPTH_LIMIT}")
        node = level()
        self._open -= 1
        return node

    # -- logic --------------------------------------------------------------------------

    def whole(self) -> Node:
        node = self._expression()
        if self._next.mark is not Mark.END:
            self._refuse(self._next, "expected and, or, or the end")
        return node

    def _expression(self) -> Node:
        return self._joined("or", self._conjunction)

    def _conjunction(self) -> Node:
        return self._joined("and", self._negation)

    def _joined(self, word: str, level: Callable[[], Node]) -> Node:
        first = self._next
        parts = [level()]
        while self._word(word):
            parts.append(level())
        if len(parts) == 1:
            return parts[0]
        return self._made(
            Logic(operator=word, parts=tuple(parts), position=first.position, depth=_below(parts))
        )

    def _negation(self) -> Node:
        token = self._word("not")
        if token is None:
            return self._test()
        inner = self._deeper(self._negation, token)
        return self._made(Not(inner=inner, position=token.position, depth=inner.depth + 1))

    # -- tests --------------------------------------------------------------------------

    def _test(self) -> Node:
        left = self._sum()
        token = self._sign("=", "==", "<>", "!=", "<", "<=", ">", ">=")
        if token is not None:
            return self._comparison(left, token)
        if self._word("is"):
            return self._is_null(left)
        denial = self._word("not")
        node = self._membership(left)
        if node is not None:
            return self._denied(node, denial)
        if denial is not None:
            self._refuse(self._next, "expected in, between, like or ilike after not")
        return left

    def _membership(self, left: Node) -> Node | None:
        if token := self._word("in"):
            return self._among(left, token)
        if token := self._word("between"):
            return self._between(left, token)
        if token := self._word("like", "ilike"):
            return self._like(left, token)
        return None

    def _denied(self, node: Node, denial: Token | None) -> Node:
        if denial is None:
            return node
        return self._made(Not(inner=node, position=denial.position, depth=node.depth + 1))

    def _comparison(self, left: Node, token: Token) -> Node:
        right = self._sum()
        if self._next.is_sign("=", "==", "<>", "!=", "<", "<=", ">", ">="):
            self._refuse(self._next, "comparisons do not chain: write a < b and b < c")
        return self._made(
            Comparison(
                operator=_COMPARISONS.get(token.text, token.text),
                left=left,
                right=right,
                position=token.position,
                depth=_below((left, right)),
            )
        )

    def _is_null(self, left: Node) -> Node:
        denial = self._word("not")
        token = self._word("null")
        if token is None:
            self._refuse(self._next, "expected null")
        node = IsNull(inner=left, position=token.position, depth=left.depth + 1)
        return self._denied(self._made(node), denial)

    def _among(self, left: Node, token: Token) -> Node:
        self._expect("(")
        options = self._listed(token)
        return self._made(
            Among(inner=left, options=options, position=token.position, depth=_below((left, *options)))
        )

    def _between(self, left: Node, token: Token) -> Node:
        low = self._sum()
        if not self._word("and"):
            self._refuse(self._next, "expected and: x between 1 and 2")
        high = self._sum()
        depth = _below((left, low, high))
        return self._made(Between(inner=left, low=low, high=high, position=token.position, depth=depth))

    def _like(self, left: Node, token: Token) -> Node:
        pattern = self._sum()
        return self._made(
            Like(
                inner=left,
                pattern=pattern,
                ignores_case=token.is_word("ilike"),
                position=token.position,
                depth=_below((left, pattern)),
            )
        )

    # -- arithmetic -----------------------------------------------------------------------

    def _sum(self) -> Node:
        return self._chained(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chained(("*", "/", "%"), self._factor)

    def _chained(self, signs: tuple[str, ...], level: Callable[[], Node]) -> Node:
        left = level()
        while token := self._sign(*signs):
            right = level()
            left = self._made(
                Arithmetic(
                    operator=token.text,
                    left=left,
                    right=right,
                    position=token.position,
                    depth=_below((left, right)),
                )
            )
        return left

    def _factor(self) -> Node:
        token = self._take()
        if token.is_sign("-"):
            return self._negative(token)
        if token.is_sign("("):
            inner = self._deeper(self._expression, token)
            self._expect(")")
            return inner
        if token.mark in (Mark.NUMBER, Mark.TEXT, Mark.BYTES):
            return Literal(value=self._value(token), position=token.position)
        if token.mark is Mark.QUOTED:
            return self._column(token)
        if token.mark is not Mark.NAME:
            self._refuse(token, "expected a value or a column")
        return self._named(token)

    def _negative(self, token: Token) -> Node:
        inner = self._deeper(self._factor, token)
        if isinstance(inner, Literal) and type(inner.value) in (int, float, decimal.Decimal):
            return Literal(value=-inner.value, position=token.position)  # type: ignore[operator]
        return self._made(Negative(inner=inner, position=token.position, depth=inner.depth + 1))

    # -- names and values -------------------------------------------------------------------

    def _named(self, token: Token) -> Node:
        word = token.text.lower()
        if word in _CONSTANTS:
            return Literal(value=_CONSTANTS[word], position=token.position)
        if word in _RESERVED:
            self._refuse(token, "expected a value or a column")
        if word in ("timestamp", "date") and self._next.mark is Mark.TEXT:
            return self._time(word, token)
        if self._next.is_sign("("):
            return self._call(word, token)
        return self._column(token)

    def _column(self, token: Token) -> Node:
        path = [token.text]
        while self._sign("."):
            part = self._take()
            if part.mark not in (Mark.NAME, Mark.QUOTED):
                self._refuse(part, "expected the name of a field")
            path.append(part.text)
        return Column(path=tuple(path), position=token.position)

    def _call(self, word: str, token: Token) -> Node:
        if word not in FUNCTIONS:
            known = ", ".join(sorted(FUNCTIONS))
            refuse(self._text, token.position, f"there is no function {word!r}, only {known}")
        self._expect("(")
        arguments = self._listed(token)
        least, most = FUNCTIONS[word]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            refuse(self._text, token.position, f"{word} takes {wanted} values, not {len(arguments)}")
        return self._made(
            Call(
                function=word,
                arguments=arguments,
                position=token.position,
                depth=_below(arguments),
            )
        )

    def _listed(self, opening: Token) -> tuple[Node, ...]:
        """What stands between parentheses, at least one expression."""
        nodes = [self._deeper(self._expression, opening)]
        while self._sign(","):
            nodes.append(self._deeper(self._expression, opening))
        self._expect(")")
        return tuple(nodes)

    def _value(self, token: Token) -> Value:
        if token.mark is Mark.TEXT:
            return token.text
        if token.mark is Mark.BYTES:
            return bytes.fromhex(token.text)
        if "e" in token.text.lower():
            return float(token.text)
        return decimal.Decimal(token.text) if "." in token.text else self._whole(token)

    def _whole(self, token: Token) -> int:
        # as many digits as the widest decimal has; longer ones also cost Python too much
        if len(token.text) > 76:
            self._refuse(token, "a number of more than 76 digits")
        return int(token.text)

    def _time(self, word: str, token: Token) -> Node:
        text = self._take()
        try:
            value: Value
            if word == "date":
                value = datetime.date.fromisoformat(text.text)
            else:
                value = moment_of(text.text)
        except (UsageError, ValueError, OverflowError):
            self._refuse(text, f"expected a {word} such as {_EXAMPLES[word]}")
        return Literal(value=value, position=token.position)


_EXAMPLES = {"date": "'2026-11-18'", "timestamp": "'2026-11-18T10:00Z'"}

_EPOCH = datetime.datetime(1970, 1, 1)


def moment_of(text: str) -> datetime.datetime:
    """A moment written in ISO 8601; without a zone it stays without one."""
    if not text[:1].isdigit():
        # a filter reads no clock, so "-15m" cannot mean anything in it
        raise UsageError(f"{text!r} is not a timestamp")
    moment = _EPOCH + datetime.timedelta(microseconds=parse_moment(text, 0))
    parsed = datetime.datetime.fromisoformat(text.strip().upper())
    return moment if parsed.tzinfo is None else moment.replace(tzinfo=datetime.UTC)


def _below(nodes: Sequence[Node]) -> int:
    return 1 + max(node.depth for node in nodes)
