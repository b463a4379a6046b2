"""The reader in the other process: follows one contender's log and notes when rows arrive.

    python -m bench.embedded.tailing CONTENDER DIRECTORY COUNT

Says "ready" once it waits, then takes COUNT rows whose values begin with the sender's
monotonic clock in nanoseconds (one clock for all processes of a Linux machine), and
answers with the delays as JSON. LMDB and SQLite cannot wake anybody: their reader
looks once a millisecond, as honker's own does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.001

Tail = Iterator[bytes]


def encode(now: int) -> bytes:
    """A value of 100 bytes that carries a time."""
    return b"%-100d" % now


def tail_virta(directory: Path) -> Tail:
    import virta

    with virta.open(directory) as log:
        for row in log.topic("log").tail():
            yield row["value"]


def tail_sqlite(directory: Path) -> Tail:
    connection = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
    seen, version = 0, -1
    while True:
        (now,) = connection.execute("PRAGMA data_version").fetchone()
        if now == version:
            time.sleep(POLL_SECONDS)
            continue
        version = now
        sql = "SELECT offset, value FROM log WHERE offset > ? ORDER BY offset"
        for offset, value in connection.execute(sql, (seen,)):
            seen = offset
            yield value


def tail_lmdb(directory: Path) -> Tail:
    import lmdb

    from bench.peers.lmdb import MAP_BYTES, OFFSET

    environment = lmdb.open(str(directory), map_size=MAP_BYTES, max_dbs=1, readonly=True)
    database, seen, version = environment.open_db(b"log", integerkey=True), 0, -1
    while True:
        now = environment.info()["last_txnid"]
        if now == version:
            time.sleep(POLL_SECONDS)
            continue
        version = now
        with environment.begin(db=database) as transaction:
            cursor = transaction.cursor()
            found = [data for _, data in cursor] if cursor.set_range(OFFSET.pack(seen)) else []
        seen += len(found)
        yield from (data[9 + data[8] :] for data in found)


def tail_honker(directory: Path) -> Tail:
    import honker  # type: ignore[import-untyped]

    stream = honker.open(str(directory / "log.db")).stream("log")
    with asyncio.Runner() as runner:
        events = stream.subscribe(from_offset=0)
        while True:
            yield runner.run(_next_payload(events)).encode()


async def _next_payload(events: AsyncIterator[Any]) -> str:
    event = await anext(events)
    payload: str = event.payload
    return payload


def tail_pipe(_directory: Path) -> Tail:
    """The raw limit: a blocking read of a pipe."""
    while True:
        yield os.read(sys.stdin.fileno(), 100)


TAILS: dict[str, Callable[[Path], Tail]] = {
    "virta": tail_virta,
    "sqlite": tail_sqlite,
    "lmdb": tail_lmdb,
    "honker": tail_honker,
    "raw pipe": tail_pipe,
}


def main(name: str, directory: str, count: str) -> None:
    clock, delays = time.monotonic_ns, []
    values = TAILS[name](Path(directory))
    if name != "raw pipe":
        next(values)  # the row that was there before: from here on the reader waits
    print("ready", flush=True)
    for value in values:
        delays.append(clock() - int(value))
        if len(delays) == int(count):
            break
    print(json.dumps(delays), flush=True)
    os._exit(0)  # honker's watcher and open generators have nothing left to say


if __name__ == "__main__":
    main(*sys.argv[1:])
