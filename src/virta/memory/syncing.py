"""How far a partition's rows are on disk: syncs that are shared, and the watermark that follows them.

Rows that are acknowledged at `disk` wait here; one sync serves all who wait. The others are
synced in the background, after a time or a number of bytes. Rows that are only in memory are
written first. Knows one partition's committer and the lock that guards it; no queue, no reader.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from virta.settings import Settings
from virta.storage.commit import Committer, Synced
from virta.storage.files import storage_error

# Rows synced one by one move the watermark at most so often.
_MARK_SECONDS = 0.01


class Syncing:
    def __init__(
        self,
        root: Path,
        settings: Settings,
        *,
        committing: threading.Lock,
        committer: Callable[[], Committer],
        dump: Callable[[Committer], None],
        expect: Callable[[], None],
        hurry: Callable[[], None],
    ) -> None:
        self._root = root
        self._settings = settings
        self._committing = committing
        self._committer = committer  # opens it where it is not open yet
        self._dump = dump
        self._expect = expect  # there will be something to do in the background
        self._hurry = hurry  # there is, now
        self._syncing = threading.Lock()
        self._unmarked: tuple[Committer, Synced] | None = None  # synced, not yet noted in the state record
        self._mark_at = 0.0
        self._unsynced_bytes = 0
        self._unsynced_since: float | None = None
        self.offset = -1  # rows before it were synced by this process

    @property
    def is_due(self) -> bool:
        """Whether rows were written that nobody synced yet."""
        return self._unsynced_since is not None

    def note(self, size: int) -> None:
        """So many bytes more were written."""
        self._unsynced_bytes += size
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()
            self._expect()
        elif self._unsynced_bytes >= self._settings.sync_bytes:
            self._hurry()

    def sync(self, offset: int | None = None) -> None:
        """Make rows durable on disk: up to the offset, or all there are. One sync serves all who wait."""
        with self._syncing:
            if offset is not None and self.offset >= offset:
                return
            with self._committing:
                committer = self._committer()
                committer.check_not_failed()
                if committer.waiting:
                    self._dump(committer)
                if offset is None:
                    with self._as_storage_error("reading"):
                        committer.view.refresh()
                else:
                    committer.room.expect_syncs()
                covered = committer.position()
                self._unsynced_bytes = 0
                self._unsynced_since = None
            try:
                committer.sync_data(covered[0])
            except OSError as error:
                with self._committing:
                    committer.mark_failed()
                raise storage_error(error, covered[0].data_path, "syncing") from error
            self.offset = covered[1]
            self._unmarked = committer, covered
            if offset is None or time.monotonic() >= self._mark_at:
                self._mark()
            else:
                self._expect()

    def mark(self) -> None:
        """Move the watermark to what was synced last."""
        if self._unmarked is not None:
            with self._syncing:
                self._mark()

    def _mark(self) -> None:
        """As `mark`, with `_syncing` held.

        An acknowledgement does not wait for it: what is synced above the watermark is
        good, it is only looked at again after a power loss.
        """
        unmarked, self._unmarked = self._unmarked, None
        if unmarked is None:
            return
        committer, covered = unmarked
        self._mark_at = time.monotonic() + _MARK_SECONDS
        with self._committing, self._as_storage_error("noting what was synced in"):
            if not committer.is_closed:
                committer.mark_synced(covered)

    def background(self, now: float) -> float | None:
        """The dumper's turn: sync what is due; seconds until there is more to do."""
        self.mark()
        since = self._unsynced_since
        if since is None:
            return None
        due = since + self._settings.sync_interval_seconds - now
        if due <= 0 or self._unsynced_bytes >= self._settings.sync_bytes:
            self.sync()
            return None
        return due

    @contextlib.contextmanager
    def _as_storage_error(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(error, self._root, doing) from error
