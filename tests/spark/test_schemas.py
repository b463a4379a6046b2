"""Values between topics and Spark: each unchanged, or refused with its column."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from virta.errors import SchemaMismatch
from virta.spark.schemas import arrow_schema, exact, spark_schema

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, None]),
    (pa.uint8(), [255, None]),
    (pa.uint32(), [2**32 - 1, None]),
    (pa.uint64(), [1, 2**64 - 1, None]),
    (pa.float16(), [1.5, None]),
    (pa.float64(), [0.1, float("inf"), None]),
    (pa.large_string(), ["ä", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    (pa.binary(3), [b"abc", None]),
    (pa.decimal128(10, 2), [decimal.Decimal("1.25"), None]),
    (pa.decimal256(38, 2), [decimal.Decimal("1.25"), None]),
    (pa.date64(), [datetime.date(2020, 1, 1), None]),
    (pa.timestamp("ns", "Europe/Berlin"), [NOON, None]),
    (pa.timestamp("s"), [datetime.datetime(2020, 1, 1), None]),
    (pa.time32("ms"), [datetime.time(1, 2, 3), None]),
    (pa.time64("us"), [datetime.time(1, 2, 3, 5), None]),
    (pa.duration("ns"), [datetime.timedelta(seconds=1), None]),
    (pa.list_(pa.uint32()), [[1, 2], None, [], [None]]),
    (pa.large_list(pa.timestamp("ms", "UTC")), [[NOON], None]),
    (pa.list_(pa.int32(), 2), [[1, 2], None]),
    (pa.map_(pa.string(), pa.uint16()), [[("a", 1)], None, []]),
    (
        pa.struct([pa.field("a", pa.uint64()), pa.field("b", pa.list_(pa.struct([("c", pa.time32("s"))])))]),
        [{"a": 1, "b": [{"c": datetime.time(1, 2, 3)}]}, None, {"a": None, "b": None}],
    ),
]


@pytest.mark.parametrize("kind, values", CASES, ids=[str(kind) for kind, _ in CASES])
def test_there_and_back(kind: pa.DataType, values: list[Any]) -> None:
    whole = pa.array(values, kind)
    target = arrow_schema(spark_schema(pa.schema([("x", kind)]))).field(0).type
    for array in (whole, pa.concat_arrays([whole, whole])[len(whole) - 1 :]):
        there = exact(array, target, "x")
        there.validate(full=True)
        back = exact(there, kind, "x")
        back.validate(full=True)
        assert back.to_pylist() == array.to_pylist()


def test_uuid_is_text() -> None:
    value = uuid.uuid4()
    array = pa.array([value.bytes, None], pa.uuid())
    text = exact(array, pa.string(), "x")
    assert text.to_pylist() == [str(value), None]
    assert exact(text, pa.uuid(), "x").to_pylist() == [value, None]


@pytest.mark.parametrize(
    "array, target",
    [
        (pa.array([1], pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC")),
        (pa.array([0.1], pa.float64()), pa.float32()),
        (pa.array([300], pa.int64()), pa.int8()),
        (pa.array([1], pa.int64()), pa.string()),
        (pa.array([NOON]), pa.timestamp("us")),
        (pa.array(["1"]), pa.int64()),
        (pa.array([decimal.Decimal("1.5")]), pa.uint64()),
    ],
    ids=str,
)
def test_what_would_change_is_refused(array: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="column 'x'"):
        exact(array, target, "x")


def test_nan_stays() -> None:
    assert str(exact(pa.array([float("nan")], pa.float64()), pa.float32(), "x")[0]) == "nan"


def test_decimals_beyond_spark_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="'x' is decimal256"):
        spark_schema(pa.schema([("x", pa.decimal256(60, 2))]))
