"""honker: a stream on SQLite (WAL), from PyPI.

`os` is what it opens with, synchronous=NORMAL. It has no setting for more, so `disk`
raises the pragma to FULL on its one writing connection, from between two of its
transactions. Payloads are JSON text: its API takes nothing else. A batch shares one
transaction, as its documentation tells to.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import honker  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa

from bench.harness import Unavailable
from bench.peers.store import REPLAY_SCHEMA, Peer, Store
from bench.rows import BATCH_ROWS, Batch, Row, batched

STREAM = "log"
COUNT = "SELECT count(*) AS n FROM _honker_stream WHERE topic = ?"
SCAN = (
    "SELECT offset, created_at, key, payload FROM _honker_stream"
    " WHERE topic = ? AND offset > ? ORDER BY offset LIMIT 10000"
)

TextRow = tuple[str, str]


class HonkerStore:
    """One stream of a database."""

    def __init__(self, directory: Path, *, full: bool) -> None:
        self.database = honker.open(str(directory / "log.db"))
        self.stream = self.database.stream(STREAM)
        if full:
            self._raise_to_full()

    def _raise_to_full(self) -> None:
        with self.database.transaction() as transaction:
            transaction.execute("COMMIT")
            transaction.execute("PRAGMA synchronous=FULL")
            transaction.execute("BEGIN IMMEDIATE")
        with self.database.transaction() as transaction:
            if transaction.query("PRAGMA synchronous")[0]["synchronous"] != 2:
                raise Unavailable("this honker cannot be told to sync each commit")

    def ready(self, batches: Sequence[Batch]) -> Sequence[list[TextRow]]:
        return [
            [(key.decode(), value.decode()) for key, value in zip(batch.keys, batch.values, strict=True)]
            for batch in batches
        ]

    def append_ready(self, batch: list[TextRow]) -> None:
        with self.database.transaction() as transaction:
            for key, value in batch:
                self.stream.publish(value, key, transaction)

    def append_rows(self, rows: list[Row]) -> None:
        with self.database.transaction() as transaction:
            for row in rows:
                self.stream.publish(row["value"].decode(), row["key"].decode(), transaction)

    def append_one(self, row: Row) -> None:
        self.stream.publish(row["value"].decode(), row["key"].decode())

    def send_all(self, rows: Iterable[Row]) -> None:
        for some in batched(rows, BATCH_ROWS):
            self.append_rows(some)

    def session(self) -> Store:
        return self

    def count(self) -> int:
        return int(self.database.query(COUNT, [STREAM])[0]["n"])

    def to_arrow(self) -> pa.Table:
        tables: list[pa.Table] = []
        after = 0
        while chunk := self._chunk(after):
            after = chunk[-1]["offset"]
            seconds = np.array([row["created_at"] for row in chunk], "datetime64[s]")
            arrays = [
                pa.array([row["offset"] for row in chunk], pa.int64()),
                pa.array(seconds).cast(REPLAY_SCHEMA.field("_timestamp").type),
                pa.array([row["key"] for row in chunk], pa.string()).cast(pa.binary()),
                pa.array([json.loads(row["payload"]) for row in chunk], pa.string()).cast(pa.binary()),
            ]
            tables.append(pa.table(arrays, schema=REPLAY_SCHEMA))
        return pa.concat_tables(tables)

    def _chunk(self, after: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.database.query(SCAN, [STREAM, after])
        return rows

    def replay(self) -> tuple[int, int]:
        rows = size = after = 0
        while chunk := self._chunk(after):
            for row in chunk:
                rows += 1
                size += len(json.loads(row["payload"]))
            after = chunk[-1]["offset"]
        return rows, size

    def close(self) -> None:
        self.database.close()


def opener(*, full: bool) -> functools.partial[HonkerStore]:
    return functools.partial(HonkerStore, full=full)


HONKER = Peer(name="honker", levels={"os": opener(full=False), "disk": opener(full=True)})
PEERS = (HONKER,)
