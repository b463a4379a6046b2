"""Values into JSON and back, for every type a column may have; what does not fit is refused by name."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.exchange.json_values import (
    ColumnDecoder,
    Unfit,
    cell_reader,
    plain,
    to_json,
    wants_exact_numbers,
)
from virta.exchange.sinks import cell_text

TEXTS = ["", "a", "é\n", '{"$binary":1}', 'a,b"c', "\\N", "null", " x ", "\t", "\x00\x85", "\u2028"]
BYTES = [b"", b"abc", b"\xff\x00", b'{"$binary":"AA=="}', b"\n"]
FLOATS = [0.1, -0.0, 1e300, float("nan"), float("inf"), float("-inf")]

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 127]),
    (pa.int64(), [-(1 << 63), (1 << 63) - 1]),
    (pa.uint64(), [0, (1 << 64) - 1]),
    (pa.float64(), FLOATS),
    (pa.float32(), [0.5, 0.10000000149011612, float("nan")]),
    (pa.float16(), [1.5, float("inf")]),
    (pa.bool_(), [True, False]),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), BYTES),
    (pa.large_binary(), BYTES),
    (pa.binary(3), [b"abc", b"\xff\x00\x01"]),
    (pa.timestamp("us", "UTC"), [0, -1, 1_700_000_000_123_456]),
    (pa.timestamp("ns", "UTC"), [1, -1, 1_700_000_000_123_456_789]),
    (pa.timestamp("ns"), [1, 1_700_000_000_123_456_789]),
    (pa.timestamp("s"), [0, 1_700_000_000, 86_400_000_000_000]),
    (pa.timestamp("ms", "Europe/Helsinki"), [1_700_000_000_123]),
    (pa.date32(), [0, -1000, 20_000]),
    (pa.date64(), [0, 86_400_000 * 20_000]),
    (pa.time32("s"), [0, 86_399]),
    (pa.time32("ms"), [1, 86_399_999]),
    (pa.time64("us"), [1, 86_399_999_999]),
    (pa.time64("ns"), [1, 86_399_999_999_999]),
    (pa.duration("s"), [0, -5]),
    (pa.duration("us"), [-1_500_000, 90_000_001]),
    (pa.duration("ns"), [1, -(1 << 62)]),
    (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("99999999.99")]),
    (pa.decimal256(50, 4), [Decimal(10) ** 40]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
    (pa.list_(pa.timestamp("ns", "UTC")), [[1, None], []]),
    (pa.list_(pa.int64(), 2), [[1, 2], [None, 3]]),
    (pa.large_list(pa.binary()), [[b"\xff", b"a"], []]),
    (pa.map_(pa.string(), pa.binary()), [[("a", b"\xff"), ("b", None)], [("a", b"1"), ("a", b"2")], []]),
    (pa.map_(pa.int64(), pa.string()), [[(1, "one")], []]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.decimal128(5, 1)))]),
        [{"a": 1, "b": [Decimal("1.5"), None]}, {"a": None, "b": None}],
    ),
    (pa.list_(pa.struct([("t", pa.date32()), ("u", pa.binary())])), [[{"t": 1, "u": b"\xff"}, None]]),
    (pa.struct([("t", pa.time64("ns")), ("d", pa.duration("ns"))]), [{"t": 5, "d": 7}]),
]


def through_json(array: pa.Array, schema: pa.Schema) -> pa.Array:
    exact = Decimal if wants_exact_numbers(schema) else None
    values = [json.loads(json.dumps(value, allow_nan=False), parse_float=exact) for value in to_json(array)]
    return ColumnDecoder(schema.field(0)).array(values)


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
def test_every_type_comes_back_as_it_was(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([pa.field("x", kind)])
    array = pa.array([*values, None, *values], plain(kind))
    given = array.dictionary_encode() if pa.types.is_dictionary(kind) else array
    for part, expected in ((given, array), (given.slice(1, len(values)), array.slice(1, len(values)))):
        back = through_json(part, schema)
        # compared as text: a nan does not equal itself
        assert back.type == expected.type
        assert str(back) == str(expected)


def test_uuids_are_text() -> None:
    value = uuid.uuid4()
    array = pa.uuid().wrap_array(pa.array([value.bytes, None], pa.binary(16)))
    assert to_json(array) == [str(value), None]
    back = through_json(array, pa.schema([pa.field("x", pa.uuid())]))
    assert back.type == pa.uuid() and back.to_pylist() == [value, None]


def test_what_the_forms_look_like() -> None:
    moment = datetime.datetime(2026, 11, 18, 10, 0, 0, 123456, tzinfo=datetime.UTC)
    assert to_json(pa.array([moment])) == ["2026-11-18T10:00:00.123456Z"]
    assert to_json(pa.array([moment]).cast(pa.timestamp("us", "Asia/Tokyo"))) == [
        "2026-11-18T10:00:00.123456Z"
    ]
    assert to_json(pa.array([datetime.timedelta(seconds=-1.5)])) == ["-1.5s"]
    assert to_json(pa.array([Decimal("1E-9")], pa.decimal128(38, 9))) == ["0.000000001"]
    assert to_json(pa.array([b"\xff"])) == [{"$binary": "/w=="}]
    assert to_json(pa.array([b"text"])) == ["text"]
    assert to_json(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))) == [{"a": 1}]
    assert to_json(pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))) == [
        [["a", 1], ["a", 2]]
    ]
    assert to_json(pa.array([float("nan"), float("-inf"), 1.0])) == ["NaN", "-Infinity", 1.0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1"),
        (pa.int64(), True),
        (pa.int64(), 1.5),
        (pa.int8(), 128),
        (pa.float64(), "1.5"),
        (pa.float64(), (1 << 53) + 1),
        (pa.bool_(), 1),
        (pa.string(), 5),
        (pa.string(), {"$binary": "AA=="}),
        (pa.binary(), {"$binary": "not base64"}),
        (pa.binary(), {"$binary": "AA==", "more": 1}),
        (pa.binary(3), "ab"),
        (pa.timestamp("us", "UTC"), "2026-11-18T10:00:00"),
        (pa.timestamp("us"), "2026-11-18T10:00:00Z"),
        (pa.timestamp("us", "UTC"), "2026-11-18T10:00:00.123456789Z"),
        (pa.date32(), "18.11.2026"),
        (pa.time32("s"), "10:00:00.5"),
        (pa.time64("us"), "24:00:00"),
        (pa.duration("s"), "1.5s"),
        (pa.duration("s"), 1),
        (pa.decimal128(4, 2), "1.234"),
        (pa.decimal128(4, 2), "x"),
        (pa.uuid(), "x"),
        (pa.list_(pa.int64()), {"0": 1}),
        (pa.list_(pa.int64(), 2), [1]),
        (pa.struct([("a", pa.int64())]), {"b": 1}),
        (pa.struct([("a", pa.int64())]), [1]),
        (pa.map_(pa.string(), pa.int64()), [["a", 1, 2]]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_its_row(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(Unfit) as refused:
        ColumnDecoder(pa.field("x", kind)).array([None, value])
    assert getattr(refused.value, "row", None) == 1


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_cells_come_back(text: str) -> None:
    read = cell_reader(pa.string(), json.loads)
    assert read(cell_text(text)) == text


@given(st.binary())
def test_binary_cells_come_back(data: bytes) -> None:
    field = pa.field("x", pa.binary())
    (value,) = to_json(pa.array([data]))
    back = ColumnDecoder(field).array([cell_reader(field.type, json.loads)(cell_text(value))])
    assert back.to_pylist() == [data]


def test_a_decimal_keeps_its_digits_when_it_comes_as_a_number() -> None:
    field = pa.field("x", pa.decimal128(20, 10))
    value = json.loads("1.0000000001", parse_float=decimal.Decimal)
    assert ColumnDecoder(field).array([value]).to_pylist() == [Decimal("1.0000000001")]
