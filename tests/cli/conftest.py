"""Running `virta` in this process, where its output is bytes that can be looked at."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.cli import main as front
from virta.log import Log


@dataclass(frozen=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    """The command, with a log of its own."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str | Path, stdin: bytes | str = b"") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.BytesIO(), io.StringIO()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)), "utf-8"))
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            patch.setattr(sys, "stderr", err)
            code = int(front.main([str(argument) for argument in arguments]))
            sys.stdout.flush()
            return Done(code, out.getvalue().decode(errors="surrogateescape"), err.getvalue())

    def ok(self, *arguments: str | Path, stdin: bytes | str = b"") -> Done:
        done = self(*arguments, stdin=stdin)
        assert done.code == 0, done.err
        return done

    def process(self, *arguments: str | Path, **settings: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "virta", *map(str, arguments)]
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
        return subprocess.Popen(command, **settings)

    def run(self, *arguments: str | Path, **settings: Any) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "virta", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, check=False, timeout=60, **settings)

    def open(self) -> Log:
        return virta.open(self.path)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    path = tmp_path / "log"
    monkeypatch.setenv("VIRTA_LOG", str(path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Cli(path, monkeypatch)


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """A log with three orders."""
    with cli.open() as log:
        topic = log.create_topic("orders", {"id": int, "user": str | None, "amount": float})
        topic.append([{"id": 1, "user": "ada", "amount": 9.5}, {"id": 2, "user": None, "amount": 3.0}])
        topic.append({"id": 3, "user": "zoë", "amount": 7.25})
    return cli


@pytest.fixture
def terminal() -> Callable[..., tuple[str, int]]:
    """Runs `virta` on a terminal; `keys` are typed once `after` was printed."""

    def run(*arguments: str, keys: str = "", after: str = "", columns: int = 80) -> tuple[str, int]:
        command = [sys.executable, "-m", "virta", *arguments]
        environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns)}
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        ) as process:
            os.close(theirs)
            printed = b""
            while data := _printed(ours):
                printed += data
                if keys and after.encode() in printed:
                    os.write(ours, keys.encode())
                    keys = ""
        os.close(ours)
        return printed.decode().replace("\r\n", "\n"), process.returncode

    return run


def _printed(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""
