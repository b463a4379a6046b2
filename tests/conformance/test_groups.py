"""Groups of every kind of log: in a directory, at a broker, both at once, and of the asyncio twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import virta
from tests.conformance.adapter import Loop, Plain, open_plainly
from tests.served import Served
from virta.log import Log
from virta.testing.conformance.groups import GroupConformance


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "events") as broker:
        yield broker


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


class TestGroups(GroupConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], Log]:
        return lambda: virta.open(tmp_path / "events")


class TestAsyncGroups(GroupConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path, loop: Loop) -> Callable[[], Plain]:
        return lambda: open_plainly(loop, tmp_path / "events")


class TestServedGroups(GroupConformance):
    @pytest.fixture
    def open_log(self, broker: Served) -> Callable[[], Log]:
        return lambda: virta.open(broker.address)


class TestAsyncServedGroups(GroupConformance):
    @pytest.fixture
    def open_log(self, broker: Served, loop: Loop) -> Callable[[], Plain]:
        return lambda: open_plainly(loop, broker.address)


class TestServedAndLocalGroups(GroupConformance):
    """Handles are by turns remote and local: members of both kinds in one group."""

    @pytest.fixture
    def open_log(self, broker: Served, tmp_path: Path) -> Callable[[], Log]:
        turns = iter(range(1 << 30))
        return lambda: virta.open(tmp_path / "events" if next(turns) % 2 else broker.address)
