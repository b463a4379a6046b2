"""A campaign in rounds: each in a directory of its own, until the time is over or something is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch

# What a round takes beside its own time: to begin, and to be held against the notes.
_BESIDE_SECONDS = 3.0
_SHORTEST_SECONDS = 1.5


def in_rounds(
    report: Report, seconds: float, longest: float, one_round: Callable[[Path, int, float], None]
) -> Report:
    """One round at least; each is told its directory, its number and how long it may last."""
    deadline = time.monotonic() + seconds
    number = 0
    while number == 0 or (time.monotonic() + _BESIDE_SECONDS + 1 < deadline and report.ok):
        with scratch(f"virta-{report.name}") as root:
            left = deadline - time.monotonic() - _BESIDE_SECONDS
            one_round(root, number, max(_SHORTEST_SECONDS, min(longest, left)))
        number += 1
        report.counts["rounds"] += 1
    return report
