"""Waiting for several partitions at once.

Partitions in a directory wait for what the system tells of their files. Those of a broker wait
in ways of their own: `wait_with_others` says how partitions of one kind do it together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from virta.memory.wake import Watch, process_wakeups

if TYPE_CHECKING:
    from virta.memory.partition import Partition


class Together:
    """What happened to several partitions, as one number that changes with each."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    @property
    def sequence(self) -> int:
        return sum(watch.sequence for watch in self._watches)


def wait_for_any(places: Sequence[tuple[Any, int]], timeout: float | None) -> bool:
    """Wait until one of these partitions has a row at its offset; False when the time is over."""
    if len(places) == 1:
        return bool(places[0][0].wait(places[0][1], timeout))
    return bool(places[0][0].wait_with_others(places, timeout))


def wait_for_files(places: Sequence[tuple[Partition, int]], timeout: float | None) -> bool:
    """As `wait_for_any`, for partitions in a directory."""
    deadline = None if timeout is None else time.monotonic() + timeout
    together = Together([partition.watch for partition, _ in places])

    def look() -> bool:
        found = [partition.has_row(offset) for partition, offset in places]  # all of them are armed
        return any(found)

    return process_wakeups().wait(together, look, deadline)
