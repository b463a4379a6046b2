"""Latency at a steady rate, what idle connections cost, and what the chain costs, for Virta.

Rows are due at fixed moments, whatever the answers take: an append that is late makes the
next ones late, and all of that is counted. *delivered* is from the due moment until a
consumer in another process holds the rows as Arrow; *acknowledged* until `append` returns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bench import machine
from bench.harness import CPU_PERCENT, MEBIBYTES, MICROSECONDS, Bench, Contest, Metric, Sample, Target
from bench.rows import BATCH_ROWS, batches
from bench.served.child import Child
from bench.served.contenders import Served, field_of
from bench.served.peers.virta import UNHASHED, VirtaClient, VirtaServer

DELIVERED = Metric(name="delivered p99 ms", more_is_better=False)
ACKNOWLEDGED = Metric(name="acknowledged p99 ms", more_is_better=False)
WORST = Metric(name="worst ms", more_is_better=False)
IDLE_CONNECTIONS = 1000
STEADY_RATE = 100_000


def latency(bench: Bench) -> None:
    """At half of what it sustains, and at 100,000 rows a second."""
    seconds = bench.options.seconds
    with field_of(bench) as field:
        virta = field.get("virta")
        sustained = max(_sustained(virta, 5.0) for _ in range(2))
        for title, rate, rows, limit in (
            (f"half of the {sustained:,.0f} rows/s it sustains", sustained / 2, BATCH_ROWS, 10),
            (f"{STEADY_RATE:,} rows/s", STEADY_RATE, 100, 5),
        ):
            bench.compete(
                Contest(
                    workload="latency",
                    title=f"latency at {title}, for {seconds:g} s",
                    conditions=f"durability os; Arrow batches of {rows:,} rows, one producer, one consumer",
                    runners={
                        "virta": lambda rate=rate, rows=rows: _steady(virta, rate, rows, seconds)  # type: ignore[misc]
                    },
                    targets=[Target(metric=metric, limit=limit) for metric in (DELIVERED, ACKNOWLEDGED)],
                    rounds=1,
                )
            )


def _sustained(virta: Served, seconds: float) -> float:
    """Rows a second that one producer's blocking appends and one consumer keep up with."""
    stream = virta.fresh()
    watcher = Child(task="watch", address=virta.server.address, stream=stream, rows=1 << 60)
    try:
        with virta.client(stream) as client:
            assert isinstance(client, VirtaClient)
            ready = client.ready(batches(64))
            watcher.wait_ready()
            watcher.go()
            began, sent = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                client.topic.append(ready[sent % 64])
                sent += 1
            return sent * BATCH_ROWS / (time.monotonic() - began)
    finally:
        watcher.end()


def _steady(virta: Served, rate: float, rows: int, seconds: float) -> Sample:
    stream = virta.fresh()
    address = virta.server.address
    count = int(seconds / (rows / rate))
    with ExitStack() as stack:
        watcher = Child(task="watch", address=address, stream=stream, rows=count * rows)
        stack.callback(watcher.end)
        pacer = Child(
            task="pace", address=address, stream=stream, rows=rows, per_second=rate, seconds=seconds
        )
        stack.callback(pacer.end)
        for child in (watcher, pacer):
            child.wait_ready()
            child.go()
        paced, watched = pacer.answer(), watcher.answer()
    offsets, moments = np.array(watched["seen"]).T
    due = paced["began"] + offsets / rows * paced["interval"]
    delivered = (moments - due) * 1000
    acknowledged = np.array(paced["delays"]) / 1e6
    return {
        DELIVERED: float(np.percentile(delivered, 99)),
        ACKNOWLEDGED: float(np.percentile(acknowledged, 99)),
        WORST: float(max(delivered.max(), acknowledged.max())),
    }


# -- idle connections -------------------------------------------------------------------------


def idle(bench: Bench) -> None:
    """A thousand connections that were greeted and are silent."""
    seconds = 3.0 if bench.quick else 10.0
    with field_of(bench) as field:
        virta = field.get("virta")
        bench.compete(
            Contest(
                workload="idle",
                title=f"{IDLE_CONNECTIONS:,} idle connections",
                conditions="the whole broker process: resident memory, and its share of a core",
                runners={"virta": lambda: _idle(virta, seconds)},
                targets=[Target(metric=MEBIBYTES, limit=200), Target(metric=CPU_PERCENT, limit=1)],
                rounds=1,
            )
        )


def _idle(virta: Served, seconds: float) -> Sample:
    clients = Child(task="idle", address=virta.server.address, connections=IDLE_CONNECTIONS)
    try:
        clients.wait_ready()
        time.sleep(1.0)
        process = virta.server.process.pid
        before = machine.run_nanoseconds(process)
        time.sleep(seconds)
        spent = machine.run_nanoseconds(process) - before
        return {MEBIBYTES: _resident_mebibytes(process), CPU_PERCENT: spent / (seconds * 1e9) * 100}
    finally:
        clients.end()


def _resident_mebibytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# -- the chain ----------------------------------------------------------------------------------


def chain(bench: Bench) -> None:
    """The same appends to a broker that does not hash."""
    count = 100 if bench.quick else 300
    with _broker(bench, "virta") as hashing, _broker(bench, UNHASHED) as plain:
        bench.compete(
            Contest(
                workload="chain",
                title="the chain's cost, served: 1,000 rows of 100-byte values per append",
                conditions="durability os; ready Arrow batches; the other broker does not hash at all",
                runners={
                    "virta": lambda: _append(hashing, count),
                    "without hashing": lambda: _append(plain, count),
                },
                targets=[Target(metric=MICROSECONDS, against="without hashing", times_cost=1.15)],
            )
        )


@contextmanager
def _broker(bench: Bench, module: str) -> Iterator[VirtaServer]:
    with bench.scratch() as directory:
        server = VirtaServer(directory, module=module)
        try:
            yield server
        finally:
            server.close()


def _append(server: VirtaServer, count: int) -> Sample:
    stream = f"c{time.monotonic_ns()}"
    server.make(stream, 1)
    client = VirtaClient(server.address, stream, 1)
    try:
        ready = client.ready(batches(count))
        client.produce(ready[:5])
        start = time.perf_counter()
        client.produce(ready)
        return {MICROSECONDS: (time.perf_counter() - start) / count * 1e6}
    finally:
        client.close()
