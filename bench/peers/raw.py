"""The raw limits: what the machine does with the same bytes and no log around them.

`write` puts an Arrow block into a file with one `os.write` (at `disk` with one
`fdatasync` after it): nobody can append the same bytes faster through a file.
`copy` copies the block in memory. Blocks carry an offset and a time per row, as
Virta's do; there is no hash, no header, no index and no lock.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from bench.harness import Unavailable
from bench.peers.store import REPLAY_SCHEMA, Peer, Store
from bench.rows import Batch, Row


def block(keys: Sequence[bytes], values: Sequence[bytes], first_offset: int) -> bytes:
    """Rows as one Arrow message: the bytes Virta would write, bar its own fields."""
    rows = len(keys)
    arrays = [
        pa.array(np.arange(first_offset, first_offset + rows)),
        pa.array(np.zeros(rows, "datetime64[us]")).cast(REPLAY_SCHEMA.field(1).type),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    message: bytes = pa.record_batch(arrays, schema=REPLAY_SCHEMA).serialize().to_pybytes()
    return message


class RawFile:
    """A file that blocks are written to."""

    def __init__(self, directory: Path, *, sync: bool) -> None:
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND
        self._path = directory / "blocks"
        self._descriptor = os.open(self._path, flags, 0o644)
        self._sync = sync
        self._one = block([b"customer-1234"], [b"v" * 100], 0)

    def ready(self, batches: Sequence[Batch]) -> Sequence[bytes]:
        return [
            block(batch.keys, batch.values, number * len(batch.keys)) for number, batch in enumerate(batches)
        ]

    def append_ready(self, batch: bytes) -> None:
        self._write(batch)

    def append_one(self, _row: Row) -> None:
        self._write(self._one)

    def _write(self, data: bytes) -> None:
        os.write(self._descriptor, data)
        if self._sync:
            os.fdatasync(self._descriptor)

    def append_rows(self, _rows: list[Row]) -> NoReturn:
        raise Unavailable("bytes have no rows")

    def send_all(self, _rows: Iterable[Row]) -> NoReturn:
        raise Unavailable("bytes have no rows")

    def session(self) -> Store:
        return self

    def count(self) -> int:
        return int(self.to_arrow().num_rows)

    def to_arrow(self) -> pa.Table:
        """Map the file and point Arrow at it: the fastest of five ways that were tried."""
        messages = pa.ipc.MessageReader.open_stream(pa.memory_map(str(self._path)))
        return pa.Table.from_batches(
            [pa.ipc.read_record_batch(message, REPLAY_SCHEMA) for message in messages]
        )

    def replay(self) -> NoReturn:
        raise Unavailable("bytes have no rows")

    def close(self) -> None:
        os.close(self._descriptor)


class RawMemory:
    """Blocks copied into one buffer in memory, which is written over and over."""

    def __init__(self) -> None:
        self._target = bytearray(4 * 2**20)  # larger than a core's cache share, never full
        self._rows = 0
        self._position = 0

    def ready(self, batches: Sequence[Batch]) -> Sequence[tuple[int, bytes]]:
        return [(len(batch.keys), block(batch.keys, batch.values, 0)) for batch in batches]

    def append_ready(self, batch: tuple[int, bytes]) -> None:
        rows, data = batch
        if self._position + len(data) > len(self._target):
            self._position = 0
        memoryview(self._target)[self._position : self._position + len(data)] = data
        self._position += len(data)
        self._rows += rows

    def count(self) -> int:
        return self._rows

    def append_rows(self, _rows: list[Row]) -> NoReturn:
        raise Unavailable("bytes have no rows")

    def send_all(self, _rows: Iterable[Row]) -> NoReturn:
        raise Unavailable("bytes have no rows")

    def append_one(self, _row: Row) -> NoReturn:
        raise Unavailable("one row's bytes are too few to time")

    def session(self) -> Store:
        return self

    def to_arrow(self) -> NoReturn:
        raise Unavailable("nothing is kept")

    def replay(self) -> NoReturn:
        raise Unavailable("nothing is kept")

    def close(self) -> None:
        pass


RAW_WRITE = Peer(
    name="raw write",
    levels={
        "os": functools.partial(RawFile, sync=False),
        "disk": functools.partial(RawFile, sync=True),
    },
)
RAW_COPY = Peer(name="raw memory copy", levels={"os": lambda _directory: RawMemory()})
PEERS = (RAW_WRITE, RAW_COPY)
