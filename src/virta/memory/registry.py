"""What the handles of one process share: one object per partition, one memory bound per log.

`flock` is taken per open file, so two handles of one partition in one process would
not exclude each other; they share one object instead. Over a `fork` the child lets go
of all of them at once: its copies of the descriptors hold the parent's locks.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from virta.errors import VirtaError
from virta.memory.dumper import Dumper
from virta.memory.partition import Partition
from virta.memory.tail import Budget
from virta.settings import Settings

Key = tuple[Any, ...]


class _Shared:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.holders = 1


class Registry:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._partitions: dict[Key, _Shared] = {}
        self._logs: dict[Key, _Shared] = {}

    def log_memory(self, key: Key, settings: Settings) -> tuple[Budget, Dumper]:
        """The bound and the dumper of a log, shared by all its handles here."""
        with self._lock:
            shared = self._logs.get(key)
            if shared is not None:
                shared.holders += 1
            else:
                made = (Budget(settings.tail_bytes_per_log), Dumper(settings.dump_interval_ms))
                shared = self._logs[key] = _Shared(made)
            found: tuple[Budget, Dumper] = shared.value
            return found

    def release_log(self, key: Key) -> None:
        with self._lock:
            shared = self._logs.get(key)
            if shared is None:
                return
            shared.holders -= 1
            if shared.holders:
                return
            del self._logs[key]
        shared.value[1].stop()

    def partition(self, key: Key, make: Callable[[], Partition]) -> Partition:
        with self._lock:
            shared = self._partitions.get(key)
            if shared is not None:
                shared.holders += 1
            else:
                shared = self._partitions[key] = _Shared(make())
            found: Partition = shared.value
            return found

    def release_partition(self, key: Key) -> None:
        """Let go of a partition; the last holder writes and syncs what waits, and closes it."""
        with self._lock:
            shared = self._partitions.get(key)
            if shared is None:
                return
            shared.holders -= 1
            if shared.holders:
                return
            del self._partitions[key]
        shared.value.close()

    def close_all(self) -> None:
        """At the end of the process: rows that are only in memory are written."""
        with self._lock:
            partitions = [shared.value for shared in self._partitions.values()]
            self._partitions.clear()
        for partition in partitions:
            with contextlib.suppress(VirtaError):
                partition.close()

    def after_fork(self) -> None:
        partitions = [shared.value for shared in self._partitions.values()]
        self._lock = threading.RLock()
        self._partitions = {}
        self._logs = {}
        for partition in partitions:
            partition.after_fork()


registry = Registry()
atexit.register(registry.close_all)
os.register_at_fork(after_in_child=registry.after_fork)
