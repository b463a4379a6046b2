"""A topic of a hundred million rows beside one of a thousand: scrolling, seeking and filtering."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import virta
from bench.console.stage import (
    MAIN_THREAD_PERCENT,
    P50_MILLISECONDS,
    P95_MILLISECONDS,
    MainThread,
    chromium,
    percentile,
    served,
    tab_of,
)
from bench.harness import Bench, Contest, Metric, Target

SMALL, LARGE, QUICK_LARGE = 1_000, 100_000_000, 10_000_000
_BLOCK_ROWS = 500_000
# Smooth is what nobody waits for. A thousand rows are all in the browser already, so no ratio is asked for.
SMOOTH_MS = 150

_FILLED = """
(go) => new Promise((resolve) => {
  const grid = document.querySelector("virta-grid");
  const begun = performance.now();
  %s
  const look = () => {
    const rows = [...grid.querySelectorAll(".glayer > .grow")].filter((row) => !row.hidden);
    const waits = rows.length === 0 || rows.some((row) => row.querySelector(".wait"));
    if (!waits && grid.scroller.scrollTop !== undefined && %s) resolve(performance.now() - begun);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})
"""
_SCROLL = _FILLED % (
    "grid.scroller.scrollTop = go * (grid.scroller.scrollHeight - grid.clientHeight);",
    "true",
)
_SEEK = _FILLED % (
    "const field = document.getElementById('seek'); field.value = String(go); field.form.requestSubmit();",
    "rows.some((row) => row.classList.contains('marked') && row.firstChild.textContent === String(go))",
)
_MATCH = _FILLED % (
    "const it = document.getElementById('where'); it.value = `kind = ${go}`; it.form.requestSubmit();",
    "rows[0].children[3].textContent === String(go)",
)
_STOP = "() => [...document.querySelectorAll('button')].find((each) => each.textContent === 'Stop').click()"


def large(bench: Bench) -> None:
    """Three acts, each in both topics."""
    rows = QUICK_LARGE if bench.quick else LARGE
    with bench.scratch() as directory:
        with virta.open(directory / "log") as log:
            for name, count in (("small", SMALL), ("large", rows)):
                fill(log, name, count)
        with served(directory / "log") as console, chromium() as browser:
            names = {"1,000 rows": ("small", SMALL), f"{rows // 1_000_000} M rows": ("large", rows)}
            big = list(names)[1]
            for title, act in (
                ("Scroll anywhere", scroll),
                ("Seek an offset", seek),
                ("First matches", match),
            ):
                bench.compete(
                    Contest(
                        workload="large",
                        title=title,
                        conditions="until all rows in sight are there; lz4 blocks of 500,000 rows",
                        runners={
                            each: partial(act, browser, console.address, *given)
                            for each, given in names.items()
                        },
                        targets=[
                            Target(metric=P95_MILLISECONDS, contender=big, limit=SMOOTH_MS),
                        ],
                    )
                )


def fill(log: Any, name: str, count: int) -> None:
    topic = log.create_topic(name, {"n": int, "kind": int, "value": float}, compression="lz4")
    for batch in batches(count):
        topic.append(batch)


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, _BLOCK_ROWS):
        n = np.arange(first, min(count, first + _BLOCK_ROWS), dtype=np.int64)
        yield pa.record_batch({"n": n, "kind": n % 1000, "value": n / 8})


def scroll(browser: Any, address: str, name: str, _: int) -> Mapping[Metric, float]:
    """The scroll bar to places all over the topic."""
    tab = opened(browser, address, name)
    thread, places = MainThread(tab), random.Random(5)
    times = [tab.evaluate(_SCROLL, places.random()) for _ in range(40)]
    return told(tab, times, thread)


def seek(browser: Any, address: str, name: str, count: int) -> Mapping[Metric, float]:
    """An offset typed into Go to."""
    tab = opened(browser, address, name)
    thread, places = MainThread(tab), random.Random(7)
    times = [tab.evaluate(_SEEK, places.randrange(count)) for _ in range(40)]
    return told(tab, times, thread)


def match(browser: Any, address: str, name: str, _: int) -> Mapping[Metric, float]:
    """The newest rows that match a filter, which has to look into columns."""
    tab = opened(browser, address, name)
    thread, times = MainThread(tab), []
    for kind in range(0, 1000, 100):
        times.append(tab.evaluate(_MATCH, kind))
        tab.evaluate(
            "() => [...document.querySelectorAll('button')].find((b) => b.textContent === 'Stop').click()"
        )
    return told(tab, times, thread)


def opened(browser: Any, address: str, name: str) -> Any:
    tab = tab_of(browser, address)
    tab.goto(f"rows?topic={name}")
    tab.wait_for_selector(".grow .num")
    return tab


def told(tab: Any, times: list[float], thread: MainThread) -> Mapping[Metric, float]:
    busy = thread.percent()
    tab.context.close()
    return {
        P50_MILLISECONDS: percentile(times, 0.5),
        P95_MILLISECONDS: percentile(times, 0.95),
        MAIN_THREAD_PERCENT: busy,
    }
