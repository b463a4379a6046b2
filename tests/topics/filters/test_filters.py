"""What `where` takes, what it means, and how it points at what it does not take."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
import uuid
from typing import Any

import pyarrow as pa
import pytest

from virta.errors import SchemaMismatch, UsageError, VirtaError
from virta.topics.filters import Filter, parse_filter

UTC = datetime.UTC
ID = uuid.UUID(int=5)
DAY = datetime.date(2026, 11, 18)
NOON = datetime.datetime(2026, 11, 18, 12, tzinfo=UTC)

# Three rows; the last one is null everywhere.
COLUMNS: dict[str, pa.Array] = {
    "i": pa.array([1, 2, None], pa.int64()),
    "small": pa.array([1, -2, None], pa.int8()),
    "big": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "f": pa.array([1.5, float("nan"), None]),
    "single": pa.array([0.5, 2.0, None], pa.float32()),
    "price": pa.array([decimal.Decimal("1.10"), decimal.Decimal("-2"), None], pa.decimal128(38, 9)),
    "name": pa.array(["ada", "Bob_%", None]),
    "wide": pa.array(["ada", "eve", None], pa.large_string()),
    "label": pa.array(["red", "blue", None]).dictionary_encode(),
    "key": pa.array([b"ada", b"\xff\x00", None]),
    "code": pa.array([b"abc", b"xyz", None], pa.binary(3)),
    "ok": pa.array([True, False, None]),
    "at": pa.array([NOON, NOON + datetime.timedelta(microseconds=1), None], pa.timestamp("us", tz="UTC")),
    "local": pa.array(
        [datetime.datetime(2026, 11, 18, 12), datetime.datetime(2026, 1, 1), None], pa.timestamp("ms")
    ),
    "oslo": pa.array([NOON, NOON, None], pa.timestamp("ns", tz="Europe/Oslo")),
    "day": pa.array([DAY, DAY + datetime.timedelta(days=1), None]),
    "clock": pa.array([datetime.time(10), datetime.time(11), None], pa.time32("s")),
    "took": pa.array([datetime.timedelta(minutes=1), datetime.timedelta(hours=2), None], pa.duration("ms")),
    "id": pa.array([ID.bytes, uuid.UUID(int=6).bytes, None], pa.binary(16)).cast(pa.uuid()),
    "at_home": pa.array([{"street": "x", "flat": {"no": 1}}, {"street": None, "flat": None}, None]),
    "_headers": pa.array([{"trace": b"t1"}, {}, None], pa.map_(pa.string(), pa.binary())),
    "tags": pa.array([["a", "b"], [], None]),
    "and": pa.array([1, 2, None]),
    'say "hi"': pa.array([1, 2, None]),
    "größe": pa.array([1, 2, None]),
    "nothing": pa.nulls(3),
}
BATCH = pa.RecordBatch.from_arrays(list(COLUMNS.values()), names=list(COLUMNS))


def outcome(text: str) -> list[bool | None]:
    return list(parse_filter(text).mask(BATCH).to_pylist())


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        # comparing numbers
        ("i = 1", True, False),
        ("i == 1", True, False),
        ("i <> 1", False, True),
        ("i != 1", False, True),
        ("i < 2", True, False),
        ("i <= 1", True, False),
        ("i > 1", False, True),
        ("2 <= i", False, True),
        ("i > 1.5", False, True),
        ("i = 1e0", True, False),
        ("i < small", False, False),
        ("i = f", False, False),
        ("f = 1.5", True, False),
        ("f <> 1.5", False, True),
        ("single = 0.5", True, False),
        ("big = 18446744073709551615", True, False),
        ("big > -1", True, True),
        ("big > i", True, False),
        ("big = 18446744073709551616", False, False),
        ("small < 1000000", True, True),
        ("price = 1.1", True, False),
        ("price = 1.1000000000", True, False),
        ("price < i", False, True),
        ("price > -1e1", True, True),
        ("i = 1.00000000000000000001", False, False),
        # other types
        ("name = 'ada'", True, False),
        ("name < 'a'", False, True),
        ("name = wide", True, False),
        ("label = 'red'", True, False),
        ("key = 'ada'", True, False),
        ("key = x'ff00'", False, True),
        ("key = name", True, False),
        ("code = 'abc'", True, False),
        ("code > x'616263'", False, True),
        ("ok", True, False),
        ("ok = true", True, False),
        ("ok <> true", False, True),
        ("at > timestamp '2026-11-18T12:00Z'", False, True),
        ("at = '2026-11-18 13:00+01:00'", True, False),
        ("at <= '2026-11-18T12:00'", True, False),
        ("at >= '2026-11-18'", True, True),
        ("at > day", True, False),
        ("local = timestamp '2026-11-18T12:00'", True, False),
        ("local < '2026-02-01'", False, True),
        ("oslo = at", True, False),
        ("oslo = '2026-11-18T13:00+01:00'", True, True),
        ("day = date '2026-11-18'", True, False),
        ("day > '2026-11-18'", False, True),
        ("day < timestamp '2026-11-18T00:00:01Z'", True, False),
        ("clock = '10:00'", True, False),
        ("took > '1h30m'", False, True),
        ("id = '00000000-0000-0000-0000-000000000005'", True, False),
        ("id in ('00000000000000000000000000000006')", False, True),
        # inside columns
        ("at_home.street = 'x'", True, None),
        ("at_home.flat.no = 1", True, None),
        ("_headers.trace = 't1'", True, None),
        ("length(tags) = 2", True, False),
        # logic
        ("i = 1 and f = 1.5", True, False),
        ("i = 1 or i = 2 and false", True, False),
        ("(i = 1 or i = 2) and not false", True, True),
        ("not i = 1", False, True),
        ("not not ok", True, False),
        ("null or ok", True, None),
        ("null and ok", None, False),
        ("NOT ok OR null IS NULL", True, True),
        # sets and ranges
        ("i in (1, 3)", True, False),
        ("i not in (1, 3)", False, True),
        ("i in (2, null)", None, True),
        ("i not in (2, null)", None, False),
        ("i in (1.0, 7e0, small + 1)", True, False),
        ("f in (1.5, 0.0)", True, False),
        ("price in (1.1, 7)", True, False),
        ("name in ('ada', 'eve')", True, False),
        ("key in ('ada', x'ff00')", True, True),
        ("at in ('2026-11-18T12:00Z')", True, False),
        ("i between 1 and 1", True, False),
        ("i not between 1 and 1", False, True),
        ("i between 2 and 1", False, False),
        ("i between null and 1", None, False),
        # text
        ("name like 'a%'", True, False),
        ("name like '%a'", True, False),
        ("name like '%d%'", True, False),
        ("name like 'ada'", True, False),
        ("name like 'AdA'", False, False),
        ("name ilike 'AdA'", True, False),
        ("name like '_d_'", True, False),
        ("name like 'B%\\_\\%'", False, True),
        ("name not like '%'", False, False),
        ("name like ''", False, False),
        ("key like '%d%'", True, False),
        ("key like '__'", False, True),
        ("lower(name) = 'bob_%'", False, True),
        ("upper(label) = 'RED'", True, False),
        ("length(name) = 3", True, False),
        ("length(key) = 2", False, True),
        ("starts_with(name, 'a')", True, False),
        ("contains(name, '_')", False, True),
        ("contains(key, x'ff')", False, True),
        ("starts_with(code, 'ab')", True, False),
        # arithmetic
        ("i + 1 = 2", True, False),
        ("i - 3 = -2", True, False),
        ("i * 2 + 1 = 3", True, False),
        ("i / 2 = 0.5", True, False),
        ("-i = -1", True, False),
        ("small % 2 = 0", False, True),
        ("-7 % 4 = -3", True, True),
        ("i % 0 is null", True, True),
        ("f / 0 is null", True, True),
        ("price * 2 = 2.2", True, False),
        ("abs(small) = 2", False, True),
        ("2 + 3 * 4 = 14", True, True),
        ("2 - 3 - 4 = -5", True, True),
        # names
        ('"and" = 1', True, False),
        ('"say ""hi""" = 2', False, True),
        ("größe = 2", False, True),
        ('"at_home"."street" = \'x\'', True, None),
    ],
)
def test_meaning(text: str, first: bool | None, second: bool | None) -> None:
    assert outcome(text)[:2] == [first, second]


@pytest.mark.parametrize("column", [name for name in COLUMNS if name.isidentifier() and name != "and"])
def test_null_tests_go_with_every_type(column: str) -> None:
    assert outcome(f"{column} is null")[2] is True
    assert outcome(f"{column} is not null")[2] is False


@pytest.mark.parametrize(
    "text",
    [
        "i = 1", "f <> 1", "not ok", "i = null", "null = null", "name like 'a%'", "name like null",
        "i in (1, 2)", "i between 1 and 2", "i + 1 > 0", "i / 0 = 1", "lower(name) = 'x'", "nothing = 1",
        "nothing", "starts_with(name, null)", "ok and null", "i < nothing", "at_home.street = 'x'",
    ],
)  # fmt: skip
def test_null_makes_null(text: str) -> None:
    assert outcome(text)[2] is None


def test_coalesce() -> None:
    assert outcome("coalesce(i, 7) = 7") == [False, False, True]
    assert outcome("coalesce(nothing, null, name, 'x') = 'x'") == [False, False, True]
    assert outcome("coalesce(id, null) = '00000000-0000-0000-0000-000000000005'") == [True, False, None]


def test_apply_keeps_what_is_true() -> None:
    kept = parse_filter("i = 1 or i is null").apply(BATCH)
    assert kept.column("i").to_pylist() == [1, None]
    assert kept.schema == BATCH.schema
    assert parse_filter("1 = 1").apply(BATCH) is BATCH
    assert parse_filter("null").apply(BATCH).num_rows == 0
    assert parse_filter("i = 1").apply(BATCH.slice(1)).num_rows == 0
    assert parse_filter("i = 1").mask(BATCH.slice(0, 0)).to_pylist() == []


def test_filters_join() -> None:
    both = parse_filter("i = 1 or i = 2") & parse_filter("f = 1.5")
    assert both.apply(BATCH).column("i").to_pylist() == [1]
    assert both.mask(BATCH).to_pylist() == [True, False, None]
    assert both.columns == {"i", "f"}
    assert str(both) == "(i = 1 or i = 2) and (f = 1.5)"
    assert both.may_match({"f": (2.0, 3.0, 0, 2)}) is False
    assert both == parse_filter("i = 1 or i = 2") & parse_filter("f = 1.5")


def test_columns_are_those_of_the_topic() -> None:
    assert parse_filter("a.b > 1 and lower(c) in (d, 'x') or e is null").columns == {"a", "c", "d", "e"}


def test_a_filter_may_meet_several_schemas() -> None:
    text = parse_filter("x = 1")
    for values in (pa.array([1, 2]), pa.array([1.0, 2.0]), pa.array([1, 2], pa.uint8())):
        assert text.mask(pa.record_batch({"x": values})).to_pylist() == [True, False]
    with pytest.raises(UsageError):
        text.mask(pa.record_batch({"x": ["a"]}))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 0, "the filter ends here"),
        ("i =", 3, "the filter ends here"),
        ("i = 1 and", 9, "the filter ends here"),
        ("i = = 1", 4, "expected a value"),
        ("i 1", 2, "expected and, or"),
        ("(i = 1", 6, "expected ')'"),
        ("i = 1)", 5, "expected and, or"),
        ("i < 2 < 3", 6, "do not chain"),
        ("i in 1", 5, "expected '('"),
        ("i in ()", 6, "expected a value"),
        ("i between 1 or 2", 12, "expected and"),
        ("i is 1", 5, "expected null"),
        ("i not 1", 6, "expected in, between"),
        ("i = 'abc", 4, "no closing '"),
        ('"abc = 1', 0, 'no closing "'),
        ("i = 5x", 5, "a number ends here"),
        ("i = 1 ; drop", 6, "means nothing"),
        ("sum(i) = 1", 0, "no function 'sum'"),
        ("abs(i, 1) = 1", 0, "takes 1 values, not 2"),
        ("a. = 1", 3, "the name of a field"),
        ("at > timestamp 'soon'", 15, "such as"),
        ("at > date '2026-13-01'", 10, "such as"),
        ("and = 1", 0, "expected a value"),
        ("i = " + "9" * 77, 4, "76 digits"),
        ("name > 5", 5, "str with int cannot be compared"),
        ("i = 'x'", 2, "int with str"),
        ("ok > true", 3, "have no order"),
        ("at = local", 3, "cannot be compared"),
        ("at = 'soon'", 5, "is no datetime"),
        ("local = '2026-11-18T12:00Z'", 8, "is no timestamp"),
        ("oslo < '9999-01-01'", 7, "is no timestamp"),
        ("id = 'x'", 5, "is no"),
        ("clock = '25:00'", 8, "is no time"),
        ("tags = 1", 5, "is null"),
        ("tags = tags", 5, "is null"),
        ("i", 0, "must be true or false"),
        ("i and ok", 0, "each side of and"),
        ("ok or name", 6, "each side of or"),
        ("not i", 4, "what follows not"),
        ("name + 1 = 1", 0, "only numbers"),
        ("f % 2 = 1", 2, "whole numbers"),
        ("lower(i) = 'x'", 6, "needs text"),
        ("lower(key) = 'x'", 0, "bytes have no case"),
        ("length(i) = 1", 0, "has no length"),
        ("i like 'x'", 0, "needs text"),
        ("name like wide", 10, "a text in quotes"),
        ("name like x'00'", 10, "a text in quotes"),
        ("name like 'a\\'", 10, "lone"),
        ("starts_with(name, 1)", 18, "a text in quotes"),
        ("price = 1." + "1" * 70, 6, "too many digits"),
    ],
)  # fmt: skip
def test_errors_point_at_the_place(text: str, place: int, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text).check(BATCH.schema)
    lines = caught.value.message.split("\n")
    assert words in lines[0]
    shown, caret = lines[1], lines[2].index("^")
    assert shown[2:].startswith("…") or caret == place + 2
    assert text[place:][:1] == shown[caret : caret + 1].strip(" ") or text[place:][:1] == " "


def test_the_caret_finds_its_place_in_long_filters_of_many_lines() -> None:
    text = "i = 1 and\n" * 50 + "i @ 1" + "\nand i = 1" * 50
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    _, shown, caret = caught.value.message.split("\n")
    assert shown[caret.index("^")] == "@"
    assert len(shown) < 140


@pytest.mark.parametrize(
    ("text", "column", "near"),
    [
        ("nam = 'x'", "nam", "'name'"),
        ("at_home.stret = 'x'", "stret", "'street'"),
        ("i.x = 1", "x", "int has no field"),
    ],
)
def test_unknown_columns_are_mismatches_with_the_nearest_name(text: str, column: str, near: str) -> None:
    with pytest.raises(SchemaMismatch, match=near) as caught:
        parse_filter(text).check(BATCH.schema)
    assert caught.value.column == column
    assert "^" in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "-" * 5000 + "1 = 1",
        "not " * 5000 + "true",
        "i" + "+1" * 5000 + " = 1",
        "lower(" * 5000,
        "i in (" * 5000,
        "i = 1 and " * 10_000,
        "x" * 100_000,
    ],
)
def test_bounds(text: str) -> None:
    with pytest.raises(UsageError):
        parse_filter(text)


def test_long_but_flat_is_fine() -> None:
    text = " or ".join(f"i = {n}" for n in range(3000))
    assert outcome(text)[:2] == [True, True]
    assert outcome(f"i in ({', '.join(map(str, range(5000)))})")[:2] == [True, True]
    deep = "(" * 49 + "i = 1" + ")" * 49
    assert outcome(deep)[:2] == [True, False]


def test_an_overflow_is_the_callers_mistake() -> None:
    for text in (
        "i * 9223372036854775807 > 1",
        "i + 9223372036854775807 > 1",
        "-(big) < 0",
        "i - -9223372036854775808 > 0",
    ):
        with pytest.raises(UsageError, match="cannot be computed"):
            parse_filter(text).mask(BATCH)


class TestPruning:
    @pytest.mark.parametrize(
        ("text", "possible"),
        [
            ("x = 5", False),
            ("x = 15", True),
            ("x < 10", False),
            ("x <= 10", True),
            ("x > 20", False),
            ("x >= 20.5", False),
            ("5 > x", False),
            ("x between 1 and 9", False),
            ("x between 15 and 16", True),
            ("x not between 10 and 20", False),
            ("x in (1, 2, 30)", False),
            ("x in (1, 20)", True),
            ("x = null", False),
            ("x = 5 or x = 6", False),
            ("x = 5 or y = 6", True),
            ("x = 5 and y = 6", False),
            ("not (x >= 10)", False),
            ("not (x = 5 and y = 6)", True),
            ("x is null", False),
            ("x is not null", True),
            ("n is null", True),
            ("n is not null", False),
            ("n = 1", False),
            ("not (n = 1)", False),
            ("x + 1 = 5", True),
            ("s like 'b%'", True),
            ("s like 'd%'", False),
            ("s like 'a_x'", False),
            ("s like '%d'", True),
            ("s ilike 'D%'", True),
            ("starts_with(s, 'c')", True),
            ("starts_with(s, 'cc')", False),
            ("s = 'bb'", True),
            ("k = 'zz'", False),
            ("t < '2026-11-18'", False),
            ("t > timestamp '2026-11-18T11:00Z'", True),
            ("t > '2026-11-18T13:00:00.000001Z'", False),
            ("d = '2026-11-19'", False),
            ("f > 2", False),
            ("f <> 1.0", True),
            ("not (f <= 2)", True),
            ("p = 1.5", True),
            ("p = 2.5", False),
            ("p = 25e-1", True),
            ("one <> 1", False),
            ("one <> 2", True),
            ("u = '00000000-0000-0000-0000-000000000005'", True),
            ("half = 1", True),
            ("x.y = 5", True),
            ("x = 'five'", True),
            ("false", False),
            ("null", False),
        ],
    )
    def test_blocks_that_cannot_match_are_ruled_out(self, text: str, possible: bool) -> None:
        stats: dict[str, tuple[Any, Any, int, int]] = {
            "x": (10, 20, 0, 9),
            "n": (None, None, 9, 9),
            "s": ("ba", "cb", 1, 9),
            "k": (b"ba", b"cb", 1, 9),
            "t": (NOON, NOON + datetime.timedelta(hours=1), 0, 9),
            "d": (DAY, DAY, 0, 9),
            "f": (1.0, 1.0, 0, 9),
            "p": (decimal.Decimal("1.5"), decimal.Decimal("2"), 0, 9),
            "one": (1, 1, 3, 9),
            "u": (bytes(16), b"\1" + bytes(15), 0, 9),
            "half": (None, 3, 0, 9),
        }
        assert parse_filter(text).may_match(stats) is possible

    def test_numbers_are_rounded_as_the_filter_rounds_them(self) -> None:
        large = 2**53 + 1
        batch = pa.record_batch({"x": [large]})
        text = parse_filter("x = 9007199254740992e0")
        assert text.mask(batch).to_pylist() == [True]
        assert text.may_match({"x": (large, large, 0, 1)})


def test_nothing_heavy_comes_along() -> None:
    code = (
        "import sys, virta.topics.filters; "
        "print([m for m in ('pyarrow.dataset', 'pyarrow.acero', 'pandas', 'duckdb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_repr() -> None:
    assert repr(parse_filter("i = 1")) == "Filter('i = 1')"
    assert isinstance(parse_filter("i = 1"), Filter)
    assert issubclass(UsageError, VirtaError)
