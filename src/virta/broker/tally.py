"""What a broker counts while it works: plain numbers, raised where things happen, read elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict

from virta.errors import VirtaError


class Tally:
    """Numbers since the start."""

    __slots__ = (
        "connections",
        "errors",
        "failed_logins",
        "paused_seconds",
        "received_bytes",
        "refused",
        "requests",
        "seconds",
        "sent_bytes",
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

    def failed(self, error: BaseException) -> None:
        self.errors[error.code if isinstance(error, VirtaError) else "unexpected"] += 1
