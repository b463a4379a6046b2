"""Files with secrets in them: readable by their owner only, replaced whole.

Written aside with mode 0600, synced, renamed; the directory is synced, so what was changed stays
changed over a power loss (a user who was removed does not come back).
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from virta.errors import Denied

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_private(path: Path) -> str | None:
    """The text of a file that only its owner can read; None when it is not there."""
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()))
            return file.read().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise Denied(f"{path} is not text") from None


def check_private(path: Path, facts: os.stat_result) -> None:
    """That nobody else can read or change the file."""
    if facts.st_mode & _OTHERS:
        raise Denied(
            f"{path} holds secrets and others can read it (mode {stat.S_IMODE(facts.st_mode):04o})",
            hint=f"chmod 600 {path}",
        )
    if facts.st_uid not in (os.geteuid(), 0):
        raise Denied(
            f"{path} holds secrets and belongs to somebody else", hint=f"chown {os.geteuid()} {path}"
        )


def write_private(path: Path, text: str) -> None:
    """Replace the file whole; directories on the way are made for their owner only."""
    make_private_directory(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # a file left from before may have another mode
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        raise
    _sync_directory(path.parent)


def make_private_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
