"""Waking readers: inotify where there is one, else polling.

There is one inotify instance per process. Whoever waits first watches it for all who
wait (a thread of its own would cost a hand-over per wake); when it has what it wanted,
the next one takes over. A watch counts what happened to its partition; a reader arms
it, looks at the log once more, and only then waits. Once a second everyone looks by
themselves, should a notification have been lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

BACKSTOP_SECONDS = 1.0
# Without inotify: how long a reader sleeps between looks, from busy to idle.
_POLL_SECONDS = (0.001, 0.05)

_IN_MODIFY = 0x2
_IN_MOVED_TO = 0x80
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_IGNORED = 0x8000
_IN_Q_OVERFLOW = 0x4000
_IN_ONLYDIR = 0x01000000
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


class Watch:
    """What one partition's readers wait on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chain: Path | None = None
        self.sequence = 0
        self.numbers: set[int] = set()


class Counts(Protocol):
    """A number that changes whenever something happened."""

    @property
    def sequence(self) -> int: ...


class Wakeups:
    def __init__(self) -> None:
        self._leading = threading.Lock()
        self._followers = threading.Condition()
        self._waiting = 0
        self._table = threading.Lock()
        self._watches: dict[int, list[Watch]] = {}
        self._bell = -1
        self._inotify = -1
        self._libc: ctypes.CDLL | None = None
        self.failure: str | None = None
        self._start()

    def _start(self) -> None:
        if not sys.platform.startswith("linux"):
            self.failure = "this system has no inotify"
            return
        libc = self._libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if descriptor < 0:
            self.failure = f"inotify cannot be used: {os.strerror(ctypes.get_errno())}"
            return
        self._inotify = descriptor
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)

    # -- arming -------------------------------------------------------------------------------

    def arm(self, watch: Watch, chain: Path) -> None:
        """Watch the partition's directory and its active chain file."""
        if watch.chain is chain or self._inotify < 0 or watch.chain == chain:
            return
        with self._table:
            if watch.chain is None:
                mask = _IN_MOVED_TO | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
                self._add(watch, watch.directory, mask)
            self._add(watch, chain, _IN_MODIFY | _IN_DELETE_SELF)
            watch.chain = chain

    def _add(self, watch: Watch, path: Path, mask: int) -> None:
        assert self._libc is not None
        number = self._libc.inotify_add_watch(self._inotify, os.fsencode(path), mask)
        if number < 0:
            code = ctypes.get_errno()
            if code == errno.ENOSPC:
                self.failure = "no inotify watches are left (fs.inotify.max_user_watches)"
            return  # the backstop still looks once a second
        watch.numbers.add(number)
        holders = self._watches.setdefault(number, [])
        if watch not in holders:
            holders.append(watch)

    def forget(self, watch: Watch) -> None:
        with self._table:
            for number in watch.numbers:
                holders = self._watches.get(number, [])
                if watch in holders:
                    holders.remove(watch)
                if not holders:
                    self._watches.pop(number, None)
                    if self._libc is not None and self._inotify >= 0:
                        self._libc.inotify_rm_watch(self._inotify, number)
            watch.numbers.clear()
            watch.chain = None

    # -- waiting --------------------------------------------------------------------------------

    def wait(self, watch: Counts, look: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until `look` says yes; False when the deadline (monotonic) passes first."""
        pause = _POLL_SECONDS[0]
        while True:
            seen = watch.sequence
            if look():
                return True
            remaining = BACKSTOP_SECONDS
            if deadline is not None:
                remaining = min(remaining, deadline - time.monotonic())
                if remaining <= 0:
                    return False
            if self._inotify < 0:
                time.sleep(min(pause, remaining))
                pause = min(pause * 2, _POLL_SECONDS[1])
            elif self._leading.acquire(blocking=False):
                try:
                    if watch.sequence == seen:
                        self._pump(remaining)
                finally:
                    self._leading.release()
                    self._wake_followers()
            else:
                self._follow(watch, seen, remaining)

    def _follow(self, watch: Counts, seen: int, seconds: float) -> None:
        with self._followers:
            self._waiting += 1
            try:
                if watch.sequence == seen and self._leading.locked():
                    self._followers.wait(seconds)
            finally:
                self._waiting -= 1

    def _wake_followers(self) -> None:
        if self._waiting:
            with self._followers:
                self._followers.notify_all()

    def _pump(self, seconds: float) -> None:
        """Wait for events and count them where they belong."""
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            else:
                self._count_events()

    def _count_events(self) -> None:
        try:
            data = os.read(self._inotify, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        with self._table:
            while at < len(data):
                number, mask, _, name_length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + name_length
                if mask & _IN_Q_OVERFLOW:
                    for holders in self._watches.values():
                        _count(holders)
                    continue
                _count(self._watches.get(number, []))
                if mask & _IN_IGNORED:
                    for watch in self._watches.pop(number, []):
                        watch.numbers.discard(number)
        self._wake_followers()

    def ring(self, watch: Watch) -> None:
        """Something changed that no file shows: rows that are only in memory."""
        watch.sequence += 1
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)
        self._wake_followers()

    def close(self) -> None:
        for descriptor in (self._inotify, self._bell):
            if descriptor >= 0:
                os.close(descriptor)
        self._inotify = self._bell = -1


def _count(watches: list[Watch]) -> None:
    for watch in watches:
        watch.sequence += 1


_process_wakeups: Wakeups | None = None
_creating = threading.Lock()


def process_wakeups() -> Wakeups:
    """The one of this process."""
    global _process_wakeups
    with _creating:
        if _process_wakeups is None:
            _process_wakeups = Wakeups()
        return _process_wakeups


def _after_fork() -> None:
    """A child shares the parent's inotify queue and would steal its events: let go of it."""
    global _process_wakeups, _creating
    _creating = threading.Lock()
    if _process_wakeups is not None:
        _process_wakeups.close()
        _process_wakeups = None


os.register_at_fork(after_in_child=_after_fork)
