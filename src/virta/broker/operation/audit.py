"""Rows of `__events` for what the guard writes down, off the broker's loop.

Writing a row waits for files; the loop does not. Entries wait in a bounded queue for one thread;
beyond it they are counted and told in the broker's log, so a full disk stops nobody's work.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable

from virta.security.audit import AuditEntry
from virta.types import Event

# Some seconds' worth of refusals from many addresses.
_MOST_WAITING = 10_000
REFUSED, ADMINISTERED = "refused", "administered"

_log = logging.getLogger("virta.broker.audit")


def event_of(entry: AuditEntry) -> Event:
    """An entry as a row of `__events`."""
    return Event(
        kind=ADMINISTERED if entry.allowed else REFUSED,
        topic=entry.topic,
        actor=entry.who,
        details={
            "action": entry.action,
            "address": entry.address,
            "how": entry.how,
            "reason": entry.reason,
            **({"unwritten": entry.unwritten} if entry.unwritten else {}),
        },
    )


class AuditWriter:
    """Give it to the guard as `write_audit`."""

    def __init__(self, record: Callable[[Event], bool]) -> None:
        self._record = record
        self._waiting: queue.Queue[AuditEntry | None] = queue.Queue(_MOST_WAITING)
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="virta-audit", daemon=True)
        self._thread.start()

    def __call__(self, entry: AuditEntry) -> None:
        level = logging.INFO if entry.allowed else logging.WARNING
        fields = {
            "who": entry.who,
            "address": entry.address,
            "action": entry.action,
            "topic": entry.topic,
            "reason": entry.reason,
        }
        _log.log(level, ADMINISTERED if entry.allowed else REFUSED, extra={"fields": fields})
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self.lost += 1

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            if not self._record(event_of(entry)):
                self.lost += 1

    def close(self) -> None:
        """Write what waits, and stop."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=5)
        self._thread.join(timeout=5)
