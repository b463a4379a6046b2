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
        self.stage.step("Served over TCP, shown in the browser", "virta serve · virta console")
        self._start_broker()
        self._start_console()
        self._watch_lag(log)

    def _start_broker(self) -> None:
        if not _installed(_BROKER_NEEDS):
            self.stage.fact("broker", "left out: pip install 'virta[serve]'")
            return
        port = free_port(BROKER_PORT)
        self.broker = f"virta://127.0.0.1:{port}"
        self.children.start_server(port, "virta", "serve", str(self.places.events), "--listen", self.broker)
        with virta.open(self.broker) as remote:
            orders = remote.topic("orders")
            make = feeds.order_maker(seed=2)
            acks, taken = [], []
            for number in range(_TIMES):
                begun = time.perf_counter()
                acks.append(orders.append(make(number)))
                taken.append(time.perf_counter() - begun)
            # Local processes append to the topic at the same moment, so offsets between may be theirs.
            back = [next(iter(orders[ack.first_offset : ack.first_offset + 1]))["id"] for ack in acks]
        self.stage.fact(
            "broker", f"{self.broker}: a row there and acknowledged in {span(sorted(taken)[_TIMES // 2])}"
        )
        self.stage.check(
            back == [make_id(number) for number in range(_TIMES)],
            f"{count(_TIMES, 'order')} appended over TCP and read back, while local processes append too",
        )

    def _start_console(self) -> None:
        if not _installed(_CONSOLE_NEEDS):
            self.stage.fact("console", "left out: pip install 'virta[console]'")
            return
        port = free_port(CONSOLE_PORT)
        self.children.start_server(
            port, "virta", "console", str(self.places.events), "--listen", f"127.0.0.1:{port}"
        )
        self.console = f"http://127.0.0.1:{port}/"
        with urllib.request.urlopen(self.console, timeout=10) as page:
            good = page.status == 200 and b"<html" in page.read().lower()
        self.stage.check(good, f"the console answers at {self.console}")

    def _watch_lag(self, log: Log) -> None:
        """The group takes fewer orders a second than come."""
        deadline = time.monotonic() + _LAG_PATIENCE_SECONDS
        lag = 0
        while lag == 0 and time.monotonic() < deadline:
            time.sleep(0.2)
            lag = lag_of(log)
        self.stage.check(lag > 0, f"group {feeds.GROUP} is {count(lag, 'row')} behind, as it is meant to be")


def make_id(number: int) -> int:
    return number + 1


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
