"""500 rows a second into five tabs: from the append to the pixel, and what it costs both sides."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import virta
from bench.console.stage import (
    MAIN_THREAD_PERCENT,
    P50_MILLISECONDS,
    P95_MILLISECONDS,
    SERVER_PERCENT,
    Console,
    MainThread,
    chromium,
    percentile,
    served,
    tab_of,
)
from bench.harness import Bench, Contest, LostRows, Metric, Target

TABS, ROWS_PER_SECOND, BATCH = 5, 500, 10
PIXEL_MS, SERVER_LIMIT, THREAD_LIMIT = 150, 5, 20

# Each draw is followed by a look at what was painted: the rows that are new since the last, each with the
# time at which it was sent in its own column.
_WATCH = """
() => {
  const grid = document.querySelector("virta-grid");
  const draw = grid.draw.bind(grid);
  let seen = grid.source.count;
  window.__delays = [];
  grid.draw = () => {
    draw();
    const count = grid.source.count, from = seen;
    seen = count;
    if (count > from) requestAnimationFrame(() => setTimeout(() => {
      const now = Date.now();
      for (let at = from; at < count; at++) {
        const row = grid.source.at(at);
        if (row) window.__delays.push(now - row[3]);
      }
    }));
  };
}
"""


def live(bench: Bench) -> None:
    """Latency of every row in every tab."""
    seconds = 5 if bench.quick else 15
    with bench.scratch() as directory, virta.open(directory / "log") as log:
        topic = log.create_topic("events", {"n": int, "sent": float, "text": str})
        topic.append([{"n": 0, "sent": 0.0, "text": "first"}] * 100)
        with served(directory / "log") as console, chromium() as browser:
            tabs = [tab_of(browser, console.address) for _ in range(TABS)]
            for tab in tabs:
                tab.goto("rows?topic=events")
                tab.wait_for_selector(".grow .text")
            contest = Contest(
                workload="live",
                title=f"{ROWS_PER_SECOND} rows/s into {TABS} tabs, append to pixel",
                conditions=f"os, {BATCH} rows an append, {seconds} s",
                runners={"virta console": partial(watch, topic, console, tabs, seconds)},
                targets=[
                    Target(metric=P95_MILLISECONDS, contender="virta console", limit=PIXEL_MS),
                    Target(metric=SERVER_PERCENT, contender="virta console", limit=SERVER_LIMIT),
                    Target(metric=MAIN_THREAD_PERCENT, contender="virta console", limit=THREAD_LIMIT),
                ],
            )
            bench.compete(contest)


def watch(topic: Any, console: Console, tabs: list[Any], seconds: float) -> Mapping[Metric, float]:
    for tab in tabs:
        tab.evaluate(_WATCH)
    threads = [MainThread(tab) for tab in tabs]
    before, begun = console.cpu_seconds(), time.monotonic()
    producing = threading.Thread(target=produce, args=(topic, seconds))
    producing.start()
    while producing.is_alive():
        tabs[0].wait_for_timeout(200)
    producing.join()
    server = 100 * (console.cpu_seconds() - before) / (time.monotonic() - begun)
    busy = max(thread.percent() for thread in threads)
    tabs[0].wait_for_timeout(500)
    delays = [delay for tab in tabs for delay in tab.evaluate("window.__delays")]
    wanted = TABS * int(seconds * ROWS_PER_SECOND)
    if len(delays) < wanted:
        raise LostRows(f"{wanted:,} rows were to be drawn, {len(delays):,} were")
    for tab in tabs:
        tab.reload()
        tab.wait_for_selector(".grow .text")
    return {
        P50_MILLISECONDS: percentile(delays, 0.5),
        P95_MILLISECONDS: percentile(delays, 0.95),
        SERVER_PERCENT: server,
        MAIN_THREAD_PERCENT: busy,
    }


def produce(topic: Any, seconds: float) -> None:
    """As many rows a second as are wanted, evenly."""
    begun = time.monotonic()
    for turn in range(int(seconds * ROWS_PER_SECOND / BATCH)):
        time.sleep(max(0.0, begun + turn * BATCH / ROWS_PER_SECOND - time.monotonic()))
        sent = time.time() * 1000
        topic.append([{"n": turn * BATCH + n, "sent": sent, "text": "a text"} for n in range(BATCH)])
