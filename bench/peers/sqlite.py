"""SQLite in WAL mode, through the `sqlite3` of the standard library.

`os` is synchronous=NORMAL, the setting everybody uses in WAL mode: a commit is a
write, and the log is synced at checkpoints. OFF, which never syncs, runs beside it.
`disk` is synchronous=FULL: every commit syncs. A single row is its own transaction
(autocommit, the cheapest way there is); a batch stands between BEGIN and COMMIT.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from bench.peers.store import REPLAY_SCHEMA, Peer, Store
from bench.rows import BATCH_ROWS, Batch, Row

TABLE = (
    "CREATE TABLE IF NOT EXISTS log (offset INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL,"
    " key BLOB, value BLOB)"
)
INSERT = "INSERT INTO log (timestamp, key, value) VALUES (?, ?, ?)"
SCAN = "SELECT offset, timestamp, key, value FROM log ORDER BY offset"
FETCH_ROWS = 500  # the fastest: with more at once the garbage collector costs more than the scan

Parameters = tuple[int, bytes, bytes]


class SQLiteStore:
    """One table with an integer key: SQLite's own append-only form."""

    def __init__(self, directory: Path, synchronous: str) -> None:
        self._directory = directory
        self._synchronous = synchronous
        # Eight writers queue for one lock; nobody should give up in a slow minute.
        self.connection = sqlite3.connect(
            directory / "log.sqlite", isolation_level=None, timeout=60, check_same_thread=False
        )
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={synchronous}")
        self.connection.execute(TABLE)

    def ready(self, batches: Sequence[Batch]) -> Sequence[list[Parameters]]:
        now = time.time_ns() // 1000
        return [
            [(now, key, value) for key, value in zip(batch.keys, batch.values, strict=True)]
            for batch in batches
        ]

    def append_ready(self, batch: list[Parameters]) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        self.connection.executemany(INSERT, batch)
        execute("COMMIT")

    def append_rows(self, rows: list[Row]) -> None:
        now = time.time_ns() // 1000
        self.append_ready([(now, row["key"], row["value"]) for row in rows])

    def append_one(self, row: Row) -> None:
        self.connection.execute(INSERT, (time.time_ns() // 1000, row["key"], row["value"]))

    def send_all(self, rows: Iterable[Row]) -> None:
        execute, now = self.connection.execute, time.time_ns
        execute("BEGIN IMMEDIATE")
        for number, row in enumerate(rows, 1):
            execute(INSERT, (now() // 1000, row["key"], row["value"]))
            if number % BATCH_ROWS == 0:
                execute("COMMIT")
                execute("BEGIN IMMEDIATE")
        execute("COMMIT")

    def session(self) -> Store:
        return SQLiteStore(self._directory, self._synchronous)

    def count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM log").fetchone()[0])

    def to_arrow(self) -> pa.Table:
        cursor, batches = self.connection.execute(SCAN), []
        while rows := cursor.fetchmany(FETCH_ROWS):
            offsets, timestamps, keys, values = zip(*rows, strict=True)
            arrays = [
                pa.array(offsets, pa.int64()),
                pa.array(timestamps, pa.int64()).view(REPLAY_SCHEMA.field("_timestamp").type),
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
            ]
            batches.append(pa.record_batch(arrays, schema=REPLAY_SCHEMA))
        return pa.Table.from_batches(batches, REPLAY_SCHEMA)

    def replay(self) -> tuple[int, int]:
        rows = size = 0
        for _offset, _timestamp, _key, value in self.connection.execute(SCAN):
            rows += 1
            size += len(value)
        return rows, size

    def close(self) -> None:
        self.connection.close()


def opener(synchronous: str) -> functools.partial[SQLiteStore]:
    return functools.partial(SQLiteStore, synchronous=synchronous)


SQLITE = Peer(name="sqlite", levels={"os": opener("NORMAL"), "disk": opener("FULL")})
SQLITE_OFF = Peer(name="sqlite sync=off", levels={"os": opener("OFF")})
PEERS = (SQLITE, SQLITE_OFF)
