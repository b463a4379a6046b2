"""LMDB, through `lmdb` from PyPI.

A record's key is its offset (an integer key, appended in order); its value is the
time, the length of the row's key, the row's key and the row's value. `os` has no
sync at all (sync=False, metasync=False); it runs with and without `writemap`, since
one is faster for single rows and the other for batches. `disk` is LMDB's default,
sync=True: both its syncs per commit, the only setting that keeps every commit.
Ready rows are encoded but for offset and time, which a log gives at append, as Virta does.
"""

from __future__ import annotations

import functools
import itertools
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa

from bench.peers.store import REPLAY_SCHEMA, Peer, Store
from bench.rows import BATCH_ROWS, Batch, Row, batched

MAP_BYTES = 16 * 2**30  # address space only; LMDB needs to know its bound beforehand
OFFSET = struct.Struct("=Q")
TIME = struct.Struct("=q")
PREFIX = struct.Struct("=qB")  # the time, the length of the row's key
FETCH_ROWS = 2000  # the fastest: with more at once the garbage collector costs more than the scan

Pair = tuple[bytes, bytes]


def encode(offset: int, timestamp: int, key: bytes, value: bytes) -> Pair:
    return OFFSET.pack(offset), PREFIX.pack(timestamp, len(key)) + key + value


class LMDBStore:
    """One named database of an environment."""

    def __init__(self, directory: Path, *, sync: bool, writemap: bool) -> None:
        self.environment = lmdb.open(
            str(directory),
            map_size=MAP_BYTES,
            max_dbs=1,
            sync=sync,
            metasync=sync,
            writemap=writemap,
            map_async=not sync,
        )
        self.database = self.environment.open_db(b"log", integerkey=True)

    def ready(self, batches: Sequence[Batch]) -> Sequence[list[bytes]]:
        """All but what only the append can know: the offset and the time."""
        return [
            [bytes([len(key)]) + key + value for key, value in zip(batch.keys, batch.values, strict=True)]
            for batch in batches
        ]

    def append_ready(self, batch: list[bytes]) -> None:
        now = TIME.pack(time.time_ns() // 1000)
        with self.environment.begin(write=True, db=self.database) as transaction:
            cursor = transaction.cursor()
            first = self._next_offset(cursor)
            numbers = map(OFFSET.pack, range(first, first + len(batch)))
            cursor.putmulti(
                [(number, now + row) for number, row in zip(numbers, batch, strict=True)], append=True
            )

    def append_rows(self, rows: list[Row]) -> None:
        now = time.time_ns() // 1000
        with self.environment.begin(write=True, db=self.database) as transaction:
            cursor = transaction.cursor()
            pairs = [
                encode(number, now, row["key"], row["value"])
                for number, row in enumerate(rows, self._next_offset(cursor))
            ]
            cursor.putmulti(pairs, append=True)

    def append_one(self, row: Row) -> None:
        now = time.time_ns() // 1000
        with self.environment.begin(write=True, db=self.database) as transaction:
            offset = self._next_offset(transaction.cursor())
            key, value = encode(offset, now, row["key"], row["value"])
            transaction.put(key, value, append=True)

    def send_all(self, rows: Iterable[Row]) -> None:
        for some in batched(rows, BATCH_ROWS):
            with self.environment.begin(write=True, db=self.database) as transaction:
                put, now = transaction.put, time.time_ns
                for offset, row in enumerate(some, self._next_offset(transaction.cursor())):
                    put(*encode(offset, now() // 1000, row["key"], row["value"]), append=True)

    @staticmethod
    def _next_offset(cursor: lmdb.Cursor[bytes]) -> int:
        """Read under the write transaction, so that writers may be many."""
        return int(OFFSET.unpack(cursor.key())[0]) + 1 if cursor.last() else 0

    def session(self) -> Store:
        return self

    def count(self) -> int:
        with self.environment.begin(db=self.database) as transaction:
            return int(transaction.stat(self.database)["entries"])

    def to_arrow(self) -> pa.Table:
        with self.environment.begin(db=self.database) as transaction:
            source = transaction.cursor().iternext()
            batches = []
            while pairs := list(itertools.islice(source, FETCH_ROWS)):
                batches.append(self._decoded(pairs))
        return pa.Table.from_batches(batches, REPLAY_SCHEMA)

    @staticmethod
    def _decoded(pairs: list[Pair]) -> pa.RecordBatch:
        offsets = np.frombuffer(b"".join([key for key, _ in pairs]), np.uint64)
        values = [value for _, value in pairs]
        start = PREFIX.size
        arrays = [
            pa.array(offsets.astype(np.int64)),
            pa.array(np.frombuffer(b"".join([v[:8] for v in values]), "datetime64[us]")).cast(
                REPLAY_SCHEMA.field("_timestamp").type
            ),
            pa.array([v[start : start + v[8]] for v in values], pa.binary()),
            pa.array([v[start + v[8] :] for v in values], pa.binary()),
        ]
        return pa.record_batch(arrays, schema=REPLAY_SCHEMA)

    def replay(self) -> tuple[int, int]:
        rows = size = 0
        with self.environment.begin(db=self.database) as transaction:
            for packed, data in transaction.cursor():
                _offset = OFFSET.unpack(packed)[0]
                _timestamp, length = PREFIX.unpack_from(data)
                _key, value = data[9 : 9 + length], data[9 + length :]
                rows += 1
                size += len(value)
        return rows, size

    def close(self) -> None:
        self.environment.close()


def opener(*, sync: bool, writemap: bool) -> functools.partial[LMDBStore]:
    return functools.partial(LMDBStore, sync=sync, writemap=writemap)


LMDB = Peer(
    name="lmdb",
    levels={
        "os": opener(sync=False, writemap=False),
        "disk": opener(sync=True, writemap=False),
    },
)
LMDB_WRITEMAP = Peer(name="lmdb writemap", levels={"os": opener(sync=False, writemap=True)})
PEERS = (LMDB, LMDB_WRITEMAP)
