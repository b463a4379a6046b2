"""Reading tables: whole into Arrow, one row by its key, and what compaction takes and leaves.

The page cache is warm. Tables are compared with what was written, so nobody reads less.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import (
    MEBIBYTES,
    MEBIBYTES_PER_SECOND,
    MILLISECONDS,
    P50_MICROSECONDS,
    TIMES_LIVE,
    Bench,
    Contest,
    LostRows,
    Runner,
    Sample,
    Target,
    expect_rows,
    percentiles,
)
from bench.topics import child
from bench.topics.data import (
    COLUMNS,
    SCHEMA,
    accounts,
    filling,
    open_sqlite,
    open_virta,
    put,
    tuples,
    updates,
)

GETS = 20_000


# -- the whole table ---------------------------------------------------------------------------


def table(bench: Bench) -> None:
    """The current rows into Arrow, before and after compaction."""
    rows, keys = bench.scaled(5_000_000), bench.scaled(1_000_000)
    with ExitStack() as stack:
        log, topic = open_virta(stack, bench)
        connection = open_sqlite(stack, bench)
        for part in updates(rows, keys):
            topic.append(part)
            put(connection, tuples(part))
        expected = connection.execute("select count(*), sum(amount) from accounts").fetchone()
        for when in ("before compaction", "after compaction"):
            if when == "after compaction":
                _compact(log)
            bench.compete(
                Contest(
                    workload="table",
                    title=f"the table into Arrow {when}, {rows:,} rows over {keys:,} keys",
                    conditions="all columns; virta table().to_arrow(), sqlite SELECT * and pa.array",
                    runners={
                        "virta": lambda: _read(lambda: topic.table().to_arrow(), expected),
                        "virta, first time": lambda: _read_first(log, expected),
                        "sqlite": lambda: _read(lambda: _sqlite_arrow(connection), expected),
                    },
                    targets=[Target(metric=MILLISECONDS, against="sqlite", times_better=5)],
                )
            )


def _read(work: Callable[[], pa.Table], expected: tuple[int, float]) -> Sample:
    start = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - start
    expect_rows("the table", expected[0], found.num_rows)
    total = found.column("amount").to_numpy().sum()
    if abs(total - expected[1]) > 1e-6 * abs(expected[1]):
        raise LostRows("the amounts are others")
    return {MILLISECONDS: seconds * 1000}


def _read_first(log: Any, expected: tuple[int, float]) -> Sample:
    """In a process that has not looked at the table yet."""
    found = child.run("table", str(log.path))
    expect_rows("the table", expected[0], found["rows"])
    return {MILLISECONDS: found["seconds"] * 1000}


def _sqlite_arrow(connection: Any) -> pa.Table:
    found = connection.execute("select * from accounts").fetchall()
    columns = zip(*found, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _compact(log: Any) -> Any:
    from virta.steward.steward import Steward

    return Steward(log).run_once(force=True)


# -- one row by its key ------------------------------------------------------------------------


def get(bench: Bench) -> None:
    """One row by its key, as the table grows."""
    for keys in (100_000, 1_000_000):
        _get(bench, bench.scaled(keys))


def growth(bench: Bench) -> None:
    """The same with ten million keys: the time stays what it was."""
    _get(bench, bench.scaled(10_000_000))


def _get(bench: Bench, keys: int) -> None:
    with ExitStack() as stack:
        _, topic = open_virta(stack, bench)
        connection = open_sqlite(stack, bench)
        for part in filling(keys):
            topic.append(part)
        connection.execute("pragma synchronous = off")
        for first in range(0, keys, 100_000):  # in the order of the keys: sooner done, and the same table
            put(connection, tuples(accounts(np.arange(first, min(keys, first + 100_000)), first)))
        generator = random.Random(5)
        wanted = [generator.randrange(keys) for _ in range(GETS)]
        missing = [keys + number for number in range(1000)]

        def sqlite_get(key: int) -> Any:
            row = connection.execute("select * from accounts where id = ?", (key,)).fetchone()
            return None if row is None else row[0]

        def virta_get(key: int) -> Any:
            row = topic.get(key)
            return None if row is None else row["id"]

        bench.compete(
            Contest(
                workload="get",
                title=f"one row by its key, {keys:,} keys",
                conditions=f"{GETS:,} random keys, each timed, the row's id looked at; page cache warm",
                runners={
                    "virta": lambda: _gets(virta_get, wanted, missing),
                    "sqlite": lambda: _gets(sqlite_get, wanted, missing),
                },
                targets=[Target(metric=P50_MICROSECONDS, against="sqlite", times_cost=3)],
            )
        )


def _gets(work: Callable[[int], Any], wanted: list[int], missing: list[int]) -> Sample:
    for key in wanted:
        work(key)
    times = []
    for key in wanted:
        start = time.perf_counter_ns()
        found = work(key)
        times.append(time.perf_counter_ns() - start)
        if found != key:
            raise LostRows(f"asked for {key}, found {found}")
    if any(work(key) is not None for key in missing):
        raise LostRows("a key that was never written was found")
    return percentiles(times)


# -- compaction --------------------------------------------------------------------------------


def compaction(bench: Bench) -> None:
    """How fast it goes, against copying the files; and what it leaves, against the live rows alone."""
    rows, keys = bench.scaled(5_000_000), bench.scaled(1_000_000)
    with ExitStack() as stack:
        log, topic = open_virta(stack, bench)
        for part in updates(rows, keys, 10_000):
            topic.append(part)
        topic.sync()
        files = sorted((log.path / "topics" / "accounts" / "p0000").glob("*.arrows"))
        size = sum(file.stat().st_size for file in files) / 2**20
        live = topic.table().count()
        sizes: list[float] = []

        def copied() -> Sample:
            with bench.scratch() as place:
                start = time.perf_counter()
                for file in files:
                    _copy(file, place / file.name)
                return {MEBIBYTES_PER_SECOND: size / (time.perf_counter() - start)}

        def compacted() -> Sample:
            with bench.scratch() as place:
                import virta

                shutil.copytree(log.path, place / "log")
                with virta.open(place / "log") as copy:
                    start = time.perf_counter()
                    _compact(copy)
                    seconds = time.perf_counter() - start
                    found = copy.topic("accounts")
                    expect_rows("virta", live, found.table().count())
                    sizes.append(found.stats().bytes / 2**20)
                return {MEBIBYTES_PER_SECOND: size / seconds}

        runners: dict[str, Runner] = {"virta": compacted, "copying": copied}
        bench.compete(
            Contest(
                workload="compaction",
                title=f"compaction of {rows:,} rows over {keys:,} keys, {size:,.0f} MiB",
                conditions="MiB of the topic before it, per second; copying reads, writes and syncs them",
                runners=runners,
            )
        )
        bench.compete(
            Contest(
                workload="compaction",
                title=f"space after compaction, {keys:,} keys",
                conditions="bytes of the topic (data and chain) against a topic with the live rows only",
                runners={"virta": lambda: _space(bench, topic, sizes[-1])},
                targets=[Target(metric=TIMES_LIVE, limit=1.3)],
                rounds=1,
            )
        )


def _copy(source: Path, target: Path) -> None:
    import os

    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


def _space(bench: Bench, topic: Any, size: float) -> Sample:
    with ExitStack() as stack:
        _, alone = open_virta(stack, bench)
        alone.append(topic.table().columns(*COLUMNS).to_arrow())
        expect_rows("the live rows", topic.table().count(), alone.table().count())
        return {MEBIBYTES: size, TIMES_LIVE: size / (alone.stats().bytes / 2**20)}


# -- memory ------------------------------------------------------------------------------------


def memory(bench: Bench) -> None:
    """The most that was ever resident in a process that looks keys up, and in one that compacts."""
    keys = bench.scaled(10_000_000)
    with ExitStack() as stack:
        log, topic = open_virta(stack, bench)
        for part in filling(keys):
            topic.append(part)
        for part in updates(keys // 2, keys, 100_000 if keys >= 200_000 else 1000):
            topic.append(part)
        log.close()
        answers = {
            "get": child.run("get", str(log.path), str(keys)),
            "compaction": child.run("compact", str(log.path)),
        }

    def sample(name: str) -> Sample:
        return {MEBIBYTES: answers[name]["bytes"] / 2**20}

    runners: dict[str, Runner] = {name: lambda name=name: sample(name) for name in answers}  # type: ignore[misc]
    bench.compete(
        Contest(
            workload="memory",
            title=f"peak resident memory, {keys:,} keys",
            conditions="a process of its own; mapped file pages are counted; imports too",
            runners=runners,
            targets=[Target(metric=MEBIBYTES, contender=name, limit=500) for name in runners],
            notes=[f"{name}: {found['note']}" for name, found in answers.items()],
            rounds=1,
        )
    )
