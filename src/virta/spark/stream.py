"""A topic as a stream: where it stands, how far the next batch goes, which tasks read it.

Spark keeps the positions (see `positions`) in its checkpoint and asks for the next one, with
a limit; a partition that was added meanwhile begins at its oldest row. What is read is
fixed by two positions, so a batch that is tried again reads the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from virta.errors import HistoryChanged, UsageError
from virta.spark import plan
from virta.spark.logs import topic_at
from virta.spark.options import Reading
from virta.spark.plan import Span
from virta.spark.positions import Positions, from_json, share
from virta.spark.task import Task, read_task
from virta.spark.telling import plainly
from virta.types import Token


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source."""

    def __init__(self, wanted: Reading, schema: StructType) -> None:
        if wanted.ending != "latest":
            raise UsageError(
                "a stream has no end",
                hint="leave 'ending' out; trigger(availableNow=True) stops at what is there",
            )
        self._reading = wanted
        self._schema = schema
        self._target: Mapping[int, int] | None = None
        self._news: Positions | None = None

    @property
    def _topic(self) -> Any:
        return topic_at(self._reading.place)

    # -- positions --------------------------------------------------------------------------

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        spans = plan.spans(self._topic, self._reading.starting, "latest")
        return self._positions({span.partition: span.start for span in spans}, None).to_json()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        topic, begin = self._topic, from_json(start)
        there = {part.number: (self._oldest(part, begin), part.next_offset) for part in topic.partitions}
        self._news = self._positions({number: news for number, (_, news) in there.items()}, begin)
        ends = {}
        for number, (at, news) in there.items():
            target = news if self._target is None else min(news, self._target.get(number, at))
            ends[number] = max(at, target)
        starts = {number: at for number, (at, _) in there.items()}
        return self._positions(self._limited(starts, ends, limit), begin).to_json()

    def _oldest(self, partition: Any, begin: Positions) -> int:
        """Where a partition goes on; rows that are gone are skipped where that was asked for."""
        oldest = int(partition.start_offset)
        at = begin.offset(partition.number, oldest)
        if at < oldest and not self._reading.skip_gaps:
            raise HistoryChanged(
                f"the stream stands at offset {at}, and rows before {oldest} were removed by retention",
                topic=self._reading.place.topic,
                partition=partition.number,
                offset=at,
                hint=".option('gaps', 'skip') goes on with what is there",
            )
        return max(at, oldest)

    def _positions(self, offsets: Mapping[int, int], known: Positions | None) -> Positions:
        tokens = {}
        for number, offset in offsets.items():
            token: Token | None = None if known is None else known.tokens.get(number)
            if token is None or token.offset != offset:
                token = self._topic.partition(number).token(offset)
            tokens[number] = token
        return Positions(tokens=tokens)

    def _limited(
        self, starts: Mapping[int, int], ends: Mapping[int, int], limit: ReadLimit
    ) -> dict[int, int]:
        rows, size = self._reading.max_rows, self._reading.max_bytes
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        if isinstance(limit, ReadAllAvailable):
            rows = size = None
        found = dict(ends)
        if rows is not None:
            backlog = {number: found[number] - starts[number] for number in found}
            found = {number: starts[number] + more for number, more in share(backlog, rows).items()}
        if size is not None:
            found = self._within(starts, found, size)
        return found

    def _within(self, starts: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, int]:
        """Ends at blocks, so that all that is read has about `most` bytes, and never nothing."""
        known = {
            number: plan.measured(
                self._topic.partition(number), Span(partition=number, start=at, end=ends[number])
            )
            for number, at in starts.items()
            if ends[number] > at
        }
        sizes = {number: int(lengths.sum()) for number, (_, lengths) in known.items()}
        found = dict(starts)
        for number, budget in share(sizes, most).items():
            stops, lengths = known[number]
            fitting = int(np.searchsorted(np.cumsum(lengths), budget, side="right"))
            if fitting:
                found[number] = min(ends[number], int(stops[fitting - 1]))
        if found == dict(starts) and sizes:
            number = max(sizes, key=lambda number: sizes[number])
            found[number] = min(ends[number], int(known[number][0][0]))
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._reading.max_rows is not None:
            return ReadMaxRows(self._reading.max_rows)
        if self._reading.max_bytes is not None:
            return ReadMaxBytes(self._reading.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._news is None else self._news.to_json()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {part.number: part.next_offset for part in self._topic.partitions}

    # -- a batch ----------------------------------------------------------------------------

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        topic, begin, until = self._topic, from_json(start), from_json(end)
        spans = []
        for number, token in sorted(until.tokens.items()):
            partition = topic.partition(number)
            at = self._oldest(partition, begin)
            if number in begin.tokens and at == begin.tokens[number].offset:
                partition.stored.check_token(begin.tokens[number])  # raises when history is another
            spans.append(Span(partition=number, start=at, end=token.offset))
            partition.stored.check_token(token)
        wanted = self._reading
        found = plan.slices(
            topic, spans, task_bytes=wanted.task_bytes, tasks=wanted.tasks, columns=self._schema.names
        )
        return [Task(part) for part in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._reading, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the position is Spark's to keep, and rows stay for others."""

    def stop(self) -> None:
        """Nothing is held but the log, which the next query may use."""
