"""Random filters mean what a plain evaluator in Python says, and never skip a block that matches."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from virta.topics.filters import parse_filter

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("n", pa.int8()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("p", pa.decimal128(12, 3)),
        ("s", pa.string()),
        ("c", pa.dictionary(pa.int32(), pa.string())),
        ("k", pa.binary()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("d", pa.date32()),
        ("b", pa.bool_()),
        ("r", pa.struct([("a", pa.int64()), ("z", pa.string())])),
    ]
)

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
letters = st.text(alphabet="ab%_\\X", max_size=4)
wholes = st.integers(-9, 9)
wides = wholes | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
floats = st.sampled_from([0.0, -0.0, 0.5, -1.5, 3.0, 1e300, float(2**53), float("nan"), float("inf")])
prices = st.integers(-5000, 5000).map(lambda n: decimal.Decimal(n) / 1000)
moments = st.integers(-3, 3).map(lambda n: EPOCH + datetime.timedelta(hours=n * 9))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": wides,
    "n": wholes,
    "u": st.integers(0, 9) | st.just(2**64 - 1),
    "f": floats,
    "p": prices,
    "s": letters,
    "c": letters,
    "k": letters.map(str.encode),
    "t": moments,
    "d": moments.map(datetime.datetime.date),
    "b": st.booleans(),
    "r": st.fixed_dictionaries({"a": wholes | st.none(), "z": letters | st.none()}),
}
batches = st.lists(
    st.fixed_dictionaries({name: values | st.none() for name, values in VALUES.items()}),
    min_size=1,
    max_size=6,
)


@dataclass(frozen=True)
class Made:
    """A piece of a filter, and what it means for a row."""

    text: str
    value: Callable[[Row], Any]


def column(name: str) -> Made:
    return Made(name, lambda row: row[name])


def field(name: str) -> Made:
    return Made(f"r.{name}", lambda row: None if row["r"] is None else row["r"][name])


def literal(text: str, value: Any) -> Made:
    return Made(text, lambda row: value)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


NULL = literal("null", None)

whole_literals = wides.map(lambda n: literal(str(n), n))
point_literals = prices.map(lambda p: literal(f"{p:.3f}", p))
float_literals = floats.filter(lambda f: abs(f) < 1e301).map(
    lambda f: literal(f"{f!r}e0" if "e" not in repr(f) else repr(f), f)
)
text_literals = letters.map(lambda s: literal(quoted(s), s))
byte_literals = letters.map(lambda s: literal(f"x'{s.encode().hex()}'", s.encode()))
moment_literals = st.one_of(
    moments.map(lambda m: literal(f"timestamp '{m.isoformat()}'", m)),
    moments.map(lambda m: literal(quoted(m.isoformat().replace("+00:00", "")), m)),
)
date_literals = moments.map(lambda m: literal(f"date '{m.date()}'", m.date()))


@st.composite
def arithmetic(draw: st.DrawFn) -> Made:
    """Small whole numbers, so that nothing overflows."""
    one = draw(st.sampled_from([column("n"), field("a")]))
    two = draw(st.sampled_from([column("n"), field("a")]) | wholes.map(lambda n: literal(str(n), n)))
    sign = draw(st.sampled_from(["+", "-", "*", "/", "%"]))
    negative = draw(st.booleans())

    def value(row: Row) -> Any:
        a, b = one.value(row), two.value(row)
        if a is None or b is None or (sign in "/%" and b == 0):
            return None
        found = {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "/": lambda: a / b,
            "%": lambda: abs(a) % abs(b) * (-1 if a < 0 else 1),
        }[sign]()
        return -found if negative else found

    return Made(f"{'-' if negative else ''}({one.text} {sign} {two.text})", value)


numbers = st.one_of(
    st.sampled_from([column("i"), column("n"), column("u"), column("f"), column("p"), field("a")]),
    whole_literals,
    point_literals,
    float_literals,
    arithmetic(),
    st.just(NULL),
)
texts = st.one_of(
    st.sampled_from([column("s"), column("c"), field("z")]),
    text_literals,
    st.sampled_from(["lower", "upper"]).map(
        lambda word: Made(f"{word}(s)", lambda row: None if row["s"] is None else getattr(row["s"], word)())
    ),
)
octets = st.one_of(st.just(column("k")), byte_literals)
times = st.one_of(st.just(column("t")), moment_literals)
days = st.one_of(st.just(column("d")), date_literals)


def is_float(value: Any) -> bool:
    return isinstance(value, float)


def paired(a: Any, b: Any) -> tuple[Any, Any]:
    """Two values as the filter compares them."""
    if isinstance(a, bytes) != isinstance(b, bytes):
        return (a.encode(), b) if isinstance(a, str) else (a, b.encode())
    if is_float(a) or is_float(b):
        return float(a), float(b)
    return a, b


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compared(sign: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    return COMPARE[sign](*paired(a, b))


def and_(parts: list[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def or_(parts: list[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False


def not_(part: bool | None) -> bool | None:
    return None if part is None else not part


families = st.sampled_from([numbers, texts, times, days]) | st.just(octets | text_literals)


@st.composite
def comparisons(draw: st.DrawFn) -> Made:
    family = draw(families)
    one, two = draw(family), draw(family)
    sign = draw(st.sampled_from(list(COMPARE)))
    return Made(f"{one.text} {sign} {two.text}", lambda row: compared(sign, one.value(row), two.value(row)))


@st.composite
def memberships(draw: st.DrawFn) -> Made:
    family = draw(families)
    one, options = draw(family), draw(st.lists(family | st.just(NULL), min_size=1, max_size=4))
    denied = draw(st.booleans())

    def value(row: Row) -> bool | None:
        found = or_([compared("=", one.value(row), option.value(row)) for option in options])
        return not_(found) if denied else found

    listed = ", ".join(option.text for option in options)
    return Made(f"{one.text} {'not ' if denied else ''}in ({listed})", value)


@st.composite
def betweens(draw: st.DrawFn) -> Made:
    family = draw(families)
    one, low, high = draw(family), draw(family), draw(family)
    denied = draw(st.booleans())

    def value(row: Row) -> bool | None:
        x = one.value(row)
        found = and_([compared(">=", x, low.value(row)), compared("<=", x, high.value(row))])
        return not_(found) if denied else found

    return Made(f"{one.text} {'not ' if denied else ''}between {low.text} and {high.text}", value)


def like(text: Any, pattern: str, ignores_case: bool) -> bool:
    expression, characters = "", iter(pattern)
    for character in characters:
        escaped = next(characters) if character == "\\" else None
        expression += (
            re.escape(escaped) if escaped else {"%": ".*", "_": "."}.get(character, re.escape(character))
        )
    flags = re.DOTALL | (re.IGNORECASE if ignores_case else 0)
    text = text.decode() if isinstance(text, bytes) else text
    return re.fullmatch(expression, text, flags) is not None


@st.composite
def likes(draw: st.DrawFn) -> Made:
    one = draw(texts | st.just(column("k")))
    pattern = draw(letters.filter(lambda text: (len(text) - len(text.rstrip("\\"))) % 2 == 0))
    word = draw(st.sampled_from(["like", "ilike", "not like", "starts", "contains"]))

    def value(row: Row) -> bool | None:
        x = one.value(row)
        if x is None:
            return None
        plain = x.decode() if isinstance(x, bytes) else x
        if word == "starts":
            return bool(plain.startswith(pattern))
        if word == "contains":
            return pattern in plain
        found = like(x, pattern, word == "ilike")
        return not found if word == "not like" else found

    if word in ("starts", "contains"):
        function = "starts_with" if word == "starts" else "contains"
        return Made(f"{function}({one.text}, {quoted(pattern)})", value)
    return Made(f"{one.text} {word} {quoted(pattern)}", value)


@st.composite
def null_tests(draw: st.DrawFn) -> Made:
    one = draw(st.sampled_from([column(name) for name in SCHEMA.names]) | arithmetic() | comparisons())
    denied = draw(st.booleans())
    return Made(
        f"({one.text}) is {'not ' if denied else ''}null", lambda row: (one.value(row) is None) != denied
    )


tests = st.one_of(
    comparisons(),
    memberships(),
    betweens(),
    likes(),
    null_tests(),
    st.sampled_from([column("b"), literal("true", True), literal("false", False), NULL]),
)


def combined(parts: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    def joined(word: str, made: list[Made]) -> Made:
        rule = and_ if word == "and" else or_
        text = f" {word} ".join(f"({each.text})" for each in made)
        return Made(text, lambda row: rule([each.value(row) for each in made]))

    return st.one_of(
        parts.map(lambda made: Made(f"not ({made.text})", lambda row: not_(made.value(row)))),
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(parts, min_size=2, max_size=3)),
    )


filters = st.recursive(tests, combined, max_leaves=5)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in SCHEMA], schema=SCHEMA
    )


@given(filters, batches)
@settings(max_examples=400, deadline=None)
def test_filters_mean_what_they_say(made: Made, rows: list[Row]) -> None:
    found = parse_filter(made.text).mask(batch_of(rows)).to_pylist()
    assert found == [made.value(row) for row in rows], made.text


def bounds(array: pa.Array) -> tuple[Any, Any, int, int] | None:
    if pa.types.is_struct(array.type):
        return None
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    found = pc.min_max(array).as_py()
    return found["min"], found["max"], array.null_count, len(array)


@given(filters, batches)
@settings(max_examples=600, deadline=None)
def test_no_block_that_matches_is_skipped(made: Made, rows: list[Row]) -> None:
    batch = batch_of(rows)
    known = {name: bounds(batch.column(name)) for name in SCHEMA.names}
    stats = {name: each for name, each in known.items() if each is not None}
    parsed = parse_filter(made.text)
    if not parsed.may_match(stats):
        assert parsed.mask(batch).true_count == 0, made.text


@given(st.text(alphabet="ab1'\"().,=<>!+-*/% \nxnotrilkebwdu", max_size=30) | st.text(max_size=20))
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_filter_or_a_usage_error(text: str) -> None:
    from virta.errors import UsageError

    try:
        parse_filter(text).check(SCHEMA)
    except UsageError as error:
        assert "\n" in error.message
