"""The rows of the table suites: accounts by number, of about 100 bytes each, set over and over.

Every contender gets the same rows in the same order: Arrow tables, or the tuples and dicts made
of them beforehand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import Bench

BATCH = 1_000
COLUMNS = {"id": int, "name": str, "city": str, "amount": float, "note": str}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("city", pa.string(), nullable=False),
        pa.field("amount", pa.float64(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
    ]
)
CREATE = (
    "create table accounts (id integer primary key, name text not null, city text not null, "
    "amount real not null, note text not null)"
)
UPSERT = (
    "insert into accounts values (?, ?, ?, ?, ?) on conflict (id) do update set "
    "name = excluded.name, city = excluded.city, amount = excluded.amount, note = excluded.note"
)
_CITIES = np.array([f"city of {number:03}" for number in range(200)], dtype=object)
_NOTE = 64
_TEXT = np.random.default_rng(5).integers(97, 123, 1 << 20, dtype=np.uint8).tobytes().decode()


def accounts(ids: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """One row for each id, whose other values are of this seed."""
    generator = np.random.default_rng(seed)
    starts = generator.integers(0, len(_TEXT) - _NOTE, len(ids)).tolist()
    numbers = ids.tolist()
    return pa.table(
        [
            pa.array(ids, pa.int64()),
            pa.array([f"account-{number}" for number in numbers]),
            pa.array(_CITIES[generator.integers(0, len(_CITIES), len(ids))]),
            pa.array(generator.random(len(ids)) * 1000),
            pa.array([_TEXT[at : at + _NOTE] for at in starts]),
        ],
        schema=SCHEMA,
    )


def updates(rows: int, keys: int, batch: int = BATCH, seed: int = 7) -> Iterator[pa.Table]:
    """Batches of rows whose ids are drawn from all keys alike."""
    generator = np.random.default_rng(seed)
    for number in range(rows // batch):
        yield accounts(generator.integers(0, keys, batch), seed + number)


def filling(keys: int, batch: int = 100_000) -> Iterator[pa.Table]:
    """Every key once, in an order of its own."""
    order = np.random.default_rng(3).permutation(keys)
    for first in range(0, keys, batch):
        yield accounts(order[first : first + batch], first)


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def open_virta(stack: ExitStack, bench: Bench, **options: Any) -> Any:
    """A fresh log, and a topic of kind update in it."""
    import virta

    log = stack.enter_context(virta.open(stack.enter_context(bench.scratch()) / "log"))
    return log, log.create_topic("accounts", COLUMNS, kind="update", keys=["id"], **options)


def open_sqlite(stack: ExitStack, bench: Bench) -> sqlite3.Connection:
    """A fresh database: WAL, synced when it is checkpointed; an acknowledged row survives the process."""
    file: Path = stack.enter_context(bench.scratch()) / "accounts.sqlite"
    connection = stack.enter_context(closing(sqlite3.connect(file)))
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute(CREATE)
    return connection


def put(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    with connection:
        connection.executemany(UPSERT, rows)
