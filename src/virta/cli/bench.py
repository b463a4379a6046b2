"""`virta bench`: how fast this machine appends, reads and wakes; measured here, now, and said how.

Everything runs in a throw-away log beside the log that is addressed (so on its file
system), except `read TOPIC`, which measures a topic that is there. Each figure is the
best of the rounds that fit into the time, with the median beside it: a busy machine
shows in the difference. `bench/` in the source compares Virta with others.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virta
from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_options
from virta.cli.output import note, print_records
from virta.cli.ranges import open_log
from virta.cli.text import count, rate, span
from virta.contexts import resolve
from virta.errors import UsageError, VirtaError
from virta.requests import format_size

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.log import Log
    from virta.topics.topic import Topic

LEVELS = ("memory", "os", "disk")
_COLUMNS = ("work", "per_second", "median_per_second", "bytes_per_second", "call_p50", "call_p99")
_SCHEMA = {"key": bytes, "value": bytes}
_KEY_BYTES, _VALUE_BYTES = 16, 100

_seconds = click.option(
    "--seconds",
    type=click.FloatRange(0.05, 600),
    default=1.0,
    show_default=True,
    metavar="N",
    help="How long each figure is measured.",
)
_durability = click.option(
    "--durability", type=click.Choice(LEVELS), default="os", show_default=True, help="What is promised."
)


@click.group(no_args_is_help=True)
def bench() -> None:
    """Measure appending, reading and waking on this machine.

    \b
    Examples:
      virta bench append --durability disk
      virta bench read orders
      virta bench latency --seconds 5
    """


# -- what all have in common --------------------------------------------------------------------


@contextlib.contextmanager
def throw_away(invocation: Invocation) -> Iterator[tuple[Log, Path]]:
    """A log of its own on the file system of the log that is addressed."""
    beside = Path(resolve(invocation.log).address).expanduser().absolute().parent
    place = beside if beside.is_dir() and os.access(beside, os.W_OK) else None
    made = tempfile.TemporaryDirectory(prefix=".virta-bench-", dir=place)
    with made as directory, virta.open(directory) as log:
        yield log, Path(directory)


def _conditions(invocation: Invocation, place: Path, durability: str | None) -> None:
    promise = f", durability {durability}" if durability else ""
    note(
        invocation,
        f"in {place.parent}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{_VALUE_BYTES}-byte values{promise}; per second: the best round, the median beside it",
    )


def _rounds(seconds: float, work: Callable[[], int]) -> list[tuple[int, float]]:
    """Rows and seconds of each round, at least three."""
    work()  # what is only slow the first time
    rounds: list[tuple[int, float]] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(rounds) < 3:
        start = time.perf_counter()
        rows = work()
        rounds.append((rows, time.perf_counter() - start))
    return rounds


def _figure(work: str, rounds: list[tuple[int, float]], row_bytes: float | None) -> dict[str, Any]:
    speeds = [rows / taken for rows, taken in rounds if taken]
    times = sorted(taken for _, taken in rounds)
    return {
        "work": work,
        "rounds": len(rounds),
        "per_second": max(speeds),
        "median_per_second": statistics.median(speeds),
        "bytes_per_second": None if row_bytes is None else max(speeds) * row_bytes,
        "call_p50": times[len(times) // 2],
        "call_p99": times[min(len(times) - 1, len(times) * 99 // 100)],
    }


_SHOWN: dict[str, Callable[[Any], str]] = {
    "per_second": lambda value: rate(value, 1),
    "median_per_second": lambda value: rate(value, 1),
    "bytes_per_second": lambda value: f"{format_size(int(value))}/s",
    "call_p50": span,
    "call_p99": span,
}


def _print(invocation: Invocation, figures: list[dict[str, Any]]) -> None:
    print_records(invocation, figures, key="work", names=_COLUMNS, shown=_SHOWN)


def _batch(rows: int) -> pa.RecordBatch:
    import pyarrow as pa  # not for --help

    keys = [b"%0*d" % (_KEY_BYTES, row) for row in range(rows)]
    return pa.record_batch({"key": keys, "value": [os.urandom(_VALUE_BYTES)] * rows})


# -- append ---------------------------------------------------------------------------------------


@bench.command()
@_seconds
@click.option(
    "--batch",
    type=click.IntRange(2, 100_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Rows of a batch.",
)
@_durability
@output_options("the kinds of work")
@click.pass_obj
def append(invocation: Invocation, seconds: float, batch: int, durability: str) -> None:
    """Measure appending: ready Arrow batches, lists of dicts, one row at a time, a writer.

    \b
    Examples:
      virta bench append
      virta bench append --durability disk --seconds 3
      virta bench append --batch 100 -o json
    """
    with throw_away(invocation) as (log, place):
        _conditions(invocation, place, durability)
        topic = log.create_topic("bench", _SCHEMA, durability=durability)
        works = _append_works(topic, batch)
        size = _VALUE_BYTES + _KEY_BYTES
        _print(invocation, [_figure(name, _rounds(seconds, work), size) for name, work in works])


def _append_works(topic: Topic, batch: int) -> list[tuple[str, Callable[[], int]]]:
    ready = _batch(batch)
    dicts = ready.to_pylist()
    one = dicts[0]

    def send_all() -> int:
        with topic.writer(max_rows=batch) as writer:
            for row in dicts * 10:
                writer.send(row)
        return batch * 10

    return [
        (f"{count(batch)} rows, Arrow", lambda: topic.append(ready).rows),
        (f"{count(batch)} rows, dicts", lambda: topic.append(dicts).rows),
        ("1 row, dict", lambda: topic.append(one).rows),
        ("writer().send", send_all),
    ]


# -- read -----------------------------------------------------------------------------------------


@bench.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@_seconds
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=500_000,
    show_default=True,
    metavar="N",
    help="Rows of the throw-away topic.",
)
@output_options("the kinds of work")
@click.pass_obj
def read(invocation: Invocation, topic: str | None, seconds: float, rows: int) -> None:
    """Measure reading: replay into Arrow, rows as Python objects, look-ups, opening.

    Reads the topic that is named, else a throw-away one.

    \b
    Examples:
      virta bench read
      virta bench read orders --seconds 3
      virta bench read -o json
    """
    if topic is not None:
        with open_log(invocation) as log:
            _measure_reading(invocation, log, log.topic(topic), seconds)
        return
    with throw_away(invocation) as (log, place):
        _conditions(invocation, place, None)
        made = log.create_topic("bench", _SCHEMA)
        for start in range(0, rows, 1000):
            made.append(_batch(min(1000, rows - start)))
        _measure_reading(invocation, log, made, seconds)


def _measure_reading(invocation: Invocation, log: Log, topic: Topic, seconds: float) -> None:
    start, end = topic.start_offset, topic.next_offset
    if start == end:
        raise UsageError(f'topic "{topic.name}" is empty: there is nothing to measure')
    stats = topic.stats()
    note(invocation, f"{count(stats.rows, 'row')}, {format_size(stats.bytes)}, in the page cache")
    few = min(end, start + 20_000)
    row_bytes = stats.bytes / max(1, stats.rows)
    works: list[tuple[str, Callable[[], int], float | None]] = [
        ("rows into Arrow", lambda: sum(batch.num_rows for batch in topic[start:end].batches()), row_bytes),
        ("rows as Python objects", lambda: sum(1 for _ in topic[start:few]), row_bytes),
        ("one row by its offset", lambda: len([topic[(start + end) // 2]]), None),
        ("open the log, newest offset", lambda: _open_anew(log.path, topic.name), None),
    ]
    _print(invocation, [_figure(name, _rounds(seconds, work), size) for name, work, size in works])


def _open_anew(path: Path, name: str) -> int:
    with virta.open(path, create=False) as log:
        return min(1, log.topic(name).next_offset)


# -- latency --------------------------------------------------------------------------------------

# The other process prints how old each row is when it has it; both read the same clock.
_READER = """
import sys, time, virta
with virta.open(sys.argv[1], create=False) as log:
    print("ready", flush=True)
    for row in log.topic("bench").tail():
        age = time.monotonic_ns() - int(row["value"])
        if row["key"] == b"end":
            break
        print(age, flush=True)
"""
_PAUSE_SECONDS = 0.002


@bench.command()
@_seconds
@_durability
@output_options("the kinds of work")
@click.pass_obj
def latency(invocation: Invocation, seconds: float, durability: str) -> None:
    """Measure how soon a reader in another process has a row, and how long an append takes.

    \b
    Examples:
      virta bench latency
      virta bench latency --durability disk --seconds 5
      virta bench latency -o json
    """
    with throw_away(invocation) as (log, place):
        _conditions(invocation, place, durability)
        topic = log.create_topic("bench", _SCHEMA, durability=durability)
        command = [sys.executable, "-c", _READER, str(log.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            if reader.stdout.readline().strip() != "ready":
                raise VirtaError("the reading process did not start")
            appends = _send(topic, seconds)
            topic.append({"key": b"end", "value": b"0"})
            ages = sorted(int(line) / 1e9 for line in reader.stdout)
        figures = (
            ("append, until acknowledged", sorted(appends)),
            ("append, until another process has it", ages),
        )
        _print_latency(invocation, figures)


def _send(topic: Topic, seconds: float) -> list[float]:
    """One row at a time, with a pause, so that the reader sleeps each time."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(taken) < 20:
        time.sleep(_PAUSE_SECONDS)
        begun = time.monotonic_ns()
        topic.append({"key": b"row", "value": b"%d" % begun})
        taken.append((time.monotonic_ns() - begun) / 1e9)
    return taken


def _print_latency(invocation: Invocation, figures: Any) -> None:
    shares = (("p50", 50), ("p90", 90), ("p99", 99), ("worst", 100))
    records = [
        {
            "work": name,
            "rows": len(times),
            **{label: times[min(len(times) - 1, len(times) * share // 100)] for label, share in shares},
        }
        for name, times in figures
    ]
    print_records(invocation, records, key="work", shown={label: span for label, _ in shares})
