"""Windows of rows, by offset: the one way in which the console reads a partition.

A window is small, and the blocks it lies in may be large, so the newest decoded ones are kept: whoever
scrolls through a block does not read it a hundred times.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import NotFound

# A screen has some sixty rows, and a jump asks for two of them at once.
WINDOW_ROWS = 500
_KEPT_BYTES = 64 * 1024 * 1024
# Smaller blocks are read again sooner than they are found.
_KEPT_ROWS = 256


class Windows:
    """Reads windows; shared by all who look at a log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], pa.RecordBatch] = OrderedDict()
        self._bytes = 0

    def read(self, topic: Any, partition: int, start: int, stop: int) -> pa.Table | None:
        """The rows from `start` up to and without `stop` that are there; None when there are none."""
        place = topic.partition(partition)
        start, stop = max(start, place.start_offset), min(stop, place.next_offset)
        pieces: list[pa.RecordBatch] = []
        at = start
        while at < stop:
            kept = self._kept_at(topic.id, partition, at)
            batches = [kept] if kept is not None else self._fetched(topic, place, partition, at, stop)
            if not batches:
                break
            pieces += [_between(batch, start, stop) for batch in batches]
            at = max(at + 1, _end(batches[-1]))
        if not pieces:
            return None
        schema = pieces[-1].schema
        # what was kept before the topic got another column is read again
        if any(not piece.schema.equals(schema) for piece in pieces):
            self.forget(topic.id)
            return self.read(topic, partition, start, stop)
        return pa.Table.from_batches(pieces, schema=schema)

    def _fetched(self, topic: Any, place: Any, partition: int, start: int, stop: int) -> list[pa.RecordBatch]:
        batches = []
        for block in place.fetch_batch(start, stop):
            batch = block.to_arrow()
            if batch.num_rows:
                batches.append(batch)
            if batch.num_rows >= _KEPT_ROWS:
                self._keep((topic.id, partition, block.base_offset), batch)
        return batches

    def _kept_at(self, topic_id: str, partition: int, offset: int) -> pa.RecordBatch | None:
        with self._lock:
            for key, batch in reversed(self._kept.items()):
                if key[:2] == (topic_id, partition) and key[2] <= offset < _end(batch):
                    self._kept.move_to_end(key)
                    return batch
        return None

    def _keep(self, key: tuple[str, int, int], batch: pa.RecordBatch) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._bytes += batch.nbytes - (old.nbytes if old is not None else 0)
            self._kept[key] = batch
            # a handful of blocks is looked through by comparing, so their number is bounded too
            while len(self._kept) > 1 and (self._bytes > _KEPT_BYTES or len(self._kept) > 64):
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.nbytes

    def forget(self, topic_id: str) -> None:
        """Keep nothing of a topic: it has other columns now, or is gone."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == topic_id]:
                self._bytes -= self._kept.pop(key).nbytes


def _end(batch: pa.RecordBatch) -> int:
    return int(batch.column(0)[batch.num_rows - 1].as_py()) + 1


def _between(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    offsets = batch.column(0)
    if not batch.num_rows:
        return batch
    first, last = offsets[0].as_py(), offsets[batch.num_rows - 1].as_py()
    if start <= first and last < stop:
        return batch
    if last - first + 1 == batch.num_rows:
        low = max(0, start - first)
        return batch.slice(low, max(0, min(batch.num_rows, stop - first) - low))
    return batch.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop)))


def offset_at(topic: Any, partition: int, moment_us: int) -> int:
    """The first offset stamped then or later, found by bisection over blocks."""
    place = topic.partition(partition)
    low, high = place.start_offset, place.next_offset
    while low < high:
        middle = (low + high) // 2
        block = place.fetch(place.token(middle))
        if block.header.max_timestamp < moment_us:
            low = block.last_offset + 1
        elif block.header.min_timestamp >= moment_us:
            high = min(block.base_offset, middle)
        else:
            batch = block.to_arrow()
            stamps = batch.column(1).cast(pa.int64())
            found = pc.index(pc.greater_equal(stamps, moment_us), True).as_py()
            return int(batch.column(0)[found].as_py()) if found >= 0 else block.last_offset + 1
    return int(low)


def newest_us(topic: Any, partition: int) -> int | None:
    """When the newest row was appended; None when there is none."""
    place = topic.partition(partition)
    last = place.next_offset - 1
    if last < place.start_offset:
        return None
    try:
        return int(place.fetch(place.token(last)).header.max_timestamp)
    except NotFound:  # retention was faster
        return None
