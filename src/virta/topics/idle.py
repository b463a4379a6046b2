"""The word between reading on and waiting for more.

What goes on for ever is written once, as steps: a step is something read, or `Idle`.
Whoever drives the steps decides how to wait (a thread, an event loop) and for how long.
"""

from __future__ import annotations

from dataclasses import dataclass

from virta.memory.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """All that is there has been read; the next row will have one of these offsets in its partition."""

    places: tuple[tuple[Partition, int], ...]

    @property
    def offset(self) -> int:
        return self.places[0][1]
