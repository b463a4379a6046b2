"""What the Topics page shows, once a second while somebody looks: where each topic stands, how
fast it goes.

Everything comes from the ends of the partitions, never from data. Rates are over the last samples, so
a second in which nothing was asked does not make a rate of nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from virta.console.reading import newest_us
from virta.errors import VirtaError

KEPT_SAMPLES = 120
# A rate looks back this far: long enough to be calm, short enough to follow.
_RATE_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class _Track:
    """One topic over time: (seconds, rows, bytes)."""

    id: str
    seen: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES + 1))
    newest_at: int = -1
    newest_us: int | None = None


class Sampler:
    """Samples a log."""

    def __init__(self, log: Any, lags: Callable[[], Mapping[str, tuple[int, str]]]) -> None:
        self._log = log
        self._lags = lags
        self._tracks: dict[str, _Track] = {}

    def sample(self) -> list[dict[str, Any]]:
        """Every topic as of now."""
        names = self._log.topics()
        for gone in set(self._tracks) - set(names):
            del self._tracks[gone]
        lags = self._lags()
        return [self._topic(name, lags.get(name)) for name in names]

    def _topic(self, name: str, lag: tuple[int, str] | None) -> dict[str, Any]:
        try:
            topic = self._log.topic(name)
            nexts, stats = topic.next_offsets, topic.stats()
            track = self._track(name, topic.id)
            total = sum(nexts.values())
            track.seen.append((time.monotonic(), total, stats.bytes))
            if track.newest_at != total:
                moments = [newest_us(topic, number) for number in nexts]
                track.newest_us = max((each for each in moments if each is not None), default=None)
                track.newest_at = total
            return {
                "name": name,
                "kind": str(topic.kind),
                "partitions": len(nexts),
                "next": total,
                "rows": stats.rows,
                "bytes": stats.bytes,
                "newest": track.newest_us,
                "head": topic.heads[0] if len(nexts) == 1 else None,
                "locked": topic.config.locked,
                "lag": None if lag is None else lag[0],
                "group": None if lag is None else lag[1],
                **_rates(track.seen),
            }
        except VirtaError as error:
            return {"name": name, "error": error.message, "code": error.code}

    def _track(self, name: str, topic_id: str) -> _Track:
        found = self._tracks.get(name)
        if found is None or found.id != topic_id:  # a name that was made again is a new topic
            found = self._tracks[name] = _Track(id=topic_id)
        return found


def _rates(seen: deque[tuple[float, int, int]]) -> dict[str, Any]:
    now, rows, size = seen[-1]
    then, rows_then, size_then = next(one for one in seen if now - one[0] <= _RATE_SECONDS)
    seconds = now - then
    steps = [
        round(max(0, b[1] - a[1]) / max(b[0] - a[0], 0.001), 2)
        for a, b in zip(list(seen)[:-1], list(seen)[1:], strict=True)
    ]
    return {
        "rate": round(max(0, rows - rows_then) / seconds, 2) if seconds > 0 else None,
        "byte_rate": round(max(0, size - size_then) / seconds) if seconds > 0 else None,
        "spark": steps[-60:],
    }
