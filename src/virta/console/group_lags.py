"""Groups over time: how far each is behind, and whether it gets better. Sampled for all who look.

A trend is what the last samples say: rows a second by which the lag grows or shrinks, and
from that when it will be gone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from virta.errors import UnavailableError, VirtaError

LOOK_SECONDS = 1.0
# Looking takes at most this share of the time: many groups are looked at less often.
_SHARE = 0.1
_TREND_SECONDS = 15.0
_KEPT = 120


@dataclass(slots=True)
class _Track:
    """One group on one topic over time: (seconds, rows behind, rows committed)."""

    seen: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=_KEPT))


class GroupSampler:
    """All groups of a log, and how their lags move."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._found: list[dict[str, Any]] = []
        self._next_look = 0.0
        self._looking = threading.Lock()

    def sample(self) -> list[dict[str, Any]]:
        """As of now, or of a moment ago where looking is expensive. Runs in a thread."""
        with self._looking:
            begun = time.monotonic()
            if begun >= self._next_look:
                self._found = self._look(begun)
                took = time.monotonic() - begun
                self._next_look = begun + max(LOOK_SECONDS * 0.9, took / _SHARE)
            return self._found

    def _look(self, now: float) -> list[dict[str, Any]]:
        groups = groups_of(self._log)
        names = {(each.group, each.topic) for each in groups}
        for gone in set(self._tracks) - names:
            del self._tracks[gone]
        return [self._group(each, now) for each in groups]

    def _group(self, found: Any, now: float) -> dict[str, Any]:
        track = self._tracks.setdefault((found.group, found.topic), _Track())
        committed = sum(part.offset or 0 for part in found.partitions)
        track.seen.append((now, found.lag.rows, committed))
        growth, reading = _trend(track.seen)
        return {
            "group": found.group,
            "topic": found.topic,
            "epoch": found.epoch,
            "rows": found.lag.rows,
            "seconds": found.lag.seconds,
            "growth": growth,
            "reading": reading,
            "clear": _seconds_to_clear(found.lag.rows, growth),
            "lags": [rows for _, rows, _ in track.seen][-60:],
            "members": [
                {
                    "member": member.member,
                    "instance": member.instance,
                    "partitions": list(member.partitions),
                    "expires": member.expires_in_seconds,
                }
                for member in found.members
            ],
            "partitions": [
                {
                    "partition": part.partition,
                    "offset": part.offset,
                    "next": part.next_offset,
                    "rows": part.lag.rows,
                    "seconds": part.lag.seconds,
                    "owner": part.owner,
                }
                for part in found.partitions
            ],
        }

    def worst(self) -> dict[str, tuple[int, str]]:
        """By topic: the rows by which its slowest group is behind, and which that is."""
        worst: dict[str, tuple[int, str]] = {}
        for each in self.sample():
            known = worst.get(each["topic"])
            if known is None or each["rows"] > known[0]:
                worst[each["topic"]] = each["rows"], each["group"]
        return worst


def _trend(seen: deque[tuple[float, int, int]]) -> tuple[float | None, float | None]:
    """Rows a second: by which the lag grows, and which the group reads."""
    now, rows, committed = seen[-1]
    then, rows_then, committed_then = next(one for one in seen if now - one[0] <= _TREND_SECONDS)
    if now - then < LOOK_SECONDS / 2:
        return None, None
    return round((rows - rows_then) / (now - then), 2), round((committed - committed_then) / (now - then), 2)


def _seconds_to_clear(rows: int, growth: float | None) -> float | None:
    if not rows:
        return 0.0
    return round(rows / -growth, 1) if growth is not None and growth < 0 else None


def groups_of(log: Any) -> list[Any]:
    """All groups, where the log can tell of them."""
    if not hasattr(log, "groups"):
        raise UnavailableError(
            "this console cannot ask a broker about groups",
            hint="open the console of the broker itself: virta serve ./events --console",
        )
    return list(log.groups())


def worst_lags(sampler: GroupSampler) -> dict[str, tuple[int, str]]:
    """For the Topics page, which goes on where groups cannot be asked about."""
    try:
        return sampler.worst()
    except VirtaError:
        return {}
