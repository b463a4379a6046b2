"""What is written down of who did what: administrative acts and refusals.

A client that is refused a thousand times a second is not to fill a topic with it: refusals of one
address beyond a small rate are counted, and the count goes with the next one that is written.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from virta.security.limits import TokenBucket
from virta.security.redact import redact_text

REFUSALS_AT_ONCE = 20
REFUSALS_PER_SECOND = 1.0
# Addresses remembered; beyond it the one refused longest ago is forgotten, with its count.
_MOST_ADDRESSES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that somebody did or was refused."""

    at_us: int
    who: str
    how: str
    address: str
    action: str
    topic: str | None
    allowed: bool
    reason: str
    # Refusals of this address that were not written since the one before.
    unwritten: int = 0


class Audit:
    """Hands entries on, refusals at a bounded rate."""

    def __init__(self, write: Callable[[AuditEntry], None]) -> None:
        self._write = write
        self._addresses: OrderedDict[str, tuple[TokenBucket, list[int]]] = OrderedDict()

    def add(self, entry: AuditEntry, now: float) -> None:
        entry = dataclasses.replace(entry, reason=redact_text(entry.reason))
        if entry.allowed:
            self._write(entry)
            return
        bucket, unwritten = self._of(entry.address)
        if not bucket.try_take(1, now):
            unwritten[0] += 1
            return
        entry = dataclasses.replace(entry, unwritten=unwritten[0])
        unwritten[0] = 0
        self._write(entry)

    def _of(self, address: str) -> tuple[TokenBucket, list[int]]:
        found = self._addresses.pop(address, None)
        found = found or (TokenBucket(REFUSALS_PER_SECOND, burst=REFUSALS_AT_ONCE), [0])
        self._addresses[address] = found
        if len(self._addresses) > _MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        return found
