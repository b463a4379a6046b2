"""The embedded log, held to what every log must do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import virta
from virta.log import Log
from virta.testing.conformance import LogConformance


class TestEmbedded(LogConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], Log]:
        return lambda: virta.open(tmp_path / "events")
