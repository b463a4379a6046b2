"""A buffered writer: one `send` per row, key/value and three typed columns.

The peers do what their users do: one statement (or put) per row, a commit per
thousand rows.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from typing import Any

from bench.embedded import contenders
from bench.harness import (
    ROWS_PER_SECOND,
    Bench,
    Contest,
    Runner,
    Sample,
    Target,
    Unavailable,
    expect_rows,
)
from bench.peers.store import Peer
from bench.rows import BATCH_ROWS, flat, typed_rows

WARM_UP_ROWS = 2000
TYPED_COLUMNS = {"id": int, "user": str, "amount": float}
TYPED_TABLE = (
    "CREATE TABLE log (offset INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL,"
    " id INTEGER NOT NULL, user TEXT, amount REAL)"
)
TYPED_INSERT = "INSERT INTO log (timestamp, id, user, amount) VALUES (?, ?, ?, ?)"


def writer(bench: Bench) -> None:
    """`send` rows per second, from the first call until all rows are committed."""
    count = 50 if bench.quick else 300
    bench.compete(
        Contest(
            workload="writer",
            title="writer().send, key and value (100 bytes), os",
            conditions="durability os; one call per row, ready dicts; peers commit every 1,000 rows",
            runners={
                peer.name: functools.partial(_time_untyped, bench, peer, count)
                for peer in contenders.at("os", without=("raw write", "raw memory copy"))
            },
            targets=[Target(metric=ROWS_PER_SECOND, limit=1_500_000)],
        )
    )
    rows = typed_rows(count * BATCH_ROWS + WARM_UP_ROWS)
    runners: dict[str, Runner] = {
        "virta": functools.partial(_time_typed_virta, bench, rows),
        "sqlite": functools.partial(_time_typed_sqlite, bench, rows),
    }
    bench.compete(
        Contest(
            workload="writer",
            title="writer().send, three typed columns (id int, user str, amount float), os",
            conditions="durability os; one call per row, ready dicts; SQLite commits every 1,000 rows",
            runners=runners,
            targets=[Target(metric=ROWS_PER_SECOND, limit=500_000)],
        )
    )


def _time_untyped(bench: Bench, peer: Peer, count: int) -> Sample:
    rows = flat(count)
    with contenders.opened(bench, peer, "os") as store:
        store.send_all(rows[:WARM_UP_ROWS])
        start = time.perf_counter()
        store.send_all(rows)
        seconds = time.perf_counter() - start
        expect_rows(peer.name, len(rows) + WARM_UP_ROWS, store.count())
    return {ROWS_PER_SECOND: len(rows) / seconds}


def _time_typed_virta(bench: Bench, rows: list[dict[str, Any]]) -> Sample:
    try:
        import virta  # heavy, and perhaps not there
    except ImportError as error:
        raise Unavailable(str(error)) from error
    with bench.scratch() as directory, virta.open(directory) as log:
        topic = log.create_topic("log", TYPED_COLUMNS)
        _send_typed(topic, rows[:WARM_UP_ROWS])
        start = time.perf_counter()
        _send_typed(topic, rows[WARM_UP_ROWS:])
        seconds = time.perf_counter() - start
        expect_rows("virta", len(rows), topic[:].count())
    return {ROWS_PER_SECOND: (len(rows) - WARM_UP_ROWS) / seconds}


def _send_typed(topic: Any, rows: list[dict[str, Any]]) -> None:
    with topic.writer() as writing:
        send = writing.send
        for row in rows:
            send(row)


def _time_typed_sqlite(bench: Bench, rows: list[dict[str, Any]]) -> Sample:
    with bench.scratch() as directory:
        connection = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(TYPED_TABLE)
        _insert_typed(connection, rows[:WARM_UP_ROWS])
        start = time.perf_counter()
        _insert_typed(connection, rows[WARM_UP_ROWS:])
        seconds = time.perf_counter() - start
        expect_rows("sqlite", len(rows), connection.execute("SELECT count(*) FROM log").fetchone()[0])
        connection.close()
    return {ROWS_PER_SECOND: (len(rows) - WARM_UP_ROWS) / seconds}


def _insert_typed(connection: sqlite3.Connection, rows: list[dict[str, Any]]) -> None:
    execute, now = connection.execute, time.time_ns
    execute("BEGIN IMMEDIATE")
    for number, row in enumerate(rows, 1):
        execute(TYPED_INSERT, (now() // 1000, row["id"], row["user"], row["amount"]))
        if number % BATCH_ROWS == 0:
            execute("COMMIT")
            execute("BEGIN IMMEDIATE")
    execute("COMMIT")
