"""What a served contender is to the workloads: a server that is started, and its clients.

A server keeps streams; a stream has partitions. A row has a key, a value, an offset and
a time, as in the embedded suite. Rows are produced in three forms:

* ready: batches in the contender's own best form, made beforehand and not timed;
* rows: one Python dict and one call per row, everything from there on is timed;
* lists: the same dicts, handed over in lists of a thousand;
* one: a single dict, and its acknowledgement is waited for.

They are consumed as Arrow columns, or as one Python object per row.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from bench.harness import Unavailable
from bench.peers.store import REPLAY_SCHEMA
from bench.rows import Batch, Row

START_SECONDS = 60.0
STOP_SECONDS = 10.0


class Client(Protocol):
    """One connection to one stream."""

    def ready(self, batches: Sequence[Batch], /) -> Sequence[Any]:
        """Batches in this contender's own best form."""
        ...

    def produce(self, batches: Iterable[Any], /) -> None:
        """Send ready batches, each to the next partition; all are acknowledged when it returns."""
        ...

    def produce_rows(self, rows: Iterable[Row], /) -> None:
        """One call per row; all are acknowledged when it returns."""
        ...

    def produce_lists(self, lists: Iterable[list[Row]], /) -> None:
        """One call per list, where the contender has such a call; all are acknowledged as well."""
        ...

    def append_one(self, row: Row, /) -> None: ...

    def consume(self, count: int, /) -> pa.Table:
        """The first `count` rows as Arrow columns, waiting for those that are still to come."""
        ...

    def consume_rows(self, count: int, /) -> tuple[int, int]:
        """The same as Python objects, row by row: rows and bytes of values seen."""
        ...

    def close(self) -> None: ...


class Server(Protocol):
    """A running server."""

    address: str
    process: subprocess.Popen[bytes]

    def make(self, stream: str, partitions: int, /) -> None: ...

    def count(self, stream: str, partitions: int, /) -> int:
        """How many rows it holds, asked of the server."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A contender: how its server is started and a client connects."""

    name: str
    start: Callable[[Path], Server]
    connect: Callable[[str, str, int], Client]  # address, stream, partitions


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def launch(command: Sequence[str], directory: Path, port: int, **options: Any) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it takes connections; what it says goes to a file."""
    said = directory / "server.log"
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=options.pop("cwd", directory), stdout=output, stderr=subprocess.STDOUT, **options
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return process
    stop(process)
    last = "; ".join(said.read_text(errors="replace").splitlines()[-3:])
    raise Unavailable(f"{command[0]} did not start: {last}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Columns:
    """Rows that come one by one, gathered for Arrow."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.times: list[int] = []  # microseconds
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []

    def table(self) -> pa.Table:
        columns = (self.offsets, self.times, self.keys, self.values)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, REPLAY_SCHEMA, strict=True)]
        return pa.table(arrays, schema=REPLAY_SCHEMA)
