"""The demo's second half: the same directory served to others and shown in the browser, live."""

from __future__ import annotations

import importlib.util
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

import virta
from virta.cli.demo import feeds
from virta.cli.demo.children import Children, free_port
from virta.cli.demo.places import Places
from virta.cli.demo.stage import Stage
from virta.cli.text import count, span
from virta.errors import NotFound

if TYPE_CHECKING:
    from virta.log import Log

BROKER_PORT, CONSOLE_PORT = 7400, 7401
# What each of the two servers imports; a missing extra leaves it out.
_BROKER_NEEDS, _CONSOLE_NEEDS = ("google.protobuf", "cryptography"), ("starlette", "uvicorn", "jinja2")
_TIMES = 20
_LAG_PATIENCE_SECONDS = 15.0


@dataclass(slots=True)
class Serving:
    """Broker and console beside processes that write and read, until the demo ends."""

    stage: Stage
    children: Children
    places: Places
    broker: str | None = None
    console: str | None = None

    def play(self, log: Log) -> None:
        for name in feeds.FEEDS:
            self.children.start("virta.cli.demo.feeds", name, str(log.path))
        self.stage.step("Served over TCP, shown in the browser", "virta serve --console")
        self._start_broker()
        self._watch_lag(log)

    def _start_broker(self) -> None:
        """One process for both, as `virta serve --console` is anywhere."""
        if not _installed(_BROKER_NEEDS):
            self.stage.fact("broker", "left out: pip install 'virta[serve]'")
            return
        port, http = free_port(BROKER_PORT), free_port(CONSOLE_PORT)
        broker = f"virta://127.0.0.1:{port}"
        words = ["serve", str(self.places.events), "--listen", broker]
        shows = _installed(_CONSOLE_NEEDS)
        if shows:
            words += ["--console", "--http", f"127.0.0.1:{http}"]
        self.children.start_server(http if shows else port, "virta", *words)
        self.broker = broker
        self._append_and_read_back(broker)
        if shows:
            self._look_at_console(f"http://127.0.0.1:{http}/")
        else:
            self.stage.fact("console", "left out: pip install 'virta[console]'")

    def _append_and_read_back(self, broker: str) -> None:
        make, taken, acks = feeds.order_maker(seed=2), [], []
        with virta.open(broker) as remote:
            orders = remote.topic("orders")
            for number in range(_TIMES):
                begun = time.perf_counter()
                acks.append(orders.append(make(number)))
                taken.append(time.perf_counter() - begun)
            # Local processes append to the topic at the same moment, so offsets between may be theirs.
            back = [next(iter(orders[ack.first_offset : ack.first_offset + 1]))["id"] for ack in acks]
        typical = sorted(taken)[_TIMES // 2]
        self.stage.fact("broker", f"{broker}: a row there and acknowledged in {span(typical)}")
        self.stage.check(
            back == [1 + number for number in range(_TIMES)],
            f"{count(_TIMES, 'order')} appended over TCP and read back, while local processes append too",
        )

    def _look_at_console(self, console: str) -> None:
        with urllib.request.urlopen(console, timeout=10) as page:
            good = page.status == 200 and b"<html" in page.read().lower()
        self.stage.check(good, f"the console answers at {console}")
        self.console = console

    def _watch_lag(self, log: Log) -> None:
        """The group takes fewer orders a second than come."""
        deadline = time.monotonic() + _LAG_PATIENCE_SECONDS
        lag = 0
        while lag == 0 and time.monotonic() < deadline:
            time.sleep(0.2)
            lag = lag_of(log)
        self.stage.check(lag > 0, f"group {feeds.GROUP} is {count(lag, 'row')} behind, as it is meant to be")


def lag_of(log: Log) -> int:
    try:
        return log.topic("orders").group(feeds.GROUP).describe().lag.rows
    except NotFound:
        return 0


def _installed(names: tuple[str, ...]) -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in names)
    except ModuleNotFoundError:  # the package around it is missing
        return False
