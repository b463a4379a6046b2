"""The lock of a partition: `flock` on `lock` for one commit, and a turnstile so that nobody starves.

`flock` belongs to the open file, not to the process: closing another descriptor of the
same file does not drop it, as it does with POSIX record locks. It is inherited over
`fork`, so a child closes its copies at once (see `memory.registry`).

A free lock is taken without waiting. A writer that must wait does so holding the
turnstile, and every writer passes the turnstile at least every `PASSES_PER_TURN`
commits, so one that never pauses cannot keep a waiting one out for longer than that.
"""

from __future__ import annotations

import fcntl
from time import monotonic

from virta.errors import NotFound
from virta.storage.files import Files
from virta.storage.layout import PartitionPaths

# Looking the path up costs as much as the rest of locking. A directory that is being removed under a
# running writer takes longer than this to go, so rows written meanwhile are lost either way.
PATH_CHECK_SECONDS = 0.005
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
# Passing the turnstile costs two system calls; a waiter waits for at most so many short commits.
PASSES_PER_TURN = 16


class PartitionLock:
    """One process's handle on the lock. Not for several threads at once."""

    __slots__ = (
        "_check_at",
        "_descriptor",
        "_files",
        "_identity",
        "_passes",
        "_path",
        "_paths",
        "_turnstile",
    )

    def __init__(self, files: Files, paths: PartitionPaths) -> None:
        self._files = files
        self._paths = paths
        self._path = paths.lock
        self._passes = 0
        self._check_at = 0.0
        self._descriptor = files.open(paths.lock, write=True)
        try:
            self._turnstile = files.open(paths.turnstile, write=True, create=True)
        except BaseException:
            files.close(self._descriptor)
            raise
        try:
            self._identity = files.identity_of(self._descriptor)
        except BaseException:
            self.close()
            raise

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def acquire(self) -> None:
        passes = self._passes = self._passes + 1
        if passes % PASSES_PER_TURN:
            try:
                self._files.flock(self._descriptor, _NOW)
            except BlockingIOError:
                self._wait_in_turn()
        else:
            self._wait_in_turn()
        now = monotonic()
        if now >= self._check_at:
            self._check_path(now)

    def _check_path(self, now: float) -> None:
        """That the path still leads to the file that is locked."""
        if not self._is_in_place():
            self._check_at = 0.0
            self._files.unlock(self._descriptor)
            raise NotFound(
                f"{self._paths.root} was removed or replaced while it was open",
                hint="close the log and open it again",
            )
        self._check_at = now + PATH_CHECK_SECONDS

    def _is_in_place(self) -> bool:
        """Whether the locked file is still the one at the path; where nobody can say, it is unlocked."""
        try:
            return self._files.identity(self._path) == self._identity
        except BaseException:
            self._files.unlock(self._descriptor)
            raise

    def try_acquire(self) -> bool:
        """As `acquire`, unless it would have to wait. A path that leads elsewhere is said by `acquire`."""
        passes = self._passes = self._passes + 1
        in_turn = not passes % PASSES_PER_TURN
        if in_turn and not self._files.lock(self._turnstile, wait=False):
            return False  # somebody waits; who never waits must not keep them out
        try:
            self._files.flock(self._descriptor, _NOW)
        except BlockingIOError:
            return False
        finally:
            if in_turn:
                self._files.unlock(self._turnstile)
        now = monotonic()
        if now >= self._check_at:
            if not self._is_in_place():
                self._files.unlock(self._descriptor)
                return False
            self._check_at = now + PATH_CHECK_SECONDS
        return True

    def _wait_in_turn(self) -> None:
        self._files.lock(self._turnstile)
        try:
            self._files.lock(self._descriptor)
        finally:
            self._files.unlock(self._turnstile)

    def release(self) -> None:
        self._files.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        self._files.close(self._descriptor)
        self._files.close(self._turnstile)
