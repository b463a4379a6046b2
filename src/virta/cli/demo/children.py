"""The processes the demo starts, and their end with it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from virta.errors import UnavailableError

# Python, Arrow and a log are there within a second; a busy machine may take many.
_PATIENCE_SECONDS = 30.0
_FAREWELL_SECONDS = 10.0


@dataclass(slots=True)
class Children:
    """Ended in the order opposite to their start, however the demo ends."""

    environment: Mapping[str, str]
    logs: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self.running):
            _end(child)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A Python module with its words; it hears of the demo's end through its stdin."""
        self.logs.mkdir(exist_ok=True)
        with self._log(len(self.running)).open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", *words],
                env=dict(self.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self.running.append(child)
        return child

    def start_server(self, port: int, *words: str) -> subprocess.Popen[bytes]:
        """One that is there only once it answers at its port."""
        child = self.start(*words)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _answers(port):
            if child.poll() is not None or time.monotonic() > deadline:
                _end(child)
                raise UnavailableError(f"`{' '.join(words)}` did not come up: {self._last_words(child)}")
            time.sleep(0.05)
        return child

    def _log(self, number: int) -> Path:
        return self.logs / f"{number}.log"

    def _last_words(self, child: subprocess.Popen[bytes]) -> str:
        said = self._log(self.running.index(child)).read_text(errors="replace").strip().splitlines()
        return said[-1] if said else "it said nothing"


def free_port(wanted: int) -> int:
    """The wanted one, or, where another program has it, one that is free."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            return int(probe.getsockname()[1])
    raise UnavailableError("no port is free on 127.0.0.1")


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        child.stdin.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
