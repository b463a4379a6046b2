"""Apache Kafka 4 in KRaft mode, one node, with confluent-kafka.

Tuned: large batches, a short linger (none where one row waits for its answer), a heap of
2 GiB, large fetches. acks=1 with one replica: what is acknowledged is with the operating
system, as at `os`. Ready batches and lists go through `produce_batch`, single rows through
`produce`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.harness import LostRows, Unavailable
from bench.rows import BATCH_ROWS, Batch, Row, batched
from bench.served import places
from bench.served.peers.contract import Columns, Peer, free_port, launch, stop

READ_MESSAGES = 10_000
WAIT_SECONDS = 60.0
HEAP = "2g"
LOGGING = """\
Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "%d %p %m%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: out}]}
"""


class KafkaServer:
    def __init__(self, directory: Path) -> None:
        java, classes = places.kafka()
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        properties = directory / "server.properties"
        properties.write_text(_properties(directory / "log", port, controller))
        logging = directory / "log4j2.yaml"
        logging.write_text(LOGGING)
        common = ["-cp", classes, f"-Dlog4j2.configurationFile={logging}"]
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = [
            java,
            *common,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            identity,
            "-c",
            str(properties),
        ]
        formatted = subprocess.run(formatting, cwd=directory, capture_output=True, text=True, check=False)
        if formatted.returncode:
            raise Unavailable(f"Kafka cannot format its directory: {formatted.stderr.strip()[-300:]}")
        command = [
            java,
            f"-Xms{HEAP}",
            f"-Xmx{HEAP}",
            "-XX:+UseG1GC",
            *common,
            "kafka.Kafka",
            str(properties),
        ]
        self.process = launch(command, directory, port, env=dict(os.environ))
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})

    def make(self, stream: str, partitions: int) -> None:
        for future in self._admin.create_topics([NewTopic(stream, partitions, 1)]).values():
            future.result(WAIT_SECONDS)

    def count(self, stream: str, partitions: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "count", "log_level": 2})
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(stream, number), timeout=WAIT_SECONDS)[1]
                for number in range(partitions)
            )
        finally:
            consumer.close()

    def close(self) -> None:
        stop(self.process)


def _properties(directory: Path, port: int, controller: int) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": directory,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "socket.send.buffer.bytes": 1 << 20,
        "socket.receive.buffer.bytes": 1 << 20,
        "message.max.bytes": 16 << 20,
        "log.message.timestamp.type": "LogAppendTime",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


class KafkaClient:
    def __init__(self, address: str, stream: str, partitions: int) -> None:
        self._address = address
        self._stream = stream
        self._partitions = partitions
        self._turns = itertools.cycle(range(partitions))
        self._producers: dict[int, Producer] = {}
        self._producer(5).list_topics(timeout=WAIT_SECONDS)  # connected before the clock starts

    def _producer(self, linger_ms: int) -> Producer:
        found = self._producers.get(linger_ms)
        if found is None:
            found = self._producers[linger_ms] = Producer(
                {
                    "bootstrap.servers": self._address,
                    "acks": 1,
                    "linger.ms": linger_ms,
                    "batch.size": 1 << 20,
                    "batch.num.messages": 100_000,
                    "queue.buffering.max.messages": 2_000_000,
                    "queue.buffering.max.kbytes": 1 << 20,
                    "message.max.bytes": 10_000_000,
                    "socket.nagle.disable": True,
                    "log_level": 2,
                }
            )
        return found

    def ready(self, batches: Sequence[Batch]) -> Sequence[list[Row]]:
        """What `produce_batch` takes: one dict per message, made beforehand."""
        return [batch.rows() for batch in batches]

    def produce(self, batches: Iterable[list[Row]]) -> None:
        producer = self._producer(5)
        for batch in batches:
            number = next(self._turns)
            taken = producer.produce_batch(self._stream, batch, partition=number)
            if taken != len(batch):
                raise LostRows(f"kafka took {taken} of {len(batch)} rows")
        self._flush(producer)

    def _flush(self, producer: Producer) -> None:
        left = producer.flush(WAIT_SECONDS)
        if left:
            raise LostRows(f"kafka has not acknowledged {left} rows in time")

    def produce_rows(self, rows: Iterable[Row]) -> None:
        producer = self._producer(5)
        produce, stream = producer.produce, self._stream
        for some in batched(rows, BATCH_ROWS):
            number = next(self._turns)
            for row in some:
                produce(stream, row["value"], row["key"], number)
            producer.poll(0)
        self._flush(producer)

    def produce_lists(self, lists: Iterable[list[Row]]) -> None:
        self.produce(lists)  # a dict with key and value is what `produce_batch` takes

    def append_one(self, row: Row) -> None:
        producer = self._producer(0)
        producer.produce(self._stream, row["value"], row["key"], partition=0)
        self._flush(producer)

    def _read(self, count: int) -> Iterable[list[Any]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.max.bytes": 64 << 20,
                "max.partition.fetch.bytes": 16 << 20,
                "receive.message.max.bytes": 100 << 20,
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 1 << 20,
                "fetch.wait.max.ms": 10,
                "check.crcs": True,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(self._stream, number, 0) for number in range(self._partitions)])
            seen = 0
            while seen < count:
                some = consumer.consume(READ_MESSAGES, timeout=0.05)
                for message in some:
                    if message.error() and message.error().code() != KafkaError._PARTITION_EOF:
                        raise LostRows(str(message.error()))
                seen += len(some)
                yield some
        finally:
            consumer.close()

    def consume(self, count: int) -> pa.Table:
        columns = Columns()
        for some in self._read(count):
            columns.offsets += [message.offset() for message in some]
            columns.times += [message.timestamp()[1] * 1000 for message in some]
            columns.keys += [message.key() for message in some]
            columns.values += [message.value() for message in some]
        return columns.table()

    def consume_rows(self, count: int) -> tuple[int, int]:
        rows = size = 0
        for some in self._read(count):
            for message in some:
                _offset, _time, _key = message.offset(), message.timestamp(), message.key()
                size += len(message.value())
                rows += 1
        return rows, size

    def close(self) -> None:
        self._producers.clear()


PEERS = (Peer(name="kafka", start=KafkaServer, connect=KafkaClient),)
