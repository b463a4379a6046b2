"""The console at a broker's HTTP port: its page of itself, its faults on purpose, its users."""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import virta
from tests.broker.secured import PASSWORD, Secured
from tests.console.conftest import checked_tab
from virta.broker.faults import Faults
from virta.broker.operation.http import Page
from virta.broker.operation.logs import Recent
from virta.broker.operation.status import Status
from virta.console.site import Site


class Broker(Secured):
    """A broker with the console beside it, for development."""

    def __init__(self, path: Path) -> None:
        self.recent = Recent()
        logging.getLogger().addHandler(self.recent)
        super().__init__(path)
        self.server.faults = Faults()
        status = Status(self.server, recent=self.recent, started_at=0.0)
        self.site = Site(status, self.server.guard, {"/health": _health})
        started = asyncio.run_coroutine_threadsafe(self.site.start("127.0.0.1", 0), self.loop)
        self.http = f"http://127.0.0.1:{started.result(10)}/"

    def stop(self) -> None:
        logging.getLogger().removeHandler(self.recent)
        asyncio.run_coroutine_threadsafe(self.site.stop(), self.loop).result(10)
        super().stop()


async def _health() -> Page:
    return Page(body="well\n")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "log") as made:
        made.log.create_topic("orders", {"id": int}).append([{"id": n} for n in range(10)])
        yield made


@pytest.fixture
def page(chromium: Any, broker: Broker) -> Iterator[Any]:
    yield from checked_tab(chromium, broker.http)


def test_pages_for_machines_stand_beside_the_console(broker: Broker) -> None:
    def ask(path: str, **named: Any) -> Any:
        return urllib.request.urlopen(urllib.request.Request(broker.http + path, **named), timeout=5)

    with ask("health", headers={"Host": "metrics.internal"}) as answer:
        assert answer.read() == b"well\n"
    with ask("") as answer:
        assert "content-security-policy" in answer.headers
    for path, named, status in (
        ("", {"headers": {"Host": "metrics.internal"}}, 403),
        ("health", {"method": "POST", "data": b""}, 405),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(path, **named)
        assert refused.value.code == status
        refused.value.close()


def test_the_broker_shows_itself(page: Any, broker: Broker) -> None:
    page.goto("broker")
    with virta.open(broker.address) as log:
        log.topic("orders").append({"id": 11})
        expect(page.get_by_role("region", name="Connections").get_by_text("127.0.0.1")).to_be_visible()
        expect(page.get_by_text("99 of 100")).to_be_visible()
        page.get_by_label("Verb").select_option("append")
        expect(page.get_by_text("1 answer:")).to_be_visible()
        logging.getLogger("virta.broker").warning("something odd", extra={"fields": {"connection": "c1"}})
        expect(page.get_by_role("log").get_by_text("something odd")).to_be_visible()
        page.get_by_label("Least level").select_option("error")
        expect(page.get_by_role("log").get_by_text("something odd")).to_be_hidden()


def test_faults_on_purpose(page: Any, broker: Broker) -> None:
    page.goto("broker")
    with virta.open(broker.address) as log:
        orders = log.topic("orders")
        orders.append({"id": 1})
        page.get_by_label("Refuse appends: disk full").check()
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("Failing on purpose: disk full")).to_be_visible()
        with pytest.raises(virta.NoSpace, match="on purpose"):
            orders.append({"id": 2})
        page.get_by_label("Refuse appends: disk full").uncheck()
        page.get_by_label("Delay answers, seconds").fill("0.15")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("answers 150 ms late")).to_be_visible()
        orders.append({"id": 3})
        page.get_by_role("button", name="Cut all connections").click()
        expect(page.get_by_text("connection cut")).to_be_visible()
        page.get_by_role("button", name="All well").click()
        expect(page.get_by_text("Nothing fails on purpose")).to_be_visible()
        orders.append({"id": 4})  # clients come back by themselves
    assert [row["id"] for row in broker.log.topic("orders")[-3:]] == [1, 3, 4]


def test_signing_in_and_out(page: Any, broker: Broker) -> None:
    broker.add("ada", "consume:orders")
    page.goto("rows?topic=orders")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("grid", name="Rows of orders")).to_be_visible()
    expect(page.get_by_role("link", name="Produce")).to_have_count(0)  # she may only read
    page.goto("broker")
    expect(page.get_by_role("alert")).to_contain_text("'ada' may not alter this log")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
