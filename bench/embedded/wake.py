"""Waking a reader in another process: how soon it holds a row, what waiting costs it."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from bench.embedded import contenders
from bench.embedded.tailing import encode
from bench.harness import (
    CPU_PERCENT,
    P50_MICROSECONDS,
    Bench,
    Contest,
    Runner,
    Sample,
    Target,
    expect_rows,
    percentiles,
)
from bench.peers.store import Peer

ROOT = Path(__file__).resolve().parents[2]  # where `bench` can be imported from
SETTLE_SECONDS = 0.3  # for what a reader does once, after its first row


def wake(bench: Bench) -> None:
    """From before the append call until the row is in the other process's hands."""
    names = ("virta", "sqlite", "lmdb", "honker")
    runners: dict[str, Runner] = {
        peer.name: functools.partial(_time_store, bench, peer)
        for peer in contenders.at("os")
        if peer.name in names
    }
    runners["raw pipe"] = functools.partial(_time_pipe, bench)
    bench.compete(
        Contest(
            workload="wake",
            title="wake of a reader in another process, os",
            conditions=(
                "durability os; one row every 1 to 4 ms; SQLite and LMDB have no wake-up:"
                " their reader looks every millisecond"
            ),
            runners=runners,
            targets=[
                Target(metric=P50_MICROSECONDS, limit=100),
                Target(metric=CPU_PERCENT, limit=0.3),
            ],
            rounds=min(3, bench.options.rounds),
        )
    )


def _time_store(bench: Bench, peer: Peer) -> Sample:
    with contenders.opened_in(bench, peer, "os") as (directory, store):
        store.append_one({"key": b"customer", "value": encode(0)})
        with _reader(bench, peer.name, directory) as reader:

            def send(value: bytes) -> None:
                store.append_one({"key": b"customer", "value": value})

            return _time_reader(bench, peer.name, reader, send)


def _time_pipe(bench: Bench) -> Sample:
    with bench.scratch() as directory, _reader(bench, "raw pipe", directory) as reader:
        assert reader.stdin is not None
        descriptor = reader.stdin.fileno()
        return _time_reader(bench, "raw pipe", reader, lambda value: os.write(descriptor, value))


def _count(bench: Bench) -> int:
    return 100 if bench.quick else 500


@contextmanager
def _reader(bench: Bench, name: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.embedded.tailing"]
    reader = subprocess.Popen(
        [*command, name, str(directory), str(_count(bench))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield reader
    finally:
        reader.kill()
        reader.communicate()


def _time_reader(
    bench: Bench, name: str, reader: subprocess.Popen[bytes], send: Callable[[bytes], object]
) -> Sample:
    assert reader.stdout is not None
    if reader.stdout.readline() != b"ready\n":
        raise RuntimeError(f"the reader of {name} did not start")
    time.sleep(SETTLE_SECONDS)
    idle = _idle_percent(reader.pid, 1.0 if bench.quick else 4.0)
    generator = random.Random(11)
    for _ in range(_count(bench)):
        time.sleep(generator.uniform(0.001, 0.004))
        send(encode(time.monotonic_ns()))
    delays = json.loads(reader.stdout.readline() or b"[]")
    expect_rows(name, _count(bench), len(delays))
    return {**percentiles(delays), CPU_PERCENT: idle}


def _idle_percent(process: int, seconds: float) -> float:
    """The share of one core that a waiting process takes."""
    before = machine.run_nanoseconds(process)
    time.sleep(seconds)
    return (machine.run_nanoseconds(process) - before) / (seconds * 1e9) * 100
