"""What a broker counts while it works: plain numbers, raised where things happen, read elsewhere."""

from __future__ import annotations

import bisect
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass

from virta.errors import VirtaError

# Upper bounds of the histogram of answers, in seconds; what is slower falls into one more place.
LATENCY_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# An answer that took longer is kept, with who asked what: the newest of them.
SLOW_SECONDS = 0.1
_SLOW_KEPT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRequest:
    """One that took long: when it was answered, who asked, what, how long."""

    at: float
    connection: str
    type: int
    topic: str
    seconds: float


class Tally:
    """Numbers since the start."""

    __slots__ = (
        "connections",
        "errors",
        "failed_logins",
        "latency",
        "paused_seconds",
        "received_bytes",
        "refused",
        "requests",
        "seconds",
        "sent_bytes",
        "slow",
        "waited",
    )

    def __init__(self) -> None:
        self.connections = 0
        # Connections that got no place, or were ended for what they sent.
        self.refused = 0
        self.failed_logins = 0
        # Seconds for which connections were not read from, for the sake of a rate.
        self.paused_seconds = 0.0
        self.received_bytes = 0
        self.sent_bytes = 0
        # By the type of the frame.
        self.requests: Counter[int] = Counter()
        # By the error's code; "unexpected" are ours.
        self.errors: Counter[str] = Counter()
        # Seconds of requests that became a task of their own, by the type of the frame; how many.
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.waited: Counter[int] = Counter()
        # How often an answer took how long, by the type of the frame; not of waits that were asked for.
        self.latency: defaultdict[int, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_SECONDS) + 1))
        self.slow: deque[SlowRequest] = deque(maxlen=_SLOW_KEPT)

    def answered(self, connection: str, type_: int, topic: str, seconds: float) -> None:
        """A request was answered after so long."""
        self.latency[type_][bisect.bisect_left(LATENCY_SECONDS, seconds)] += 1
        if seconds > SLOW_SECONDS:
            self.slow.append(
                SlowRequest(at=time.time(), connection=connection, type=type_, topic=topic, seconds=seconds)
            )

    def failed(self, error: BaseException) -> None:
        self.errors[error.code if isinstance(error, VirtaError) else "unexpected"] += 1
