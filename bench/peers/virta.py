"""Virta itself, behind the same interface as its peers.

The topic has no schema: key and value, as the peers store them. `os` and `disk` are
the topic's durability; both are said by every acknowledgement.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from bench.peers.store import Level, Peer, Store
from bench.rows import Batch, Row
from virta import open as open_log

TOPIC = "log"


class VirtaStore:
    """One untyped topic of a log."""

    def __init__(self, directory: Path, *, level: Level) -> None:
        self.log = open_log(directory)
        self.topic = self.log.create_topic(TOPIC, durability=level, if_missing=True)

    def ready(self, batches: Sequence[Batch]) -> Sequence[pa.RecordBatch]:
        return [batch.arrow() for batch in batches]

    def append_ready(self, batch: pa.RecordBatch) -> None:
        self.topic.append(batch)

    def append_rows(self, rows: list[Row]) -> None:
        self.topic.append(rows)

    def append_one(self, row: Row) -> None:
        self.topic.append(row)

    def send_all(self, rows: Iterable[Row]) -> None:
        with self.topic.writer() as writer:
            send = writer.send
            for row in rows:
                send(row)

    def session(self) -> Store:
        return self

    def count(self) -> int:
        return int(self.topic[:].count())

    def to_arrow(self) -> pa.Table:
        return self.topic[:].to_arrow()

    def replay(self) -> tuple[int, int]:
        rows = size = 0
        for row in self.topic[:]:
            _offset, _timestamp, _key = row.offset, row.timestamp, row["key"]
            rows += 1
            size += len(row["value"])
        return rows, size

    def close(self) -> None:
        self.log.close()


VIRTA = Peer(
    name="virta",
    levels={
        "os": functools.partial(VirtaStore, level="os"),
        "disk": functools.partial(VirtaStore, level="disk"),
    },
)
PEERS = (VIRTA,)
