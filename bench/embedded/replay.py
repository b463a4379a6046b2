"""Replay: everything a log holds, once as Arrow columns, once as Python rows."""

from __future__ import annotations

import functools
import time
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from bench.embedded import contenders
from bench.harness import ROWS_PER_SECOND, Bench, Contest, LostRows, Sample, Target, expect_rows
from bench.peers.store import Store
from bench.rows import BATCH_ROWS, VALUE_BYTES, batches


def replay(bench: Bench) -> None:
    """Fill every contender's log once, then read all of it again and again."""
    count = 50 if bench.quick else 500
    with ExitStack() as stack:
        stores = {
            peer.name: stack.enter_context(contenders.opened(bench, peer, "os"))
            for peer in contenders.at("os", without=("sqlite sync=off", "lmdb writemap", "raw memory copy"))
        }
        for store in stores.values():
            for batch in store.ready(batches(count)):
                store.append_ready(batch)
        _into_arrow(bench, stores, count * BATCH_ROWS)
        _into_rows(bench, stores, count * BATCH_ROWS)


def _into_arrow(bench: Bench, stores: dict[str, Store], rows: int) -> None:
    bench.compete(
        Contest(
            workload="replay",
            title=f"replay of {rows:,} rows into Arrow",
            conditions=(
                "columns offset, timestamp, key, value; the page cache is warm;"
                " every side then reads each byte of the values once, timed as well"
            ),
            runners={
                name.replace("raw write", "raw map"): functools.partial(_time_arrow, name, store, rows)
                for name, store in stores.items()
            },
            targets=[
                Target(metric=ROWS_PER_SECOND, against="sqlite", times_better=20),
                Target(metric=ROWS_PER_SECOND, against="lmdb", times_better=4),
            ],
        )
    )


def _time_arrow(name: str, store: Store, rows: int) -> Sample:
    start = time.perf_counter()
    table = store.to_arrow()
    touch(table["value"])
    seconds = time.perf_counter() - start
    expect_rows(name, rows, table.num_rows)
    expect_values(name, table)
    return {ROWS_PER_SECOND: rows / seconds}


def touch(column: pa.ChunkedArray) -> int:
    """Read every byte of a column, so that a mapping of a file is not taken for a read."""
    total = 0
    for chunk in column.chunks:
        data = chunk.buffers()[2]
        whole = data.size // 8
        total += int(np.frombuffer(data, np.uint64, count=whole).sum())
    return total


def expect_values(name: str, table: pa.Table) -> None:
    """First, middle and last value are the ones that were written, in their order."""
    for row in (0, table.num_rows // 2, table.num_rows - 1):
        batch, place = divmod(row, BATCH_ROWS)
        expected = batches(-(-table.num_rows // BATCH_ROWS))[batch].values[place]
        if table["value"][row].as_py() != expected:
            raise LostRows(f"{name} gives another value for row {row:,}")


def _into_rows(bench: Bench, stores: dict[str, Store], rows: int) -> None:
    bench.compete(
        Contest(
            workload="replay",
            title=f"replay of {rows:,} rows into Python objects",
            conditions="one Python object per row with offset, time, key and value",
            runners={
                name: functools.partial(_time_rows, name, store, rows)
                for name, store in stores.items()
                if not name.startswith("raw")
            },
        )
    )


def _time_rows(name: str, store: Store, rows: int) -> Sample:
    start = time.perf_counter()
    found, size = store.replay()
    seconds = time.perf_counter() - start
    expect_rows(name, rows, found)
    expect_rows(f"{name} (bytes)", rows * VALUE_BYTES, size)
    return {ROWS_PER_SECOND: rows / seconds}
