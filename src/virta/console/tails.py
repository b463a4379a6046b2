"""The end of each partition somebody watches, read once for all who watch it.

A tick looks how far the partition is. What came is encoded once, as JSON text, and kept for a moment;
each watcher takes from there what is new to it. When more came in a tick than a browser can show, only
the newest rows are read: the others are counted, and can be scrolled to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from virta.console.reading import Windows
from virta.console.values import dump, encode_rows

# What one message may bring: more than a few screens nobody reads in a tick.
MOST_ROWS = 500
# Kept for watchers that are a few ticks behind: enough for a pause of the network.
_KEPT_ROWS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a watcher is told: the rows that came, as JSON texts, and where the partition stands."""

    rows: list[str]
    start: int
    next: int
    skipped: int
    version: int


class Tail:
    """The newest rows of one partition."""

    def __init__(self, log: Any, windows: Windows, topic: str, partition: int) -> None:
        self._log = log
        self._windows = windows
        self._name = topic
        self._partition = partition
        self._rows: deque[tuple[int, str]] = deque(maxlen=_KEPT_ROWS)
        self.watchers = 0
        self.start = self.next = 0
        self.version = 0
        self.id = ""
        self._first = True

    def tick(self) -> bool:
        """Look at the partition; whether anything is new. Runs in a thread."""
        topic = self._log.topic(self._name)
        place = topic.partition(self._partition)
        start, end, version = place.start_offset, place.next_offset, topic.version
        changed = (start, end, version, topic.id) != (self.start, self.next, self.version, self.id)
        if not changed and not self._first:
            return False
        begin = max(start, end - MOST_ROWS)
        if version == self.version and topic.id == self.id and self.next <= end and not self._first:
            begin = max(begin, self.next)
        else:  # other columns, another topic, or rows that a crash took
            self._rows.clear()
            self._windows.forget(topic.id)
        if begin < end:
            self._take(topic, begin, end)
        self.start, self.next, self.version, self.id = start, end, version, topic.id
        self._first = False
        return True

    def _take(self, topic: Any, start: int, end: int) -> None:
        if self._rows and self._rows[-1][0] + 1 < start:
            self._rows.clear()  # a hole would look like rows that were removed
        table = self._windows.read(topic, self._partition, start, end)
        if table is None:
            return
        for batch in table.to_batches():
            for row in encode_rows(batch):
                self._rows.append((row[0], dump(row)))

    def has_ready(self, offset: int) -> bool:
        """Whether `since` reads nothing."""
        wanted = max(offset, self.start, self.next - MOST_ROWS)
        return wanted >= self.next or (bool(self._rows) and self._rows[0][0] <= wanted)

    def since(self, offset: int) -> News:
        """What is new to somebody who has seen the rows before `offset`."""
        wanted = max(offset, self.start, self.next - MOST_ROWS)
        if wanted >= self.next:
            rows: list[str] = []
        elif self._rows and self._rows[0][0] <= wanted:
            rows = [text for at, text in self._rows if wanted <= at < self.next]
        else:
            rows = self._read(wanted, self.next)
        return News(
            rows=rows,
            start=self.start,
            next=self.next,
            skipped=max(0, wanted - max(offset, self.start)),
            version=self.version,
        )

    def _read(self, start: int, end: int) -> list[str]:
        table = self._windows.read(self._log.topic(self._name), self._partition, start, end)
        if table is None:
            return []
        return [dump(row) for batch in table.to_batches() for row in encode_rows(batch)]
