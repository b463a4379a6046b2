"""The word between reading on and waiting for more.

What goes on for ever is written once, as steps: a step is something read, or `Idle`.
Whoever drives the steps decides how to wait (a thread, an event loop) and for how long.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """All that is there has been read; the next row will have this offset."""

    offset: int
