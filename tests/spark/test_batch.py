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


def test_counting_reads_chain_files_only(frames: Any, orders: Any, log: virta.Log) -> None:
    from pyspark.sql.types import StructType

    def counted(**options: Any) -> int:
        reader = frames.spark.read.format("virta").option("log", str(log.path)).options(**options)
        return int(reader.schema(StructType([])).load("orders").count())

    assert counted() == counted(verify="false") == 500
    assert counted(starting=150, ending=349) == 199
    assert counted(where="id >= 490") == 10
    data = next((log.path / "topics" / "orders" / "p0000").glob("*.arrows"))
    with data.open("r+b") as file:
        file.seek(4000)
        file.write(b"damaged")
    assert counted() == 500  # the data is not looked at


def test_blocks_say_what_chain_files_know(frames: Any, orders: Any) -> None:
    blocks = frames.read("orders", kind="blocks")
    rows = sorted(blocks.collect(), key=lambda row: row["base_offset"])
    assert [(row["base_offset"], row["end_offset"], row["rows"]) for row in rows] == [
        (start, start + 100, 100) for start in range(0, 500, 100)
    ]
    assert rows[-1]["hash"] == orders.head
    assert blocks.groupBy().sum("rows").collect()[0][0] == 500
    assert frames.read("orders", kind="blocks", starting=250, columns="rows").count() == 3


def test_what_goes_wrong_is_one_line(frames: Any, orders: Any) -> None:
    from virta.spark.telling import told

    def said(act: Any) -> Any:
        with pytest.raises(Exception) as caught:
            act()
        assert "Traceback" not in str(caught.value)
        assert len(str(caught.value).splitlines()) <= 6  # a filter's error points at the place
        return told(caught.value)

    error = said(lambda: frames.read("oders"))
    assert isinstance(error, virta.NotFound) and error.hint == "did you mean 'orders'?"
    assert str(error) == "topic 'oders' not found (did you mean 'orders'?)"
    assert "no option 'colums'" in str(said(lambda: frames.read("orders", colums="id")))
    reader = frames.spark.read.format("virta").option("log", "virta://127.0.0.1:1")
    assert isinstance(said(lambda: reader.load("orders")), virta.UnavailableError)
    other = frames.spark.range(1)
    assert isinstance(said(lambda: frames.write(other, "orders")), virta.SchemaMismatch)
    orders_at_work = frames.read("orders", where="amount + 'x' > 2")
    assert isinstance(said(orders_at_work.collect), virta.UsageError)
