"""A broker as a process, for campaigns: started, killed, stopped, started again at the same port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_START_SECONDS = 30.0
# Of what a broker said, the end: a traceback and what came before it.
_TOLD_BYTES = 6000


class Broker:
    """One directory, one port, any number of lives."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self.port = free_port()
        self._options = options
        self._said = path.parent / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [sys.executable, "-m", "virta", "serve", str(self.path)]
        words += ["--listen", f"virta://127.0.0.1:{self.port}", "--log-level", "error", *self._options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VIRTA")}
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(words, env=environment, stderr=said)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if not self.is_alive():
                    raise RuntimeError(f"the broker ended at once:\n{self.told()}") from None
                time.sleep(0.02)
        raise RuntimeError("the broker did not come up")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, number: signal.Signals) -> int:
        """Send it a signal, and wait for its end; its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)

    def told(self) -> str:
        """The end of what it said."""
        data = self._said.read_bytes() if self._said.exists() else b""
        return data[-_TOLD_BYTES:].decode(errors="replace")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
