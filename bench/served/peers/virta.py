"""Virta's broker: `virta serve`, with uvloop where it is installed."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from bench.rows import Batch, Row
from bench.served.peers.contract import Peer, free_port, launch, stop
from virta import open as open_log

ROOT = Path(__file__).resolve().parents[3]  # where `bench` can be imported from
# A broker that does not hash, for what the chain costs.
UNHASHED = "bench.served.unhashed"


class VirtaServer:
    def __init__(self, directory: Path, *, module: str = "virta") -> None:
        port = free_port()
        self.address = f"virta://127.0.0.1:{port}"
        command = [sys.executable, "-m", module, "serve", str(directory / "log"), "--listen", self.address]
        self.process = launch(command, directory, port, cwd=ROOT, env=dict(os.environ))
        self._log = open_log(self.address)

    def make(self, stream: str, partitions: int) -> None:
        self._log.create_topic(stream, partitions=partitions, durability="os")

    def count(self, stream: str, partitions: int) -> int:  # noqa: ARG002
        return int(self._log.topic(stream)[:].count())

    def close(self) -> None:
        self._log.close()
        stop(self.process)


class VirtaClient:
    def __init__(self, address: str, stream: str, partitions: int) -> None:
        self.log = open_log(address)
        self.topic = self.log.topic(stream)
        # connected, and the topic looked at, before the clock starts
        self._writers = [self.topic.writer(partition=number, linger=0) for number in range(partitions)]

    def ready(self, batches: Sequence[Batch]) -> Sequence[pa.RecordBatch]:
        return [batch.arrow() for batch in batches]

    def produce(self, batches: Iterable[pa.RecordBatch]) -> None:
        turns = itertools.cycle(self._writers)
        for batch in batches:
            next(turns).send_batch(batch)
        for writer in self._writers:
            writer.flush()

    def produce_rows(self, rows: Iterable[Row]) -> None:
        with self.topic.writer() as writer:
            send = writer.send
            for row in rows:
                send(row)

    def produce_lists(self, lists: Iterable[list[Row]]) -> None:
        with self.topic.writer(linger=0) as writer:
            for some in lists:
                writer.send_batch(some)

    def append_one(self, row: Row) -> None:
        self.topic.append(row)

    def consume(self, count: int) -> pa.Table:
        found, rows = [], 0
        for batch in self.topic[:].tail_batches():
            found.append(batch)
            rows += batch.num_rows
            if rows >= count:
                break
        return pa.Table.from_batches(found)

    def consume_rows(self, count: int) -> tuple[int, int]:
        rows = size = 0
        for row in self.topic.tail():
            _offset, _timestamp, _key = row.offset, row.timestamp, row["key"]
            size += len(row["value"])
            rows += 1
            if rows == count:
                break
        return rows, size

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self.log.close()


PEERS = (Peer(name="virta", start=VirtaServer, connect=VirtaClient),)
