"""What all workloads stand on: the console as a process of its own, and Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import Metric, Unavailable

P95_MILLISECONDS = Metric(name="p95 ms", more_is_better=False)
P50_MILLISECONDS = Metric(name="p50 ms", more_is_better=False)
SERVER_PERCENT = Metric(name="server CPU %", more_is_better=False)
MAIN_THREAD_PERCENT = Metric(name="main thread %", more_is_better=False)
KILOBYTES = Metric(name="kB", more_is_better=False)

_TICKS = os.sysconf("SC_CLK_TCK")
_ADDRESS = re.compile(r"http://\S+")


class Console:
    """`virta console` over a directory."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", "virta", "console", str(directory), "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        found = _ADDRESS.search(self._process.stderr.readline())
        if found is None:
            self._process.kill()
            raise RuntimeError("the console did not say where it is")
        self.address = found[0]

    def cpu_seconds(self) -> float:
        """Processor time of the server so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate()


@contextmanager
def served(directory: Path) -> Iterator[Console]:
    console = Console(directory)
    try:
        yield console
    finally:
        console.stop()


@contextmanager
def chromium() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise Unavailable("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def tab_of(browser: Any, address: str) -> Any:
    """A tab in a context of its own: nothing is cached, and it counts as seen."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800})
    return context.new_page()


class MainThread:
    """How busy a tab's main thread was between two looks."""

    def __init__(self, tab: Any) -> None:
        self._session = tab.context.new_cdp_session(tab)
        self._session.send("Performance.enable")
        self._before = self._look()

    def _look(self) -> tuple[float, float]:
        found = self._session.send("Performance.getMetrics")["metrics"]
        values = {each["name"]: each["value"] for each in found}
        return values["Timestamp"], values["TaskDuration"]

    def percent(self) -> float:
        before, self._before = self._before, self._look()
        passed = self._before[0] - before[0]
        return 100 * (self._before[1] - before[1]) / passed if passed else 0.0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
