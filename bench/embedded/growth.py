"""Whether cost grows with the log: opening, newest offset and look-ups at three sizes.

The logs are filled once with the batches of the append workload and stay on disk side
by side; then the three sizes take turns like contenders. The page cache is warm.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.harness import (
    P50_MICROSECONDS,
    Bench,
    Contest,
    LostRows,
    Runner,
    Sample,
    Target,
    Unavailable,
)
from bench.rows import BATCH_ROWS, batches

MEBIBYTE = 2**20
FILL_BATCHES = 50  # made once and appended over and over
TOPIC = "log"

# One size's way to do one thing once, `count` times over; yields what each took.
Look = Callable[[Any, int], Iterator[int]]


def growth(bench: Bench) -> None:
    """Fill the three logs, then compare the smallest with the largest."""
    try:
        from virta import open as open_log  # heavy, and perhaps not there
    except ImportError as error:
        print(f"\ngrowth: not here ({error})")
        return
    sizes = {"10 MiB": 10, "256 MiB": 256} if bench.quick else {"10 MiB": 10, "1 GiB": 1024, "10 GiB": 10240}
    with ExitStack() as stack:
        places = {name: stack.enter_context(bench.scratch()) for name in sizes}
        for name, size in sizes.items():
            fill(open_log, places[name], size * MEBIBYTE)
        openings = {name: functools.partial(_opening, open_log, place) for name, place in places.items()}
        _compare(bench, "opening a log and a topic, newest offset included", openings)
        topics = {name: stack.enter_context(open_log(place)).topic(TOPIC) for name, place in places.items()}
        looks = {
            "newest offset": _newest,
            "look-up by offset": _by_offset,
            "look-up by time": _by_time,
        }
        for what, look in looks.items():
            _compare(
                bench,
                what,
                {name: functools.partial(_look, look, topic) for name, topic in topics.items()},
            )


def fill(open_log: Callable[[Path], Any], place: Path, size: int) -> int:
    """Append until the topic holds `size` bytes; the number of rows."""
    ready = [batch.arrow() for batch in batches(FILL_BATCHES)]
    with open_log(place) as log:
        topic = log.create_topic(TOPIC)
        while topic.stats().bytes < size:
            for batch in ready:
                topic.append(batch)
        return int(topic.next_offset)


def _compare(bench: Bench, what: str, runners: Mapping[str, Runner]) -> None:
    first, *_, last = runners
    bench.compete(
        Contest(
            workload="growth",
            title=f"{what}: {', '.join(runners)}",
            conditions=f"durability os; one topic, blocks of {BATCH_ROWS:,} rows; the page cache is warm",
            runners=runners,
            targets=[Target(metric=P50_MICROSECONDS, contender=last, against=first, times_cost=1.2)],
        )
    )


def _opening(open_log: Callable[[Path], Any], place: Path) -> Sample:
    taken = []
    for _ in range(30):
        start = time.perf_counter_ns()
        with open_log(place) as log:
            newest = log.topic(TOPIC).next_offset
            taken.append(time.perf_counter_ns() - start)
        if not newest:
            raise LostRows("an opened log is empty")
    return {P50_MICROSECONDS: statistics.median(taken) / 1000}


def _look(look: Look, topic: Any) -> Sample:
    list(look(topic, 20))
    return {P50_MICROSECONDS: statistics.median(look(topic, 300)) / 1000}


def _newest(topic: Any, count: int) -> Iterator[int]:
    for _ in range(count):
        start = time.perf_counter_ns()
        _newest_offset = topic.next_offset
        yield time.perf_counter_ns() - start


def _by_offset(topic: Any, count: int) -> Iterator[int]:
    for wanted in _some_offsets(topic, count):
        start = time.perf_counter_ns()
        row = next(iter(topic[wanted : wanted + 1]))
        yield time.perf_counter_ns() - start
        if row.offset != wanted:
            raise LostRows(f"looked up {wanted}, found {row.offset}")


def _by_time(topic: Any, count: int) -> Iterator[int]:
    """The first row at or after a moment: the time of a row that is there."""
    moments = [next(iter(topic[n : n + 1])).timestamp for n in _some_offsets(topic, min(count, 50))]
    for number in range(count):
        moment = moments[number % len(moments)]
        start = time.perf_counter_ns()
        row = next(iter(topic.since(moment)))
        yield time.perf_counter_ns() - start
        if row.timestamp != moment:
            raise LostRows(f"looked for {moment}, found {row.timestamp}")


def _some_offsets(topic: Any, count: int) -> list[int]:
    generator = random.Random(3)
    if not topic.next_offset:
        raise Unavailable("the log is empty")
    return [generator.randrange(topic.next_offset) for _ in range(count)]
