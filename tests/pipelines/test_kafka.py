"""Kafka as a source: a real one-node Kafka, and Spark with its own connector.

VIRTA_TEST_KAFKA_JARS names the connector's jars, commas between: spark-sql-kafka-0-10_2.13,
spark-token-provider-kafka-0-10_2.13, kafka-clients, commons-pool2. Kafka itself:
python -m bench.served.places kafka
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import virta

PROGRAM = """
import sys
from virta.pipelines import Pipeline
print("rows", Pipeline.load(sys.argv[1]).run().rows)
"""
# Not by its name: Maven may not have the connector of the newest Spark yet, and asking costs a minute.
JARS = os.environ.get("VIRTA_TEST_KAFKA_JARS")


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


def run(place: Path, address: str) -> int:
    """In a process of its own: the connector has to be there when Spark starts."""
    (place / "kafka.toml").write_text(
        f"""
        name = "kafka"
        log = "./events"
        master = "local[2]"
        [spark]
        "spark.driver.memory" = "512m"
        "spark.sql.shuffle.partitions" = "2"
        [[flow]]
        source = {{ kafka = "{address}", topic = "orders", jar = "{JARS}", metadata = true }}
        sink = {{ topic = "orders" }}
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place / "kafka.toml")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.skipif(JARS is None, reason="VIRTA_TEST_KAFKA_JARS names no jars of Spark's Kafka connector")
def test_kafka_into_a_topic_and_on_from_there(kafka: Any, tmp_path: Path) -> None:
    kafka.make("orders", 3)
    produce(kafka.address, 0, 300)
    assert run(tmp_path, kafka.address) == 300
    produce(kafka.address, 300, 60)
    assert run(tmp_path, kafka.address) == 60
    with virta.open(tmp_path / "events") as log:
        rows = log.topic("orders")[:].to_pylist()
    assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(360))
    assert {row["kafka_partition"] for row in rows} == {0, 1, 2}
    assert all(row["key"] == f"k{json.loads(row['value'])['id']}".encode() for row in rows)


def test_the_connector_is_fetched_by_name_unless_another_is_named(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    from virta.pipelines.specification import specification

    def source(**words: Any) -> Any:
        flow = {"source": {"kafka": "host:9092", "topic": "orders", **words}, "sink": {"topic": "x"}}
        return specification({"name": "k", "log": "./x", "flow": flow}, tmp_path).flows[0].source

    assert source().packages() == (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",)
    assert source(package="a:b:1").packages() == ("a:b:1",)
    named = source(jar="one.jar,/two.jar")
    assert (named.packages(), named.jars()) == ((), (f"{tmp_path}/one.jar", "/two.jar"))
