"""Each method: what it makes of values, that it is the same again, and what it refuses."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.errors import UsageError
from virta.security.masking import MaskingKey, MaskPolicy

KEY = MaskingKey.of("a secret for these tests")
OTHER = MaskingKey.of("another secret for them")


def masked(values: list[Any], type_: pa.DataType, method: str, key: MaskingKey = KEY, **options: Any) -> Any:
    """The column after a method; batches, slices and repetition must not matter."""
    schema = pa.schema([("value", type_)])
    plan = MaskPolicy.of([{"columns": "value", "mask": method, **options}]).plan("t", schema, key)
    batch = pa.RecordBatch.from_arrays([pa.array(values, type_)], schema=schema)
    made = plan.apply(batch)
    made.validate(full=True)
    assert made.schema == plan.target
    if method != "noise":
        twice = pa.Table.from_batches([plan.apply(batch.slice(0, 1)), plan.apply(batch.slice(1))])
        assert twice.column(0).to_pylist() == made.column(0).to_pylist()
    found = made.column(0).to_pylist()
    assert [value is None for value in found] == [
        value is None or method == "null" for value in batch.column(0).to_pylist()
    ]
    return found


TEXTS = st.lists(st.one_of(st.none(), st.text(min_size=1, max_size=30)), min_size=1, max_size=20)
KEYED_TEXT = ("hash", "email", "name", "id", "phone")


@pytest.mark.parametrize("method", KEYED_TEXT)
@given(values=TEXTS)
def test_pseudonyms_are_the_same_again_and_never_the_value(method: str, values: list[str | None]) -> None:
    made = masked([*values, *values], pa.string(), method)
    assert made[: len(values)] == made[len(values) :]
    for before, after in zip(values, made, strict=False):
        if before is not None and method in ("hash", "email"):
            assert before != after


@pytest.mark.parametrize("method", KEYED_TEXT)
def test_another_key_gives_other_pseudonyms(method: str) -> None:
    values = [f"ada.lovelace{number}@example.org" for number in range(50)]
    mine, theirs = masked(values, pa.string(), method), masked(values, pa.string(), method, OTHER)
    assert not set(mine) & set(theirs)
    assert len(set(mine)) == 50


@given(st.lists(st.emails(), min_size=1, max_size=20))
def test_an_email_looks_like_one(values: list[str]) -> None:
    for before, after in zip(values, masked(values, pa.string(), "email"), strict=True):
        assert re.fullmatch(r"u[a-z2-7]{12}@d[a-z2-7]{8}\.example", after)
        assert before.rpartition("@")[0].lower() not in after or len(before.rpartition("@")[0]) < 4


def test_emails_of_one_house_stay_in_one_house() -> None:
    one, two, three = masked(["a@x.org", "b@x.org", "c@y.org"], pa.string(), "email")
    assert one.partition("@")[2] == two.partition("@")[2] != three.partition("@")[2]
    assert masked(["a@x.org"], pa.string(), "email", domain="keep")[0].endswith("@x.org")
    assert masked(["a@x.org"], pa.string(), "email", domain="test.invalid")[0].endswith("@test.invalid")
    assert masked(["ADA@x.org"], pa.string(), "email") == masked(["ada@X.org"], pa.string(), "email")
    assert masked(["no address"], pa.string(), "email")[0].endswith("@example.com")


def shape(value: str) -> str:
    kinds = {**dict.fromkeys("0123456789", "9")}
    return "".join(
        kinds.get(sign) or ("A" if sign.isupper() else "a" if sign.isalpha() else sign) for sign in value
    )


@given(st.lists(st.from_regex(r"[A-Z]{2}-[0-9]{4,12}(/[a-z]{3})?", fullmatch=True), min_size=1, unique=True))
def test_ids_keep_their_shape_and_stay_distinct(values: list[str]) -> None:
    made = masked(values, pa.string(), "id")
    assert [shape(value) for value in made] == [shape(value) for value in values]
    assert len(set(made)) == len(values)


def test_all_ids_of_a_shape_are_permuted() -> None:
    values = [f"{number:04d}" for number in range(10_000)]
    made = masked(values, pa.string(), "id")
    assert sorted(made) == values
    assert sum(before == after for before, after in zip(values, made, strict=True)) < 20


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True))
def test_numbers_keep_sign_and_digits(values: list[int]) -> None:
    made = masked(values, pa.int64(), "id")
    for before, after in zip(values, made, strict=True):
        assert len(str(abs(before))) == len(str(abs(after)))
        assert (before < 0) == (after < 0)
    inner = [value for value in values if value != -(2**63)]
    assert len(set(masked(inner, pa.int64(), "id"))) == len(inner) if inner else True


@pytest.mark.parametrize("type_", [pa.int8(), pa.uint8(), pa.int16(), pa.uint32()])
def test_ids_of_narrow_types_are_permuted_within_their_digits(type_: pa.DataType) -> None:
    values = list(range(100, 128))
    assert len(set(masked(values, type_, "id"))) == len(values)


def test_uuids_stay_uuids() -> None:
    value = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
    (made,) = masked([value], pa.string(), "id")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made)
    assert made != value
    assert masked([value.upper()], pa.string(), "id") == [made.upper()]


def test_phones_keep_their_punctuation() -> None:
    values = ["+358 40 123 4567", "(555) 010-9999", "+358 40 765 4321"]
    made = masked(values, pa.string(), "phone")
    assert [re.sub(r"\d", "9", each) for each in made] == [re.sub(r"\d", "9", each) for each in values]
    kept = masked(values, pa.string(), "phone", keep_first=3)
    assert kept[0].startswith("+358 ") and kept[2].startswith("+358 ") and kept[0] != kept[2]
    assert "Bob" not in masked(["ask Bob"], pa.string(), "phone")[0]
    assert masked(["12", "!!"], pa.string(), "phone", keep_first=5)[1] == "**"


def test_names_keep_words_and_capitals() -> None:
    one, two = masked(["Ada King LOVELACE", "ada lovelace"], pa.string(), "name")
    first, second, third = one.split()
    assert first.istitle() and second.istitle() and third.isupper()
    assert two.split() == [first.lower(), third.lower()]
    assert masked(["Õnne-Mai O'Neill"], pa.string(), "name")[0].count("-") == 1


# -- plain ones ------------------------------------------------------------------------------------


def test_plain_methods() -> None:
    assert masked(["a", None], pa.string(), "keep") == ["a", None]
    assert masked(["a", None], pa.string(), "null") == [None, None]
    assert masked(["a", None], pa.string(), "constant", value="x") == ["x", None]
    assert masked([5], pa.int32(), "constant", value=0) == [0]
    assert masked(["a", "bcd", None], pa.string(), "redact") == ["[redacted]", "[redacted]", None]
    assert masked([b"a"], pa.binary(), "redact", mark="-") == [b"-"]
    assert masked(["4111222233334444", "44", None], pa.string(), "partial", last=4) == [
        "*" * 12 + "4444",
        "**",
        None,
    ]
    assert masked(["1234567"], pa.string(), "partial", first=2, last=2, fill="x") == ["xxxxxxx"]
    assert masked(["12345678"], pa.string(), "partial", first=2, last=2, fill="x") == ["12xxxx78"]


@given(st.lists(st.integers(-128, 127), min_size=1), st.integers(1, 300))
def test_buckets_of_integers(values: list[int], width: int) -> None:
    for before, after in zip(values, masked(values, pa.int8(), "bucket", width=width), strict=True):
        assert after == (0 if width > 127 else max(-128, before // width * width))


def test_buckets_of_floats_and_times() -> None:
    assert masked([12.7, -0.1, None], pa.float64(), "bucket", width=5) == [10.0, -5.0, None]
    day = datetime.date(2026, 11, 18)
    assert masked([day], pa.date32(), "bucket", unit="month") == [datetime.date(2026, 11, 1)]
    moment = datetime.datetime(2026, 11, 18, 10, 31, tzinfo=datetime.UTC)
    assert masked([moment], pa.timestamp("us", "UTC"), "bucket", unit="hour") == [moment.replace(minute=0)]


DATES = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))


@given(st.lists(DATES, min_size=2, max_size=20), st.integers(1, 400))
def test_dates_move_together_but_never_stay(values: list[datetime.date], days: int) -> None:
    made = masked(values, pa.date32(), "date_shift", days=days)
    shifts = {(after - before).days for before, after in zip(values, made, strict=True)}
    assert len(shifts) == 1
    assert 0 < abs(shifts.pop()) <= days


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_move_by_whole_days_of_their_person(unit: str) -> None:
    moment = datetime.datetime(2026, 11, 18, 10, 31, tzinfo=datetime.UTC)
    schema = pa.schema([("user", pa.int64()), ("at", pa.timestamp(unit, "UTC"))])
    policy = MaskPolicy.of(
        [{"columns": "user", "mask": "hash"}, {"columns": "at", "mask": "date_shift", "by": "user"}]
    )
    rows = [{"user": user % 40, "at": moment + datetime.timedelta(hours=user)} for user in range(80)]
    batch = pa.RecordBatch.from_pylist([*rows, {"user": None, "at": moment}], schema=schema)
    made = policy.plan("t", schema, KEY).apply(batch).to_pylist()
    shifts = [after["at"] - before["at"] for before, after in zip(batch.to_pylist(), made, strict=True)]
    assert all(shift % datetime.timedelta(days=1) == datetime.timedelta() and shift for shift in shifts)
    assert shifts[:40] == shifts[40:80]
    assert len(set(shifts)) > 20


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_noise_stays_near_and_is_the_same_for_the_same_place(values: list[int]) -> None:
    schema = pa.schema([("value", pa.int64())])
    plan = MaskPolicy.of([{"columns": "value", "mask": "noise", "amount": 5}]).plan("t", schema, KEY)
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=schema)
    places = pa.array(range(len(values)), pa.int64())
    made = plan.apply(batch, places).column(0).to_pylist()
    assert made == plan.apply(batch, places).column(0).to_pylist()
    assert all(abs(after - before) <= 5 for before, after in zip(values, made, strict=True))


def test_noise_by_a_share_and_without_a_place() -> None:
    made = masked([100.0] * 200 + [None], pa.float64(), "noise", share=0.1)
    assert all(90 <= value <= 110 for value in made[:-1])
    assert len(set(made)) > 150


@pytest.mark.parametrize(
    ("type_", "after"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint64(), pa.int64()),
        (pa.float32(), pa.string()),
        (pa.large_string(), pa.large_string()),
        (pa.binary(), pa.binary()),
        (pa.binary(16), pa.binary(16)),
        (pa.bool_(), pa.string()),
        (pa.decimal128(9, 2), pa.string()),
        (pa.time64("us"), pa.string()),
    ],
)
def test_what_a_hash_is_of(type_: pa.DataType, after: pa.DataType) -> None:
    schema = pa.schema([("value", type_)])
    plan = MaskPolicy.of([{"columns": "value", "mask": "hash"}]).plan("t", schema, KEY)
    assert plan.target.field(0).type == after
    batch = pa.RecordBatch.from_arrays([pa.nulls(3, type_)], schema=schema)
    assert plan.apply(batch).column(0).null_count == 3


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "rule", "message"),
    [
        (pa.int64(), {"mask": "redact"}, "text and bytes"),
        (pa.int64(), {"mask": "partial", "last": 4}, "is for text"),
        (pa.int64(), {"mask": "email"}, "is for text"),
        (pa.int64(), {"mask": "phone"}, "is for text"),
        (pa.float64(), {"mask": "id"}, "text and integers"),
        (pa.string(), {"mask": "date_shift"}, "dates and timestamps"),
        (pa.string(), {"mask": "noise", "amount": 1}, "integers and floats"),
        (pa.string(), {"mask": "bucket", "width": 1}, "integers and floats"),
        (pa.int32(), {"mask": "bucket", "width": 1.5}, "whole width"),
        (pa.date32(), {"mask": "bucket", "unit": "hour"}, "no hours"),
        (pa.int8(), {"mask": "constant", "value": 300}, "no value of type int8"),
        (pa.map_(pa.string(), pa.string()), {"mask": "hash"}, "does not fit"),
        (pa.date32(), {"mask": "date_shift", "by": "nobody"}, "no column"),
    ],
)
def test_a_method_that_does_not_fit_says_so(type_: pa.DataType, rule: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        MaskPolicy.of([{"columns": "value", **rule}]).plan("t", pa.schema([("value", type_)]), KEY)
    assert 'column "value" of "t"' in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"mask": "hsah"}, "no masking method 'hsah'"),
        ({"mask": "hash", "domian": "x"}, "has no option domian"),
        ({"mask": "hash", "domain": 3}, "is a text"),
        ({"mask": "partial"}, "first or last"),
        ({"mask": "partial", "first": -1}, "whole number"),
        ({"mask": "partial", "first": 1, "fill": "ab"}, "one sign"),
        ({"mask": "constant"}, "needs value"),
        ({"mask": "bucket"}, "either a width"),
        ({"mask": "bucket", "unit": "fortnight"}, "the units of bucket"),
        ({"mask": "noise"}, "either an amount"),
        ({"mask": "noise", "share": -1}, "a number above 0"),
        ({"mask": "email", "domain": "no domain"}, "domain of email"),
        ({"mask": "date_shift", "by": 3}, "names columns"),
        ({}, "what its columns become"),
        ({"mask": "keep", "columns": []}, "no columns and no tags"),
        ({"mask": "keep", "columns": 3}, "list of names"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_at_once(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MaskPolicy.of([{"columns": ["value"], **rule}])
