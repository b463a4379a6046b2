"""Time, passed in so that tests and simulations can hold it still or bend it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall time in microseconds since 1970, UTC. May step back."""
        ...

    def monotonic(self) -> float:
        """Seconds that only rise."""
        ...


class SystemClock:
    monotonic = staticmethod(time.monotonic)

    def now_us(self) -> int:
        return time.time_ns() // 1000
