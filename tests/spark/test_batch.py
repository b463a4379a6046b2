"""Reading and writing a topic as a DataFrame."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import virta

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(log: virta.Log) -> Any:
    topic = log.create_topic("orders", {"id": int, "user": str | None, "amount": float})
    for start in range(0, 500, 100):
        topic.append([{"id": n, "user": f"u{n % 7}", "amount": n / 4} for n in range(start, start + 100)])
    return topic


def test_reads_all_columns(frames: Any, orders: Any) -> None:
    frame = frames.read("orders")
    assert frame.columns == ["_partition", "_offset", "_timestamp", "id", "user", "amount"]
    rows = sorted(frame.collect(), key=lambda row: row["_offset"])
    assert [row["id"] for row in rows] == list(range(500))
    assert {row["_partition"] for row in rows} == {0}
    stamp = rows[0]["_timestamp"].replace(tzinfo=datetime.UTC)
    assert stamp == orders[0].timestamp


def test_ranges_columns_and_filters(frames: Any, orders: Any) -> None:
    def ids(**options: Any) -> list[int]:
        return sorted(row["id"] for row in frames.rows("orders", **options))

    assert ids(starting=490) == list(range(490, 500))
    assert ids(starting=-3) == [497, 498, 499]
    assert ids(starting=str(orders.token(100)), ending='{"0": 103}') == [100, 101, 102]
    assert ids(starting="-1h") == list(range(500))
    assert ids(starting="latest") == []
    assert ids(where="amount < 1", columns="id") == [0, 1, 2, 3]
    assert ids(verify="false", starting=498, columns="amount,id") == [498, 499]
    assert len(frames.read("orders", tasks=4).rdd.glom().collect()) == 4


def test_pushed_filters_give_what_spark_gives(frames: Any, orders: Any) -> None:
    plain = frames.spark.createDataFrame(frames.read("orders").collect(), frames.read("orders").schema)
    moment = orders[250].timestamp.isoformat()
    for text in (
        "id > 250 and user = 'u3'",
        "_offset between 17 and 19 and _partition = 0",
        "_partition = 1",
        f"_timestamp >= '{moment}'",
        "user like 'u1%' and amount >= 100",
        "id in (3, 5, 7000) and user is not null",
        "_offset in (3, 499)",
    ):
        expected = sorted(row["id"] for row in plain.where(text).collect())
        frame = frames.read("orders", pushdown="once")
        assert sorted(row["id"] for row in frame.where(text).collect()) == expected, text


def test_a_frame_serves_many_queries(frames: Any, orders: Any) -> None:
    frame = frames.read("orders")
    assert frame.where("id = 3").count() == 1
    assert frame.count() == 500
    assert frame.where("id = 3").union(frame.where("id in (4, 5)")).count() == 3


def test_user_schema_reads_only_its_columns(frames: Any, orders: Any) -> None:
    reader = frames.spark.read.format("virta").option("log", str(frames.log.path))
    frame = reader.schema("amount double, _offset bigint").load("orders")
    assert frame.where("_offset = 8").collect()[0].asDict() == {"amount": 2.0, "_offset": 8}


def test_writes_and_creates(frames: Any, orders: Any) -> None:
    frames.write(frames.read("orders", starting=400), "copy", create="true")
    copy = frames.log.topic("copy")
    assert sorted(row["id"] for row in copy) == list(range(400, 500))
    assert copy.schema.names == ["id", "user", "amount"]
    assert copy.verify().ok


def test_large_writes_are_staged_and_leave_nothing(frames: Any, log: virta.Log) -> None:
    log.create_topic("numbers", {"n": int, "text": str})
    frame = frames.spark.range(100_000).selectExpr("id as n", "repeat('x', 20) as text")
    frames.write(frame.repartition(2), "numbers")
    topic = log.topic("numbers")
    assert sorted(topic.to_arrow()["n"].to_pylist()) == list(range(100_000))
    assert not any((log.path / "staging" / "numbers").iterdir())


def test_one_transaction_is_written_once(frames: Any, orders: Any) -> None:
    log = frames.log
    log.create_topic("copy", orders.schema)
    for _ in range(2):
        frames.write(frames.read("orders"), "copy", transaction="nightly")
    assert log.topic("copy").count() == 500
    frames.write(frames.read("orders"), "copy", transaction="nightly 2")
    assert log.topic("copy").count() == 1000
