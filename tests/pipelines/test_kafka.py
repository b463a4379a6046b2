"""Kafka as a source: a real one-node Kafka, and Spark with its own connector, fetched by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import virta

pytestmark = pytest.mark.slow
PROGRAM = """
import sys
from virta.pipelines import Pipeline
report = Pipeline.load(sys.argv[1]).run()
print("rows", report.rows)
"""


@pytest.fixture
def kafka(spark: Any, tmp_path: Path) -> Any:
    """`spark` is not used: where it cannot start, this cannot either."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    from bench.harness import Unavailable
    from bench.served.peers.kafka import KafkaServer

    try:
        server = KafkaServer(tmp_path)
    except Unavailable as missing:
        pytest.skip(str(missing))
    yield server
    server.close()


def produce(address: str, first: int, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    for number in range(first, first + count):
        value = json.dumps({"id": number, "email": f"customer.{number}@corp.org"})
        producer.produce("orders", value, f"k{number}", partition=number % 3)
    assert producer.flush(30) == 0


def run(place: Path) -> int:
    """In a process of its own: the connector has to be there when Spark starts."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place / "kafka.toml")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=dict(os.environ),
    )
    if "not found" in done.stderr and "unresolved" in done.stderr.lower():
        pytest.skip("Spark's Kafka connector cannot be fetched here")
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


def test_kafka_into_a_topic_and_on_from_there(kafka: Any, tmp_path: Path) -> None:
    kafka.make("orders", 3)
    produce(kafka.address, 0, 300)
    (tmp_path / "kafka.toml").write_text(
        f"""
        name = "kafka"
        log = "./events"
        master = "local[2]"
        [spark]
        "spark.driver.memory" = "512m"
        "spark.sql.shuffle.partitions" = "2"
        [[flow]]
        source = {{ kafka = "{kafka.address}", topic = "orders", metadata = true }}
        sink = {{ topic = "orders" }}
        """
    )
    assert run(tmp_path) == 300
    produce(kafka.address, 300, 60)
    assert run(tmp_path) == 60
    with virta.open(tmp_path / "events") as log:
        rows = log.topic("orders")[:].to_pylist()
    assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(360))
    assert {row["kafka_partition"] for row in rows} == {0, 1, 2}
    assert all(row["key"] == f"k{json.loads(row['value'])['id']}".encode() for row in rows)
