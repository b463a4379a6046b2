"""A log at a broker, held to what every log must do; and one that is open here at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import virta
from tests.served import Served
from virta.log import Log
from virta.testing.conformance import LogConformance


class TestServed(LogConformance):
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Served]:
        with Served(tmp_path / "events") as broker:
            yield broker

    @pytest.fixture
    def open_log(self, broker: Served) -> Callable[[], Log]:
        return lambda: virta.open(broker.address)


@pytest.mark.slow
class TestServedAndLocal(LogConformance):
    """Handles are by turns remote and local: both sides of one directory."""

    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Iterator[Callable[[], Log]]:
        with Served(tmp_path / "events") as broker:
            turns = iter(range(1 << 30))

            def opened() -> Log:
                return virta.open(tmp_path / "events" if next(turns) % 2 else broker.address)

            yield opened
