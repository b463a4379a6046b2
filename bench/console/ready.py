"""How long until a page shows what it is for, and how much is loaded for it: nothing is cached."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import virta
from bench.console.stage import KILOBYTES, P95_MILLISECONDS, chromium, percentile, served, tab_of
from bench.harness import Bench, Contest, Metric, Target

# page → what is there once it is of use
PAGES = {
    "": "tbody th a",
    "rows?topic=orders": ".grow .text",
    "sql?q=select count(*) from orders": ".values-table td",
    "groups": "tbody th a",
}
READY_MS, LOADED_KB = 300, 300

# Told to the page before its own scripts: when the first element appeared, by the page's own clock.
_WATCH = """
const look = () => {
  const found = document.querySelector(%r);
  if (found && found.textContent) window.__ready = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
_SIZE = """
performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .reduce((sum, each) => sum + each.transferSize, 0)
"""


def ready(bench: Bench) -> None:
    """Cold: a new context each time."""
    with bench.scratch() as directory:
        with virta.open(directory / "log") as log:
            orders = log.create_topic("orders", {"id": int, "user": str, "amount": float})
            orders.append([{"id": n, "user": "ada", "amount": n / 2} for n in range(20_000)])
            orders.group("billing").reset(100)
        with served(directory / "log") as console, chromium() as browser:
            opened(browser, console.address, "", PAGES[""])  # the first page of a server pays for imports
            opened(browser, console.address, "sql?q=select 1", ".values-table td")
            contest = Contest(
                workload="ready",
                title="A page is ready",
                conditions=f"5 cold loads each, {len(PAGES)} pages, 20,000 rows",
                runners={"virta console": partial(load, browser, console.address)},
                targets=[
                    Target(metric=P95_MILLISECONDS, contender="virta console", limit=READY_MS),
                    Target(metric=KILOBYTES, contender="virta console", limit=LOADED_KB),
                ],
            )
            bench.compete(contest)


def load(browser: Any, address: str) -> Mapping[Metric, float]:
    found = [opened(browser, address, path, shown) for path, shown in PAGES.items() for _ in range(5)]
    times, sizes = [each[0] for each in found], [each[1] for each in found]
    return {P95_MILLISECONDS: percentile(times, 0.95), KILOBYTES: max(sizes) / 1000}


def opened(browser: Any, address: str, path: str, shown: str) -> tuple[float, float]:
    """Milliseconds until it was there, and bytes that were loaded."""
    tab = tab_of(browser, address)
    tab.add_init_script(_WATCH % shown)
    tab.goto(path)
    while (at := tab.evaluate("window.__ready")) is None:
        tab.wait_for_timeout(10)
    size = tab.evaluate(_SIZE)
    tab.context.close()
    return float(at), float(size)
