"""The dumper: one background thread per log and process that writes and syncs what is due.

It sleeps until a partition expects it: a few milliseconds for rows that are only in
memory, a second for the synced watermark. A failure is kept by the partition and told
to its next caller; here it only ends that partition's turn.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virta.memory.partition import Partition

_log = logging.getLogger("virta.dumper")


class Dumper:
    def __init__(self, interval_ms: int) -> None:
        self._interval = interval_ms / 1000
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._expecting: dict[int, Partition] = {}
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._stop = threading.Event()

    def expect(self, partition: Partition) -> None:
        """There will be something to do for this partition soon."""
        with self._lock:
            self._expecting[id(partition)] = partition
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="virta-dumper", daemon=True)
                self._thread.start()
        self._bell.set()

    def hurry(self) -> None:
        self._bell.set()

    def _run(self) -> None:
        pause: float | None = None
        while True:
            self._bell.wait(pause)
            self._bell.clear()
            if self._stop.wait(self._interval):  # what comes together is done together
                return
            pause = self._turn()

    def _turn(self) -> float | None:
        """One round over all that expect it; seconds until the next one."""
        with self._lock:
            partitions = list(self._expecting.items())
            self._expecting.clear()
        soonest: float | None = None
        for key, partition in partitions:
            try:
                due = partition.background(time.monotonic())
            except Exception as error:  # the other partitions still need this thread
                _log.error("%s: %s", partition.paths.root, error)
                continue
            if due is not None:
                with self._lock:
                    self._expecting.setdefault(key, partition)
                soonest = due if soonest is None else min(soonest, due)
        if soonest is None:
            return None
        return max(soonest, 0.001)

    def stop(self) -> None:
        self._stop.set()
        self._bell.set()
        if self._thread is not None and self._process == os.getpid():
            self._thread.join()
