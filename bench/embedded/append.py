"""Appending: batches of a thousand rows, single rows, many threads, a busy neighbour."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.embedded import contenders
from bench.harness import (
    MICROSECONDS,
    P99_MICROSECONDS,
    ROWS_PER_SECOND,
    Bench,
    Contest,
    Sample,
    Target,
    expect_rows,
    percentiles,
)
from bench.peers.store import Level, Peer, Store
from bench.rows import BATCH_ROWS, Row, batches, flat

WARM_UP_BATCHES = 5
WARM_UP_ROWS = 50
APPENDERS = 8


# -- a thousand rows at a time ---------------------------------------------------------


def batched(bench: Bench) -> None:
    """Batched append at both durabilities, in both forms."""
    counts: dict[Level, int] = {"os": 40 if bench.quick else 200, "disk": 20 if bench.quick else 100}
    for level, count in counts.items():
        bench.compete(_batched_contest(bench, level, "ready", _append_ready, count))
        bench.compete(_batched_contest(bench, level, "objects", _append_objects, count))


def _batched_contest(
    bench: Bench,
    level: Level,
    form: str,
    run: Callable[[Store, int], float],
    count: int,
) -> Contest:
    without = () if form == "ready" else ("raw write", "raw memory copy")
    forms = {
        "ready": "ready batches: Arrow for Virta, ready parameters for SQLite, encoded pairs for LMDB",
        "objects": "one Python dict per row on every side",
    }
    return Contest(
        workload="append",
        title=f"append, {BATCH_ROWS:,} rows of 100-byte values per commit, {level}, {form}",
        conditions=f"durability {level}; one process; {forms[form]}",
        runners={
            peer.name: functools.partial(_time_batches, bench, peer, level, run, count)
            for peer in contenders.at(level, without=without)
        },
        targets=[
            Target(metric=ROWS_PER_SECOND, against="sqlite", times_better=10),
            Target(metric=ROWS_PER_SECOND, against="lmdb", times_better=2),
        ],
    )


def _time_batches(
    bench: Bench, peer: Peer, level: Level, run: Callable[[Store, int], float], count: int
) -> Sample:
    with contenders.opened(bench, peer, level) as store:
        seconds = run(store, count)
        expect_rows(peer.name, (count + WARM_UP_BATCHES) * BATCH_ROWS, store.count())
    return {ROWS_PER_SECOND: count * BATCH_ROWS / seconds}


def _append_ready(store: Store, count: int) -> float:
    return _time_each(store.append_ready, store.ready(batches(count + WARM_UP_BATCHES)))


def _append_objects(store: Store, count: int) -> float:
    rows = [batch.rows() for batch in batches(count + WARM_UP_BATCHES)]
    return _time_each(store.append_rows, rows)


def _time_each(append: Callable[[Any], None], items: Sequence[Any]) -> float:
    for item in items[:WARM_UP_BATCHES]:
        append(item)
    start = time.perf_counter()
    for item in items[WARM_UP_BATCHES:]:
        append(item)
    return time.perf_counter() - start


# -- one row at a time -----------------------------------------------------------------


def one_row(bench: Bench) -> None:
    """One row per append, alone, at both durabilities."""
    counts: dict[Level, int] = {"os": 1000 if bench.quick else 10_000, "disk": 300 if bench.quick else 1000}
    for level, rows in counts.items():
        bench.compete(
            Contest(
                workload="one-row",
                title=f"one row per append, {level}",
                conditions=f"durability {level}; each row committed on its own; one thread",
                runners={
                    peer.name: functools.partial(_time_rows, bench, peer, level, rows)
                    for peer in contenders.at(level, without=("raw memory copy",))
                },
                targets=[Target(metric=MICROSECONDS, against="sqlite", times_better=1)],
            )
        )


def _time_rows(bench: Bench, peer: Peer, level: Level, count: int) -> Sample:
    with contenders.opened(bench, peer, level) as store:
        latencies = _latencies(store, count)
        expect_rows(peer.name, count + WARM_UP_ROWS, store.count())
    return _mean_and_percentiles(latencies)


def _latencies(store: Store, count: int) -> list[int]:
    """The time of each append, in nanoseconds."""
    rows, clock, append = _rows(count + WARM_UP_ROWS), time.perf_counter_ns, store.append_one
    for row in rows[:WARM_UP_ROWS]:
        append(row)
    latencies = []
    for row in rows[WARM_UP_ROWS:]:
        start = clock()
        append(row)
        latencies.append(clock() - start)
    return latencies


def _rows(count: int) -> list[Row]:
    return flat(-(-count // BATCH_ROWS))[:count]


# -- eight threads, each row synced ------------------------------------------------------


def concurrent(bench: Bench) -> None:
    """Eight threads of one process, one row per append, each durable on disk."""
    each = 50 if bench.quick else 250
    bench.compete(
        Contest(
            workload="concurrent",
            title=f"one row per append, disk, {APPENDERS} threads",
            conditions=(
                f"durability disk; {APPENDERS} threads of one process, {each} rows each;"
                " SQLite: a connection per thread, or one connection behind a lock"
            ),
            runners={
                **{
                    peer.name: functools.partial(_time_threads, bench, peer, each, _per_thread)
                    for peer in contenders.at("disk")
                },
                **{
                    f"{peer.name} shared": functools.partial(_time_threads, bench, peer, each, _shared)
                    for peer in contenders.at("disk")
                    if peer.name == "sqlite"
                },
            },
            targets=[
                Target(metric=ROWS_PER_SECOND, against="sqlite", times_better=3),
                Target(metric=ROWS_PER_SECOND, against="sqlite shared", times_better=3),
            ],
        )
    )


def _per_thread(store: Store) -> Iterator[Callable[[Row], None]]:
    """Each thread has a session of its own, closed at the end."""
    sessions = [store.session() for _ in range(APPENDERS)]
    for session in sessions:
        yield session.append_one
    for session in sessions:
        if session is not store:
            session.close()


def _shared(store: Store) -> Iterator[Callable[[Row], None]]:
    """All threads share one session, one at a time."""
    lock = threading.Lock()

    def append(row: Row) -> None:
        with lock:
            store.append_one(row)

    for _ in range(APPENDERS):
        yield append


def _time_threads(
    bench: Bench,
    peer: Peer,
    each: int,
    appenders: Callable[[Store], Iterator[Callable[[Row], None]]],
) -> Sample:
    with contenders.opened(bench, peer, "disk") as store:
        made = appenders(store)
        seconds = _run_threads([next(made) for _ in range(APPENDERS)], _rows(each))
        next(made, None)
        expect_rows(peer.name, each * APPENDERS, store.count())
    return {ROWS_PER_SECOND: each * APPENDERS / seconds}


def _run_threads(appends: list[Callable[[Row], None]], rows: list[Row]) -> float:
    barrier = threading.Barrier(len(appends) + 1)

    def work(append: Callable[[Row], None]) -> None:
        barrier.wait()
        for row in rows:
            append(row)

    threads = [threading.Thread(target=work, args=(append,)) for append in appends]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


# -- beside a thread that burns CPU ------------------------------------------------------


def busy(bench: Bench) -> None:
    """One row per append while another Python thread never waits for anything."""
    counts: dict[Level, int] = {"os": 1000 if bench.quick else 10_000, "disk": 30 if bench.quick else 150}
    for level, count in counts.items():
        bench.compete(
            Contest(
                workload="busy",
                title=f"one row per append beside a thread that burns CPU, {level}",
                conditions=f"durability {level}; the other thread runs pure Python without a pause",
                runners={
                    peer.name: functools.partial(_time_busy, bench, peer, level, count)
                    for peer in contenders.at(level, without=("raw memory copy",))
                },
                targets=[Target(metric=P99_MICROSECONDS, limit=10_000)],
                rounds=min(3, bench.options.rounds),
            )
        )


def _time_busy(bench: Bench, peer: Peer, level: Level, count: int) -> Sample:
    with contenders.opened(bench, peer, level) as store, burning_thread():
        latencies = _latencies(store, count)
        expect_rows(peer.name, count + WARM_UP_ROWS, store.count())
    return _mean_and_percentiles(latencies)


def _mean_and_percentiles(latencies: list[int]) -> Sample:
    return {MICROSECONDS: sum(latencies) / len(latencies) / 1000, **percentiles(latencies)}


@contextmanager
def burning_thread() -> Iterator[None]:
    """A thread that holds the interpreter whenever it may."""
    stopped = threading.Event()

    def burn() -> None:
        number = 0
        while not stopped.is_set():
            for _ in range(1000):
                number = (number * 31 + 7) % 1_000_003

    thread = threading.Thread(target=burn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
