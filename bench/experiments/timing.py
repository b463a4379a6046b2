"""How the experiments time a call: the mean of many, the best of several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 7
ROUND_SECONDS = 0.05


def best_us(call: Callable[[], object]) -> float:
    """Microseconds per call."""
    call()
    started = time.perf_counter()
    call()
    calls = max(1, int(ROUND_SECONDS / max(1e-7, time.perf_counter() - started)))
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - started) / calls)
    return best * 1e6
