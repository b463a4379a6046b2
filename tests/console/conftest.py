"""One log, one console and one Chromium for all browser tests: the pages are looked at as people see them.

Where no Chromium is installed the browser tests are left out, with one line that says so.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.console import application
from virta.console.serve import listening, server_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def served(log: Any, **options: Any) -> Iterator[str]:
    """The console of a log on a free port of this machine."""
    with listening("127.0.0.1", 0) as place:
        server = server_of(application(log, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A log that the tests of this session may add to, each under names of its own."""
    with virta.open(tmp_path_factory.mktemp("console") / "log") as opened:
        orders = opened.create_topic("orders", {"id": int, "user": str, "amount": float}, keys=["id"])
        orders.append(
            [{"id": n, "user": ("ada", "bob", "eve")[n % 3], "amount": n * 0.5} for n in range(1000)]
        )
        life = opened.create_topic(
            "life", {"x": int, "y": int, "alive": bool}, kind="update", keys=["x", "y"]
        )
        life.append([{"x": x, "y": y, "alive": (x + y) % 3 == 0} for x in range(12) for y in range(8)])
        life.append({"x": 0, "y": 1, "alive": True})
        with orders.reader(group="billing") as reader:
            for batch in reader.batches(max_rows=400):
                reader.commit()
                if batch.num_rows:
                    break
        yield opened


@pytest.fixture(scope="session")
def console(log: Any) -> Iterator[str]:
    with served(log) as address:
        yield address


# A browser per module, not per session: while it runs, playwright's event loop is this thread's, and the
# tests of asyncio elsewhere need one of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, console: str) -> Iterator[Any]:
    """A tab of its own."""
    yield from checked_tab(chromium, console)


def checked_tab(chromium: Any, console: str) -> Iterator[Any]:
    """A tab from which nothing may leave the origin, and in which nothing may be complained about."""
    context = chromium.new_context(base_url=console, viewport={"width": 1280, "height": 800})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
    tab.on(
        "request",
        lambda asked: complaints.append(asked.url) if not _is_own(asked.url, console) else None,
    )
    tab.set_default_timeout(8000)
    yield tab
    context.close()
    assert complaints == []


def _is_own(url: str, console: str) -> bool:
    return url.startswith((console, "data:", "blob:"))


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Any]:
    """A log of one test."""
    with virta.open(tmp_path / "log") as opened:
        yield opened
