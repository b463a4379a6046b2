"""Waiting for rows without a thread each: one thread waits for all who leave a callback.

For event loops and servers, where thousands of readers wait and none may block. The
thread waits as any reader does (`wake`), and looks at the partitions that something
happened to, or at all of them once a second. It ends when nobody has waited for that
long. Callbacks run in it, so they only pass the word on.

Knows no event loop: `aio` brings the answer to where it is awaited.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from virta.memory.partition import Partition
from virta.memory.wake import BACKSTOP_SECONDS, Watch, process_wakeups

Answer = Callable[[BaseException | None], None]


class Waiter:
    """One who waits for a row at an offset; told once, with None or with what went wrong."""

    __slots__ = ("answer", "offset", "partition", "seen")

    def __init__(self, partition: Partition, offset: int, answer: Answer) -> None:
        self.partition = partition
        self.offset = offset
        self.answer = answer
        self.seen = -1  # what had happened to the partition when it was last looked at


class Waiters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Waiter] = set()
        self._bell = Watch(Path())
        self._thread: threading.Thread | None = None
        self._looked_at_all = 0.0

    def add(self, partition: Partition, offset: int, answer: Answer) -> Waiter:
        waiter = Waiter(partition, offset, answer)
        with self._lock:
            self._waiting.add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="virta-waiters", daemon=True)
                self._thread.start()
        process_wakeups().ring(self._bell)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Wait no longer; the answer may be on its way already."""
        with self._lock:
            self._waiting.discard(waiter)

    def _run(self) -> None:
        process_wakeups().wait(self._bell, self._turn, None)

    def _turn(self) -> bool:
        """Look where something happened; whether there is nobody left to look for."""
        now = time.monotonic()
        look_at_all = process_wakeups().failure is not None or now - self._looked_at_all >= BACKSTOP_SECONDS
        with self._lock:
            if not self._waiting and look_at_all:
                self._thread = None
                return True
            waiting = list(self._waiting)
        if look_at_all:
            self._looked_at_all = now
        # those who wait for the same row need one look between them
        places: dict[tuple[int, int], list[Waiter]] = {}
        for waiter in waiting:
            if look_at_all or waiter.seen != waiter.partition.happenings:
                places.setdefault((id(waiter.partition), waiter.offset), []).append(waiter)
        for together in places.values():
            self._look(together)
        return False

    def _look(self, together: list[Waiter]) -> None:
        partition, offset = together[0].partition, together[0].offset
        seen = partition.happenings
        error: BaseException | None = None
        try:
            there = partition.wait(offset, 0)
        except Exception as caught:
            there, error = True, caught
        for waiter in together:
            waiter.seen = seen
            if there:
                self._tell(waiter, error)

    def _tell(self, waiter: Waiter, error: BaseException | None) -> None:
        with self._lock:
            if waiter not in self._waiting:
                return
            self._waiting.discard(waiter)
        waiter.answer(error)


_process_waiters = Waiters()


def process_waiters() -> Waiters:
    """The one of this process."""
    return _process_waiters


def _after_fork() -> None:
    """Whoever waited in the parent is not here."""
    global _process_waiters
    _process_waiters = Waiters()


os.register_at_fork(after_in_child=_after_fork)
