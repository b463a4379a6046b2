"""A topic as a source: ranges of its partitions, read block by block and checked on the way.

The position is a token for each partition, so history that changed behind it is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import virta
from virta import requests
from virta.errors import UsageError
from virta.metadata.schemas import OFFSET, TIMESTAMP
from virta.pipelines.sources.base import PARTITION, Origin, Plan, Position, Source, Split

# A piece for one worker: large enough to be worth sending, small enough to share out.
_SPLIT_ROWS = 250_000


class TopicSource(Source):
    """Rows of a topic from a place on, up to a place or for ever."""

    def __init__(self, *, log: str, topic: str, start: str | None = None, end: str | None = None) -> None:
        self._address = log
        self._name = self.known_as = topic
        self._start = start
        self._end = end
        self._log: Any = None
        self._pinned: dict[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None}

    @property
    def log(self) -> Any:
        if self._log is None:
            self._log = virta.open(self._address, create=False)
        return self._log

    @property
    def topic(self) -> Any:
        return self.log.topic(self._name)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def origin(self) -> Origin:
        topic = self.topic
        config = topic.config
        return Origin(
            name=topic.name,
            description=f"topic {topic.name} of {self._address}",
            keys=tuple(config.keys),
            kind=str(config.kind),
            partitions=config.partitions,
            details={"log": self._address, "topic": topic.name, "topic_id": topic.id},
        )

    def schema(self) -> pa.Schema:
        return self.topic.schema

    def pin(self) -> None:
        self._pinned = dict(self.topic.next_offsets)

    # -- what is new ----------------------------------------------------------------------------

    def plan(self, position: Position | None, most_rows: int) -> Plan | None:
        topic, left = self.topic, most_rows
        splits: list[Split] = []
        following: dict[str, Any] = {}
        partitions = [topic.partition(number) for number in range(topic.config.partitions)]
        for number, partition in enumerate(partitions):
            known = (position or {}).get(str(number))
            first = self._first(topic, partition) if known is None else self._checked(partition, known)
            last = max(first, min(self._last(topic, partition), first + left))
            left -= last - first
            following[str(number)] = {"offset": last, "token": str(partition.token(last))}
            splits += [
                {"partition": number, "from": start, "to": min(start + _SPLIT_ROWS, last)}
                for start in range(first, last, _SPLIT_ROWS)
            ]
        if not splits:
            return None
        return Plan(splits=tuple(splits), position=following, rows=most_rows - left)

    def _checked(self, partition: Any, known: Mapping[str, Any]) -> int:
        """Where the last batch ended; HistoryChanged where that place is no longer what it was."""
        token = requests.parse_token(known["token"])
        partition.poll(token, max_bytes=1)
        return token.offset

    def _first(self, topic: Any, partition: Any) -> int:
        if self._start is None:
            return int(partition.start_offset)
        return max(int(partition.start_offset), self._place(topic, partition, self._start))

    def _last(self, topic: Any, partition: Any) -> int:
        newest = int(partition.next_offset)
        if self._pinned is not None:
            newest = min(newest, self._pinned.get(partition.number, newest))
        return newest if self._end is None else min(newest, self._place(topic, partition, self._end))

    def _place(self, topic: Any, partition: Any, text: str) -> int:
        """An offset, rows before the end, a moment or a token, as in a range."""
        bound = requests.parse_bound(text, time.time_ns() // 1000)
        match bound:
            case requests.Offset(offset=offset):
                return min(offset, int(partition.next_offset))
            case requests.FromEnd(rows=rows):
                return max(int(partition.start_offset), int(partition.next_offset) - rows)
            case requests.TokenBound(token=token):
                return token.offset if token.partition == partition.number else int(partition.start_offset)
            case requests.End():
                return int(partition.next_offset)
            case requests.Moment(us=moment):
                return _offset_at(partition, moment)
            case requests.HashBound(hex=digits):
                block = partition.find(digits)
                return int(block.last_offset) + 1 if text == self._end else int(block.base_offset)
        raise UsageError(f"{text!r} is no place in topic {topic.name!r}")

    # -- reading ----------------------------------------------------------------------------------

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        partition = self.topic.partition(split["partition"])
        start, end = split["from"], split["to"]
        token = partition.token(start)
        while token.offset < end:
            blocks, token = partition.poll(token)
            for block in blocks:
                if block.base_offset < end:
                    batch = _cut(block.to_arrow(), start, end)
                    if batch.num_rows:
                        yield _with_partition(batch, split["partition"])


def _cut(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = batch.column(OFFSET).to_numpy()
    first, last = offsets.searchsorted([start, end])
    return batch.slice(first, last - first)


def _with_partition(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    numbers = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
    return pa.RecordBatch.from_arrays(
        [numbers, *batch.columns], schema=pa.schema([pa.field(PARTITION, pa.int32(), False), *batch.schema])
    )


def _offset_at(partition: Any, moment_us: int) -> int:
    """The first offset stamped then or later, by bisection over tokens: one block is looked at each time."""
    low, high = int(partition.start_offset), int(partition.next_offset)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment_us)
    while low < high:
        middle = (low + high) // 2
        blocks, _ = partition.poll(partition.token(middle), max_bytes=1)
        if not blocks:
            high = middle
            continue
        stamps = blocks[0].to_arrow()
        at = _before(stamps, moment)
        if at == 0:
            high = min(middle, blocks[0].base_offset)
        elif at == stamps.num_rows:
            low = blocks[0].last_offset + 1
        else:
            return int(stamps.column(OFFSET)[at].as_py())
    return low


def _before(rows: pa.RecordBatch, moment: datetime) -> int:
    stamps = rows.column(TIMESTAMP)
    return int(pc.sum(pc.less(stamps, pa.scalar(moment, stamps.type))).as_py() or 0)
