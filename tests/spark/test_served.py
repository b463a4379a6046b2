"""A log behind an address: what the driver plans and what executors read, through a broker.

The classes are used as Spark uses them, without a Spark: what matters is on our side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.types import LongType, StringType, StructField, StructType

import virta
from tests.served import Served
from virta.spark import source

ROW = StructType([StructField("id", LongType(), False), StructField("user", StringType(), False)])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path / "events")
    orders = broker.log.create_topic("orders", {"id": int, "user": str})
    for start in range(0, 500, 100):
        orders.append([{"id": n, "user": f"u{n}"} for n in range(start, start + 100)])
    yield broker
    broker.stop()


def read(served: Served, topic: str = "orders", schema: StructType | None = None, **options: Any) -> Any:
    given = {"log": served.address, "topic": topic, **options}
    reader = source.reader_of(given, source.schema_of(given) if schema is None else schema)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return pa.Table.from_batches(batches) if batches else None


@pytest.mark.parametrize("verify", ["true", "false"])
def test_reads_through_a_broker(served: Served, verify: str) -> None:
    def ids(**options: Any) -> list[int]:
        return read(served, verify=verify, **options)["id"].to_pylist()

    assert ids() == list(range(500))
    assert ids(starting="150", ending="320") == list(range(150, 320))
    assert ids(starting="-1h", where="id < 10") == list(range(10))
    assert ids(starting="#" + served.log.topic("orders").head) == list(range(400, 500))
    assert read(served, schema=StructType([]), verify=verify).num_rows == 500


def test_what_needs_files_is_refused(served: Served) -> None:
    served.log.create_topic("users", {"id": int}, kind="update", keys=["id"]).append({"id": 1})
    with pytest.raises(virta.UsageError, match="behind an address"):
        read(served, kind="blocks")
    with pytest.raises(virta.UsageError, match="read its changes"):
        read(served, "users")
    assert read(served, "users", kind="changes").num_rows == 1


def test_streams_from_a_broker(served: Served) -> None:
    given = {"log": served.address, "topic": "orders", "maxRowsPerTrigger": "120"}
    stream = source.stream_reader_of(given, source.schema_of(given))
    at, found = stream.initialOffset(), []
    while True:
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        if end == at:
            break
        batches = [batch for task in stream.partitions(at, end) for batch in stream.read(task)]
        found.append([number for batch in batches for number in batch.column("id").to_pylist()])
        at = end
    assert [len(ids) for ids in found] == [120, 120, 120, 120, 20]
    assert [number for ids in found for number in ids] == list(range(500))


def test_writes_through_a_broker_once(served: Served, tmp_path: Path) -> None:
    target = served.log.create_topic("target", {"id": int, "user": str}, partitions=2, keys=["id"])
    given = {
        "log": served.address,
        "topic": "target",
        "transaction": "nightly",
        "staging": str(tmp_path / "s"),
    }
    rows = pa.record_batch({"id": range(1000), "user": ["x" * 200] * 1000})
    for _ in range(2):
        writer = source.writer_of(given, ROW, overwrite=False)
        message = writer.write(iter([rows]))
        writer.commit([message])
    assert sorted(row["id"] for row in target) == list(range(1000))
    assert not list((tmp_path / "s").rglob("*.arrow"))


def test_a_directory_for_staging_is_asked_for(served: Served) -> None:
    served.log.create_topic("target", {"id": int, "user": str})
    with pytest.raises(virta.UsageError, match="none is named"):
        source.writer_of({"log": served.address, "topic": "target"}, ROW, overwrite=False)
