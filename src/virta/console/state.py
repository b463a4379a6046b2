"""What all parts of the console share: the log, who may do what, and the hub that looks at it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from virta.console.access import Access
from virta.console.hub import Hub


@dataclass(slots=True, kw_only=True)
class Console:
    """One console over one log."""

    log: Any
    address: str
    access: Access
    hub: Hub
    broker: Any = None
    development: bool = False
    connections: int = 0
    started: float = field(default_factory=time.time)

    @staticmethod
    def now_us() -> int:
        return time.time_ns() // 1000
