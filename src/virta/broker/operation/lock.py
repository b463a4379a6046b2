"""One broker per log: a lock that ends with the process, and a note of who holds it.

`flock` on `broker/lock` in the log's directory. The note (process, address) is for people and for
`virta doctor`; only the lock decides, so a note left by a killed broker keeps nobody out.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from virta.errors import Locked
from virta.security.private_files import make_private_directory

_NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The broker that serves a log."""

    process: int
    listen: tuple[str, ...]


class BrokerLock:
    """Held from start to stop."""

    def __init__(self, directory: Path) -> None:
        make_private_directory(directory)
        self.path = directory / "lock"
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = read_note(self._descriptor)
            os.close(self._descriptor)
            who = f" (process {holder.process}, {', '.join(holder.listen)})" if holder else ""
            raise Locked(
                f"another broker serves this log already{who}",
                hint="stop it first, or connect to it; other programs may open the directory beside it",
            ) from None
        except BaseException:
            os.close(self._descriptor)
            raise

    def note(self, listen: tuple[str, ...]) -> None:
        """Say who holds it, where."""
        text = json.dumps({"process": os.getpid(), "listen": list(listen)}).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_note(descriptor: int) -> Holder | None:
    """Who holds the lock; None when nobody said."""
    try:
        note: Any = json.loads(os.pread(descriptor, _NOTE_BYTES, 0))
        return Holder(process=int(note["process"]), listen=tuple(map(str, note["listen"])))
    except (ValueError, KeyError, TypeError, OSError):
        return None


def holder_of(directory: Path) -> Holder | None:
    """The broker that serves a log now, if one does."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_note(descriptor)
    finally:
        os.close(descriptor)
    return None
