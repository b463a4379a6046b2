"""Progress: on a terminal only, after a while only, and gone when the work is."""

from __future__ import annotations

import io

import pytest

from virta.cli import progress as module
from virta.cli.invocation import Invocation
from virta.cli.progress import Progress
from virta.cli.text import count, rate, span, visible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    return clock


def test_it_appears_after_a_while_and_goes(now: list[float]) -> None:
    stream = Terminal()
    with Progress(Invocation(), "appending", total_rows=100, stream=stream) as progress:
        progress.advance(rows=10)
        assert stream.getvalue() == ""
        now[0] = 1.0
        progress.advance(rows=40, bytes=2048)
        assert "appending" in stream.getvalue()
        assert " 50%" in stream.getvalue() and "50 rows" in stream.getvalue() and "2 KiB" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(
    ("stream", "quiet", "wanted"),
    [(io.StringIO(), False, True), (Terminal(), True, True), (Terminal(), False, False)],
)
def test_it_stays_away(now: list[float], stream: io.StringIO, quiet: bool, wanted: bool) -> None:
    with Progress(Invocation(quiet=quiet), "x", wanted=wanted, stream=stream) as progress:
        now[0] = 9.0
        progress.advance(rows=1)
    assert stream.getvalue() == ""


def test_numbers_as_people_read_them() -> None:
    assert (count(1, "row"), count(1234, "row"), count(1234567)) == ("1 row", "1,234 rows", "1,234,567")
    assert [span(seconds) for seconds in (1.5, 0.0123, 85e-6, 5e-9)] == [
        "1.50 s",
        "12.3 ms",
        "85.0 µs",
        "5 ns",
    ]
    assert [rate(n, 1) for n in (3, 1500, 2_500_000, 7e9)] == ["3.00", "1.50k", "2.50M", "7.00G"]
    assert visible("a\x1b[1m\n\u202e") == "a\\x1b[1m\\n\\u202e"
