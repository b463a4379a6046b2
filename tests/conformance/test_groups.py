"""Groups of the embedded log, and of its async twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import virta
from tests.conformance.adapter import Loop, Plain, open_plainly
from virta.log import Log
from virta.testing.conformance.groups import GroupConformance


class TestGroups(GroupConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], Log]:
        return lambda: virta.open(tmp_path / "events")


class TestAsyncGroups(GroupConformance):
    @pytest.fixture
    def loop(self) -> Iterator[Loop]:
        loop = Loop()
        yield loop
        loop.stop()

    @pytest.fixture
    def open_log(self, tmp_path: Path, loop: Loop) -> Callable[[], Plain]:
        return lambda: open_plainly(loop, tmp_path / "events")
