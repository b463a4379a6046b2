"""SQL aggregates: Virta's topics, DuckDB on the same rows in Parquet, SQLite.

Every side answers the same queries over the same rows, appended in batches of ten thousand.
The page cache is warm. The answers are held against each other, so nobody computes less.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import MILLISECONDS, Bench, Contest, LostRows, Sample, Target

BATCH = 10_000
USERS = 1000

# A title, the query; {rows} is the topic, the file or the table.
QUERIES = {
    "sum, count and greatest of numbers": "select sum(amount), count(*), max(id) from {rows}",
    "numbers by a number": "select product, sum(amount), count(*) from {rows} group by 1 order by 1",
    "numbers by a text": "select user, sum(amount), count(*) from {rows} group by 1 order by 1",
    "numbers of a tenth of the rows": "select sum(amount), count(*) from {rows} where amount >= 90",
}

Answer = list[tuple[Any, ...]]
Ask = Callable[[str], Answer]


def sql(bench: Bench) -> None:
    """Fill every contender once, then ask each query in turns."""
    rows = bench.scaled(5_000_000, least=BATCH)
    with ExitStack() as stack:
        contenders = {
            name: fill(stack, bench, rows)
            for name, fill in {
                "virta": _virta,
                "virta, labels": _virta_labels,
                "duckdb parquet": _duckdb,
                "sqlite": _sqlite,
            }.items()
        }
        for title, query in QUERIES.items():
            expected = contenders["sqlite"](query)
            _contest(bench, contenders, title, query, expected, rows)


def _contest(
    bench: Bench, contenders: Mapping[str, Ask], title: str, query: str, expected: Answer, rows: int
) -> None:
    bench.compete(
        Contest(
            workload="sql",
            title=f"{title}, {rows:,} rows",
            conditions=query.format(rows="rows") + "; page cache warm; into Python rows",
            runners={
                name: functools.partial(_time, name, ask, query, expected) for name, ask in contenders.items()
            },
            targets=[
                Target(metric=MILLISECONDS, against="duckdb parquet", times_cost=1.5),
                Target(metric=MILLISECONDS, against="sqlite", times_better=10),
            ],
            notes=["labels: the text is a dictionary column, as Parquet makes one by itself"],
        )
    )


def _time(name: str, ask: Ask, query: str, expected: Answer) -> Sample:
    ask(query)
    start = time.perf_counter()
    found = ask(query)
    seconds = time.perf_counter() - start
    if not _same(found, expected):
        raise LostRows(f"{name} gives another answer")
    return {MILLISECONDS: seconds * 1000}


def _same(found: Answer, expected: Answer) -> bool:
    """Equal but for the order in which floats were added."""
    if len(found) != len(expected):
        return False
    pairs = zip((value for row in found for value in row), (v for row in expected for v in row), strict=True)
    return all(a == b if isinstance(b, str) else abs(float(a) - b) <= 1e-6 * abs(b) for a, b in pairs)


def _tables(rows: int) -> Iterator[pa.Table]:
    generator = np.random.default_rng(7)
    names = np.array([f"user-{number}" for number in range(USERS)], dtype=object)
    for first in range(0, rows, BATCH):
        yield pa.table(
            {
                "id": np.arange(first, first + BATCH),
                "user": pa.array(names[generator.integers(0, USERS, BATCH)]),
                "product": generator.integers(0, 500, BATCH),
                "amount": generator.random(BATCH) * 100,
            }
        )


# -- who takes part ---------------------------------------------------------------------------


def _virta_labels(stack: ExitStack, bench: Bench, rows: int) -> Ask:
    return _virta(stack, bench, rows, text=pa.field("user", pa.dictionary(pa.int32(), pa.string()), False))


def _virta(stack: ExitStack, bench: Bench, rows: int, text: Any = str) -> Ask:
    import virta

    log = stack.enter_context(virta.open(stack.enter_context(bench.scratch()) / "log"))
    topic = log.create_topic("rows", {"id": int, "user": text, "product": int, "amount": float})
    for table in _tables(rows):
        topic.append(table)
    topic.sync()
    return lambda query: list(log.sql(query.format(rows="rows")).tuples())


def _duckdb(stack: ExitStack, bench: Bench, rows: int) -> Ask:
    import duckdb
    from pyarrow import parquet

    file = stack.enter_context(bench.scratch()) / "rows.parquet"
    # one write in all: row groups of the size DuckDB itself writes
    parquet.write_table(pa.concat_tables(_tables(rows)), file, row_group_size=122_880)
    connection = stack.enter_context(closing(duckdb.connect()))
    return lambda query: connection.execute(query.format(rows=f"'{file}'")).fetchall()


def _sqlite(stack: ExitStack, bench: Bench, rows: int) -> Ask:
    file: Path = stack.enter_context(bench.scratch()) / "rows.sqlite"
    connection = stack.enter_context(closing(sqlite3.connect(file)))
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table rows (id integer primary key, user text, product integer, amount real)")
    for table in _tables(rows):
        values = zip(*(column.to_pylist() for column in table.columns), strict=True)
        with connection:
            connection.executemany("insert into rows values (?, ?, ?, ?)", values)
    return lambda query: connection.execute(query.format(rows="rows")).fetchall()
