"""A log at a broker, held to what every log must do; and one that is open here at the same moment."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import virta
from tests.served import Elsewhere, Served
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


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    elsewhere = Elsewhere()
    yield elsewhere
    elsewhere.stop()


@pytest.mark.slow
class TestServedAndLocal(LogConformance):
    """Handles are by turns remote and local: two processes on one directory."""

    shares_memory = False

    @pytest.fixture
    def open_log(self, tmp_path: Path, elsewhere: Elsewhere) -> Callable[[], Log]:
        address = elsewhere.serve(tmp_path / "events")
        turns = itertools.cycle((address, tmp_path / "events"))
        return lambda: virta.open(next(turns))
