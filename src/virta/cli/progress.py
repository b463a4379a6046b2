"""How far a long piece of work is, on stderr: only on a terminal, and only once it takes a while."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from virta.cli.invocation import Invocation
from virta.cli.text import count, rate
from virta.requests import format_size

# Work that is done sooner needs no progress.
DELAY_SECONDS = 0.5
# A line more often than this is only flicker.
INTERVAL_SECONDS = 0.1
_BAR_WIDTH = 20
_CLEAR = "\r\x1b[2K"


class Progress:
    """`with Progress(invocation, "appending") as progress: progress.advance(rows=10)`."""

    def __init__(
        self,
        invocation: Invocation,
        what: str,
        *,
        total_bytes: int | None = None,
        total_rows: int | None = None,
        wanted: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._stream = stream or sys.stderr
        self._what = what
        self._total_bytes = total_bytes
        self._total_rows = total_rows
        self._rows = self._bytes = 0
        self._begun = time.monotonic()
        self._next = self._begun + DELAY_SECONDS
        self._shown = False
        self._wanted = wanted and self._stream.isatty() and not invocation.quiet

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def advance(self, *, rows: int = 0, bytes: int = 0) -> None:
        self._rows += rows
        self._bytes += bytes
        if self._wanted and time.monotonic() >= self._next:
            self._draw()

    def clear(self) -> None:
        """Take the line away, so that something else can be printed."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def _draw(self) -> None:
        self._next = time.monotonic() + INTERVAL_SECONDS
        parts = [self._what]
        done = self._share()
        if done is not None:
            filled = round(done * _BAR_WIDTH)
            parts.append(f"{'█' * filled}{'░' * (_BAR_WIDTH - filled)} {done:4.0%}")
        if self._rows:
            parts += [count(self._rows, "row"), f"{rate(self._rows, self.seconds)} rows/s"]
        if self._bytes:
            parts.append(format_size(self._bytes))
        self._stream.write(_CLEAR + "  ".join(parts))
        self._stream.flush()
        self._shown = True

    def _share(self) -> float | None:
        for done, total in ((self._rows, self._total_rows), (self._bytes, self._total_bytes)):
            if total:
                return min(1.0, done / total)
        return None
