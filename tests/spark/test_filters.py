"""Filters as Spark hands them over, in our words."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import datasource as spark

from virta.spark.filters import push
from virta.spark.plan import Span

SCHEMA = pa.schema(
    [
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.int64()),
        pa.field('odd "name"', pa.string()),
        pa.field("x", pa.float64()),
    ]
)
MOMENTS: Any = {}.__getitem__
SPAN = Span(partition=0, start=10, end=100)


def test_offsets_narrow_the_range() -> None:
    pushed = push([spark.GreaterThan(("_offset",), 20), spark.LessThanOrEqual(("_offset",), 30)], SCHEMA)
    assert pushed.narrow(SPAN, MOMENTS) == Span(partition=0, start=21, end=31)
    assert push([spark.EqualTo(("_offset",), 5)], SCHEMA).narrow(SPAN, MOMENTS).is_empty
    assert push([spark.In(("_offset",), (40, 20))], SCHEMA).narrow(SPAN, MOMENTS) == Span(
        partition=0, start=20, end=41
    )


def test_other_partitions_are_empty() -> None:
    assert push([spark.EqualTo(("_partition",), 1)], SCHEMA).narrow(SPAN, MOMENTS).is_empty
    assert not push([spark.In(("_partition",), (0, 1))], SCHEMA).narrow(SPAN, MOMENTS).is_empty


def test_times_become_microseconds() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    us = int(moment.timestamp()) * 1_000_000
    pushed = push(
        [spark.GreaterThan(("_timestamp",), moment), spark.LessThan(("_timestamp",), moment)], SCHEMA
    )
    assert (pushed.since_us, pushed.until_us) == (us + 1, us)
    assert pushed.narrow(SPAN, {us + 1: 40, us: 60}.__getitem__) == Span(partition=0, start=40, end=60)


def test_columns_become_an_expression() -> None:
    pushed = push(
        [
            spark.GreaterThan(("id",), 3),
            spark.EqualTo(('odd "name"',), "it's"),
            spark.In(("id",), (1, 2)),
            spark.IsNotNull(("x",)),
        ],
        SCHEMA,
    )
    assert pushed.text == '''"id" > 3 and "odd ""name""" = 'it''s' and "id" in (1, 2) and "x" is not null'''


def test_what_means_something_else_is_left_to_spark() -> None:
    left = [
        spark.GreaterThan(("x",), 1.0),  # NaN is the greatest number there
        spark.EqualTo(("x",), float("nan")),
        spark.EqualTo(("id", "inner"), 3),
        spark.EqualTo(("gone",), 3),
        spark.Not(spark.EqualTo(("id",), 3)),
        spark.StringStartsWith(('odd "name"',), "50%"),
        spark.EqualTo(("id",), "three"),
    ]
    pushed = push(left, SCHEMA)
    assert pushed.text is None
    assert pushed.narrow(SPAN, MOMENTS) == SPAN
