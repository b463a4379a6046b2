"""Keys: bytes and hashes against a second implementation, written value by value from docs/format.md."""

from __future__ import annotations

import datetime
import math
import re
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virta.topics.keys import (
    always_exact,
    combined_hash,
    encode_rows,
    form_of,
    hash_columns,
    hash_rows,
    plain_hash,
)

ALL = (1 << 64) - 1
DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"


def mix(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & ALL
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & ALL
    return x ^ x >> 33


def fold(seed: int, words: list[int]) -> int:
    h = mix(seed)
    for word in words:
        h = mix(h ^ word)
    return h


def canonical(value: Any) -> Any:
    """A Python value as an int (word), bytes, a tuple (group), a list (items) or None."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        data = (
            0x7FF8000000000000
            if math.isnan(value)
            else struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
        )
        return int(data)
    if isinstance(value, bool | int):
        return int(value) & ALL
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
    if isinstance(value, dict):
        return tuple(canonical(value[name]) for name in ("x", "name"))
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1) & ALL
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days * 86_400_000 & ALL
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000_000 + value.microsecond * 1000
    raise TypeError(type(value))


def expected_hash(form: Any) -> int:
    if form is None:
        return 0xF1357AEA2E62A9C5
    if isinstance(form, int):
        return mix(form ^ 0x9E3779B97F4A7C15)
    if isinstance(form, bytes):
        words = [int.from_bytes(form[at : at + 8], "little") for at in range(0, len(form), 8)]
        return fold(0xD1B54A32D192ED03 ^ len(form), words)
    seed = 0x8CB92BA72F3D8DD7 if isinstance(form, tuple) else 0xAEF17502108EF2D9
    return fold(seed ^ len(form), [expected_hash(each) for each in form])


def expected_bytes(form: Any) -> bytes:
    if form is None:
        return b"\0"
    if isinstance(form, int):
        return b"\1" + form.to_bytes(8, "little")
    if isinstance(form, bytes):
        return b"\1" + len(form).to_bytes(4, "little") + form
    parts = b"".join(expected_bytes(each) for each in form)
    return b"\1" + (b"" if isinstance(form, tuple) else len(form).to_bytes(4, "little")) + parts


MOMENTS = st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2200, 1, 1))
TIMES = st.times()
POINT = pa.struct([("x", pa.int32()), ("name", pa.string())])
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint16(), st.integers(0, 65535)),
    (pa.uint64(), st.integers(0, ALL)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.float16(), st.floats(width=16)),
    (pa.string(), st.text(max_size=30)),
    (pa.large_string(), st.text(max_size=30)),
    (pa.binary(), st.binary(max_size=30)),
    (pa.binary(5), st.binary(min_size=5, max_size=5)),
    (pa.uuid(), st.uuids()),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["", "a", "bb", "a" * 17])),
    (pa.decimal128(20, 4), st.decimals(-(10**14), 10**14, places=4)),
    (pa.decimal128(20, 12), st.decimals(-1, 1, places=12)),
    (pa.decimal256(60, 0), st.decimals(-(10**50), 10**50, places=0)),
    (pa.date32(), st.dates(min_value=datetime.date(1, 1, 1))),
    (pa.date64(), st.dates(min_value=datetime.date(1700, 1, 1))),
    (pa.time64("us"), TIMES),
    (pa.time32("ms"), TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    (pa.timestamp("us"), MOMENTS),
    (
        POINT,
        st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), "name": st.none() | st.text(max_size=9)}),
    ),
    (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=12), max_size=4)),
    (pa.large_list(pa.float64()), st.lists(st.floats(), max_size=4)),
    (pa.list_(pa.int64(), 2), st.lists(st.integers(0, 3), min_size=2, max_size=2)),
    (
        pa.list_(POINT),
        st.lists(st.fixed_dictionaries({"x": st.integers(0, 2), "name": st.text(max_size=2)}), max_size=3),
    ),
]


@pytest.mark.parametrize(
    ("kind", "values"), KINDS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_type_is_hashed_and_encoded_as_documented(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    given_values = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(given_values) - 1))
    if pa.types.is_float16(kind):
        column = pa.array([None if v is None else np.float16(v) for v in given_values], kind)
    else:
        column = pa.array(given_values, kind)
    numbers = pa.array(range(len(given_values)), pa.int32())
    batch = pa.record_batch({"k": column, "n": numbers}).slice(start)
    forms = [(canonical(v), n) for n, v in enumerate(given_values)][start:]
    assert hash_rows(batch, ["k"]).tolist() == [expected_hash((form,)) for form, _ in forms]
    assert hash_rows(batch, ["n", "k"]).tolist() == [expected_hash((n, form)) for form, n in forms]
    assert encode_rows(batch, ["k", "n"]) == [expected_bytes(f) + expected_bytes(n) for f, n in forms]
    keys = form_of([batch.column("k")])
    rows = np.arange(len(batch))
    for turn in range(len(batch)):
        same = [forms[at][0] == forms[at - turn][0] for at in range(len(forms))]
        assert keys.same(rows, np.roll(rows, turn)).tolist() == same
    assert form_of([batch.column("k")]).take(rows[::-1].copy()).joined() == encode_rows(batch, ["k"])[::-1]


def test_a_key_outlives_the_widening_of_its_column() -> None:
    small = pa.array([-7, 0, 120], pa.int8())
    for wide in (pa.int16(), pa.int32(), pa.int64(), pa.float64()):
        same = hash_columns([small]).tolist() == hash_columns([small.cast(wide)]).tolist()
        assert same == pa.types.is_integer(wide)  # a number is not the float of its value
    decimals = pa.array([Decimal("1.50"), Decimal("-100.00"), Decimal("0.00")], pa.decimal128(10, 2))
    assert (hash_columns([decimals]) == hash_columns([decimals.cast(pa.decimal256(50, 30))])).all()
    texts = pa.array(["a", "", "b"])
    assert (hash_columns([texts]) == hash_columns([texts.dictionary_encode()])).all()
    assert (hash_columns([texts]) == hash_columns([texts.cast(pa.large_string())])).all()
    days = pa.array([0, -1, 20000], pa.int32()).cast(pa.date32())
    assert (hash_columns([days]) == hash_columns([days.cast(pa.date64())])).all()
    times = pa.array([0, 86399], pa.time32("s"))
    assert (hash_columns([times]) == hash_columns([times.cast(pa.time64("ns"))])).all()
    assert (
        hash_columns([pa.array([1.5, math.nan], pa.float32())]) == hash_columns([pa.array([1.5, math.nan])])
    ).all()


def test_values_that_are_one_key_and_values_that_are_not() -> None:
    floats = hash_columns([pa.array([0.0, -0.0, math.nan, -math.nan, None])]).tolist()
    assert floats[0] == floats[1] and floats[2] == floats[3] and len(set(floats)) == 3
    texts = hash_columns([pa.array(["", None, "\0", "\0\0", "a", "a\0"])]).tolist()
    assert len(set(texts)) == 6
    first, second = pa.array(["a", "ab"]), pa.array(["bc", "c"])
    assert len(set(hash_columns([first, second]).tolist())) == 2
    lists = hash_columns([pa.array([[], [None], None, [1], [1, 1]], pa.list_(pa.int64()))]).tolist()
    assert len(set(lists)) == 5


def test_many_rows_are_hashed_like_few() -> None:
    count = 70_001
    numbers = pa.array(range(count))
    texts = pa.array([f"{n:x}" * (n % 7) for n in range(count)])
    found = hash_columns([numbers, texts])
    for at in (0, 1, 32_767, 32_768, 65_536, count - 1):
        form = (numbers[at].as_py(), texts[at].as_py().encode())
        assert int(found[at]) == expected_hash(form)
    assert len(np.unique(found)) == count


@given(st.none() | st.integers(-(1 << 63), ALL) | st.text(max_size=40) | st.binary(max_size=40))
def test_one_plain_value_is_hashed_without_arrow(value: Any) -> None:
    found = plain_hash(value)
    assert found is not None
    assert combined_hash([found, found]) == expected_hash((canonical(value), canonical(value)))


def test_what_is_not_plain_is_left_to_arrow() -> None:
    assert plain_hash(True) is None and plain_hash(1.0) is None and plain_hash(datetime.date.today()) is None


def test_a_hash_is_exact_where_a_word_is_the_whole_key() -> None:
    assert always_exact([(pa.int64(), False)])
    assert not always_exact([(pa.int64(), True)])
    assert not always_exact([(pa.string(), False)])
    assert not always_exact([(pa.int64(), False), (pa.int64(), False)])


def test_no_rows_have_no_hashes() -> None:
    for kind, _ in KINDS:
        assert hash_columns([pa.array([], kind)]).tolist() == []


def test_the_vectors_of_the_document() -> None:
    """Each line of the table in docs/format.md: types, values, canonical bytes and hash."""
    text = DOCUMENT.read_text(encoding="utf-8")
    part = text[text.index("## Keys") :]
    found = re.findall(
        r"^\| `([^`|]*)` \| `([^`|]*)` \| `([0-9a-f ]*)` \| `([0-9a-f]{16})` \|$", part, re.MULTILINE
    )
    assert len(found) >= 12
    names = {"Decimal": Decimal, "date": datetime.date, "nan": math.nan}
    for kinds, values, data, digits in found:
        types = eval(f"[{kinds}]", vars(pa))
        columns = [
            pa.array([value], kind() if callable(kind) else kind)
            for value, kind in zip(eval(f"[{values}]", names), types, strict=True)
        ]
        assert form_of(columns).joined()[0].hex() == data.replace(" ", ""), kinds
        assert f"{int(hash_columns(columns)[0]):016x}" == digits, kinds
