"""Setting rows by their key: whole rows and parts of them, with the steward at work, read back as it goes.

After each batch of a thousand rows one of them is read back by its key, so nobody puts the work off.
Durability is equal: an acknowledged row survives the process, not a power loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from bench.harness import ROWS_PER_SECOND, Bench, Contest, LostRows, Sample, Target, expect_rows
from bench.topics.data import BATCH, filling, open_sqlite, open_virta, put, tuples, updates

STEWARD_SECONDS = 1.0


def upserts(bench: Bench) -> None:
    """Whole rows: ready Arrow batches, and one Python object per row on both sides."""
    rows, keys = bench.scaled(5_000_000), bench.scaled(1_000_000)
    tables = list(updates(rows, keys))
    distinct = len(set().union(*(table.column("id").to_pylist() for table in tables)))
    rounds = 1 if bench.options.scale >= 1 else None
    bench.compete(
        Contest(
            workload="upserts",
            title=f"upserts, ready batches, {rows:,} rows over {keys:,} keys",
            conditions="1,000 rows a batch, one row read back after each; virta takes Arrow with its "
            "steward running, sqlite tuples; what survives the process is acknowledged",
            runners={
                "virta": lambda: _virta(bench, tables, lambda table: table, distinct),
                "sqlite": lambda: _sqlite(bench, tables, distinct),
            },
            targets=[Target(metric=ROWS_PER_SECOND, against="sqlite", times_better=5)],
            rounds=rounds,
        )
    )
    few = tables[: max(1, len(tables) // 5)]
    distinct = len(set().union(*(table.column("id").to_pylist() for table in few)))
    bench.compete(
        Contest(
            workload="upserts",
            title=f"upserts, one Python object per row, {len(few) * BATCH:,} rows over {keys:,} keys",
            conditions="as above; virta takes lists of dicts, sqlite lists of tuples",
            runners={
                "virta": lambda: _virta(bench, few, pa.Table.to_pylist, distinct),
                "sqlite": lambda: _sqlite(bench, few, distinct),
            },
            rounds=rounds,
        )
    )


def _virta(
    bench: Bench, tables: Sequence[pa.Table], form: Callable[[pa.Table], Any], distinct: int
) -> Sample:
    from virta.steward.steward import Steward

    given = [(form(table), table.column("id")[7].as_py()) for table in tables]
    with ExitStack() as stack:
        log, topic = open_virta(stack, bench)
        stack.enter_context(Steward(log, interval=STEWARD_SECONDS))
        start = time.perf_counter()
        for rows, key in given:
            topic.append(rows)
            _expect(topic.get(key), key)
        seconds = time.perf_counter() - start
        expect_rows("virta", distinct, topic.table().count())
    return {ROWS_PER_SECOND: len(given) * BATCH / seconds}


def _sqlite(bench: Bench, tables: Sequence[pa.Table], distinct: int) -> Sample:
    given = [tuples(table) for table in tables]
    with ExitStack() as stack:
        connection = open_sqlite(stack, bench)
        start = time.perf_counter()
        for rows in given:
            put(connection, rows)
            key = rows[7][0]
            _expect(connection.execute("select * from accounts where id = ?", (key,)).fetchone(), key)
        seconds = time.perf_counter() - start
        expect_rows("sqlite", distinct, connection.execute("select count(*) from accounts").fetchone()[0])
    return {ROWS_PER_SECOND: len(given) * BATCH / seconds}


def _expect(row: Any, key: int) -> None:
    if row is None or (row[0] if isinstance(row, tuple) else row["id"]) != key:
        raise LostRows(f"the row {key} was set and is not there")


def partial(bench: Bench) -> None:
    """One column of rows that are there: the others stay."""
    keys, count = bench.scaled(1_000_000), bench.scaled(200_000)
    parts = [table.select(["id", "amount"]) for table in updates(count, keys, seed=11)]
    with ExitStack() as stack:
        _, topic = open_virta(stack, bench)
        connection = open_sqlite(stack, bench)
        for table in filling(keys):
            topic.append(table)
            put(connection, tuples(table))
        topic.get(0)
        bench.compete(
            Contest(
                workload="partial",
                title=f"partial upserts, {count:,} rows over {keys:,} keys",
                conditions="one column of five set, 1,000 rows a batch; virta takes Arrow, sqlite tuples",
                runners={
                    "virta": lambda: _timed(parts, topic.upsert, keep=lambda table: table),
                    "sqlite": lambda: _timed(
                        parts,
                        lambda rows: _set(connection, rows),
                        keep=lambda table: [(amount, id_) for id_, amount in tuples(table)],
                    ),
                },
            )
        )
        last = parts[-1].to_pylist()[-1]
        row = topic.get(last["id"])
        if row is None or row["amount"] != last["amount"] or row["name"] != f"account-{last['id']}":
            raise LostRows("virta lost a column")


def _set(connection: Any, rows: Any) -> None:
    with connection:
        connection.executemany("update accounts set amount = ? where id = ?", rows)


def _timed(parts: Sequence[pa.Table], take: Callable[[Any], Any], *, keep: Callable[[Any], Any]) -> Sample:
    given = [keep(part) for part in parts]
    start = time.perf_counter()
    for rows in given:
        take(rows)
    return {ROWS_PER_SECOND: len(given) * BATCH / (time.perf_counter() - start)}


def changes(bench: Bench) -> None:
    """What was inserted and updated, before and after, against reading the plain rows."""
    rows, keys = bench.scaled(2_000_000), bench.scaled(1_000_000)
    with ExitStack() as stack:
        _, topic = open_virta(stack, bench)
        for table in updates(rows, keys, 10_000):
            topic.append(table)
        middle = topic.next_offset // 2

        def read(work: Callable[[], Any], expected: int) -> Sample:
            start = time.perf_counter()
            found = sum(batch.num_rows for batch in work())
            seconds = time.perf_counter() - start
            expect_rows("virta", expected, found)
            return {ROWS_PER_SECOND: found / seconds}

        bench.compete(
            Contest(
                workload="changes",
                title=f"changes with before and after, {rows:,} rows over {keys:,} keys",
                conditions="Arrow batches; from the first row, and from the middle on",
                runners={
                    "virta": lambda: read(topic.changes().batches, rows),
                    "virta, second half": lambda: read(topic.changes(middle).batches, rows - middle),
                    "plain rows": lambda: read(topic[:].batches, rows),
                },
            )
        )
