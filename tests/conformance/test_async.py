"""The async twin, held to what every log must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.adapter import Loop, Plain, open_plainly
from virta.testing.conformance import LogConformance


class TestAsync(LogConformance):
    @pytest.fixture
    def loop(self) -> Iterator[Loop]:
        loop = Loop()
        yield loop
        loop.stop()

    @pytest.fixture
    def open_log(self, tmp_path: Path, loop: Loop) -> Callable[[], Plain]:
        return lambda: open_plainly(loop, tmp_path / "events")
