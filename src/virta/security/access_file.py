"""The file that holds an `Access`: read when it changed, changed by one process at a time.

Commands change it while a broker runs; the broker sees that the file is another one and reads it
again. A file that became unreadable leaves the broker with what it knew, and says so: a slip of
the pen must neither open the door nor throw everybody out.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from virta.errors import UsageError, VirtaError
from virta.security.access import Access, parse_access, to_document
from virta.security.private_files import make_private_directory, read_private, write_private

# Looking at the file costs a call. A change is seen sooner than the next command can connect: whoever made a
# token may use it at once.
_LOOK_INTERVAL_SECONDS = 0.1


def load_access(path: Path) -> Access | None:
    """What the file holds; None when there is none."""
    text = read_private(path)
    return None if text is None else parse_access(text)


def change_access(path: Path, change: Callable[[Access], Access]) -> Access:
    """Read, change and replace the file, with nobody in between."""
    with _only_one(path):
        before = load_access(path)
        after = change(before or Access.empty())
        if before is None or after != before:
            write_private(path, tomli_w.dumps(to_document(after)))
        return after


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    make_private_directory(path.parent)
    lock = path.with_name(path.name + ".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class AccessFile:
    """The newest readable state of the file."""

    def __init__(self, path: Path, *, complain: Callable[[VirtaError | OSError], None]) -> None:
        self.path = path
        self._complain = complain
        self._seen = self._mark()
        self._access = load_access(path) or Access.empty()
        self._looked_at = -_LOOK_INTERVAL_SECONDS

    def current(self, now: float) -> Access:
        """What is valid at this moment of the monotonic clock."""
        if now - self._looked_at >= _LOOK_INTERVAL_SECONDS:
            self._looked_at = now
            self._look()
        return self._access

    def reload(self) -> Access:
        """Read the file now, whatever its times say; an error is raised and changes nothing."""
        self._seen = self._mark()
        found = load_access(self.path)
        if found is None and self._access.is_set_up:
            raise UsageError(
                f"{self.path}, which says who may do what, is gone; what it said goes on holding",
                hint="put it back; a broker started without it knows nobody",
            )
        self._access = found or self._access
        return self._access

    def _look(self) -> None:
        mark = self._mark()
        if mark == self._seen:
            return
        try:
            self.reload()
        except (VirtaError, OSError) as error:
            self._seen = mark  # said once for each state of the file
            self._complain(error)

    def _mark(self) -> tuple[int, ...] | None:
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return (facts.st_ino, facts.st_mtime_ns, facts.st_size, facts.st_mode)
