"""What to read, cut into tasks: decided from manifest and chain files, never from data.

A range is fixed to offsets per partition of the topic, then cut at blocks into slices of
about the same number of bytes. A slice carries the token it begins at, so that the
executor that reads it notices when history is not the one that was planned.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from virta.clock import SystemClock
from virta.errors import NotFound, UsageError
from virta.metadata.schemas import OFFSET, TIMESTAMP
from virta.requests import End, FromEnd, HashBound, Moment, Offset, TokenBound, parse_bound
from virta.spark.logs import files_of
from virta.spark.options import Bounds
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE
from virta.types import Token

# What is taken for a block where none can be seen.
_PIECE_BYTES = 1024 * 1024
# Below it a task of its own costs more than it gains.
_SMALLEST_TASK_BYTES = 8 * 1024 * 1024

_EARLIEST, _LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows of one partition: offsets from `start` up to `end`."""

    partition: int
    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One task's part of a span."""

    span: Span
    token: Token  # where it begins
    bytes: int = 0


# -- ranges -------------------------------------------------------------------------------------


def spans(topic: Any, starting: Bounds, ending: Bounds) -> list[Span]:
    """The rows between two bounds, per partition of the topic."""
    partitions = topic.partitions
    starts = _by_partition(starting, len(partitions), "starting", _EARLIEST)
    ends = _by_partition(ending, len(partitions), "ending", _LATEST)
    counts = [1 if isinstance(bounds, Mapping) else len(partitions) for bounds in (starting, ending)]
    return [
        _span(partition, starts[partition.number], ends[partition.number], counts) for partition in partitions
    ]


def _by_partition(bounds: Bounds, count: int, name: str, otherwise: str) -> dict[int, str]:
    if isinstance(bounds, str):
        return dict.fromkeys(range(count), bounds)
    strangers = sorted(set(bounds) - set(range(count)))
    if strangers:
        raise UsageError(
            f"the option {name!r} names partition {strangers[0]}, which the topic does not have",
            hint=f"its partitions are 0 to {count - 1}",
        )
    return {number: bounds.get(number, otherwise) for number in range(count)}


def _span(partition: Any, starting: str, ending: str, counts: list[int]) -> Span:
    """`counts`: for how many partitions each bound speaks."""
    oldest, newest = partition.start_offset, partition.next_offset
    start = _resolve(partition, starting, counts[0], oldest, newest)
    end = _resolve(partition, ending, counts[1], oldest, newest)
    if start < oldest:
        raise NotFound(
            f"offset {start} of partition {partition.number} is not here any more",
            hint=f"the oldest is {oldest}; .option('starting', 'earliest') begins there",
        )
    return Span(partition=partition.number, start=min(start, newest), end=min(end, newest))


def _resolve(partition: Any, text: str, count: int, oldest: int, newest: int) -> int:
    """A bound as an offset."""
    if text == _EARLIEST:
        return oldest
    if text == _LATEST:
        return newest
    bound = parse_bound(text, SystemClock().now_us())
    if isinstance(bound, End):
        return newest
    if isinstance(bound, Moment):
        return offset_at(partition, bound.us)
    if isinstance(bound, TokenBound):
        _check_one(partition, bound.token.partition)
        partition.stored.check_token(bound.token)  # looks whether it stands on this history
        return bound.token.offset
    if count > 1:
        raise UsageError(
            f"{text!r} is a position in one partition, and the topic has {count}",
            hint='give one for each: {"0": 100, "1": 250}',
        )
    if isinstance(bound, Offset):
        return bound.offset
    if isinstance(bound, FromEnd):
        return max(oldest, newest - bound.rows)
    assert isinstance(bound, HashBound)
    return int(partition.find(bound.hex).base_offset)


def offset_at(partition: Any, moment_us: int) -> int:
    """The offset of the first row stamped at the moment or later: times never go back."""
    token = partition.token(partition.stored.first_offset_at(moment_us))
    while True:
        blocks, following = partition.poll(token)
        for block in blocks:
            if block.header.max_timestamp >= moment_us:
                return _row_at(block.to_arrow(), moment_us)
        if following == token:
            return int(partition.next_offset)
        token = following


def _row_at(batch: pa.RecordBatch, moment_us: int) -> int:
    times = batch.column(1).view(pa.int64()).to_numpy(zero_copy_only=False)
    return int(batch.column(0)[int(np.searchsorted(times, moment_us))].as_py())


def _check_one(partition: Any, named: int) -> None:
    if named != partition.number:
        raise UsageError(
            f"the token is of partition {named}, and stands for partition {partition.number}",
            hint='give one for each: {"0": "t1…", "1": "t1…"}',
        )


# -- slices -------------------------------------------------------------------------------------


# Offsets where blocks end, and their bytes.
Measured = tuple[Any, Any]


def slices(
    topic: Any,
    wanted: list[Span],
    *,
    task_bytes: int,
    tasks: int | None = None,
    columns: Iterable[str] | None = None,
) -> list[Slice]:
    """The spans, cut at blocks into parts of about the same size.

    `tasks`: about so many, instead of as many as this machine has cores or the bytes ask for.
    `columns`: those that are read; a task is sized by what it hands to Spark.
    """
    spans = [span for span in wanted if not span.is_empty]
    known = [(span, measured(topic.partition(span.partition), span)) for span in spans]
    total = sum(int(sizes.sum()) for _, (_, sizes) in known)
    rows = sum(span.end - span.start for span in spans)
    share = 1.0 if columns is None or not total else _share(topic.schema, set(columns), total / rows)
    target = max(1, math.ceil(total / _task_count(total * share, task_bytes, tasks)))
    found: list[Slice] = []
    for span, (ends, sizes) in known:
        partition = topic.partition(span.partition)
        for part, size in _cut(span, ends, sizes, target):
            found.append(Slice(span=part, token=partition.token(part.start), bytes=size))
    return found


def _task_count(handed: float, task_bytes: int, tasks: int | None) -> int:
    """Few tasks, since each costs Spark's shuffles as much as a million rows do, and none left over."""
    count = math.ceil(handed / task_bytes)
    if tasks is not None:
        return max(count, tasks)
    cores = os.cpu_count() or 1
    if count < cores:
        return max(1, min(cores, math.ceil(handed / _SMALLEST_TASK_BYTES)))
    return math.ceil(count / cores) * cores


def _share(schema: pa.Schema, columns: set[str], row_bytes: float) -> float:
    """Which part of a row some columns are, by the widths that are known and even shares of the rest."""
    widths = {field.name: _width(field.type) for field in schema} | {OFFSET: 8.0, TIMESTAMP: 8.0}
    open_ended = [name for name, width in widths.items() if width is None]
    rest = max(0.0, row_bytes - sum(width for width in widths.values() if width is not None))
    each = rest / max(1, len(open_ended))
    chosen = sum(each if width is None else width for name, width in widths.items() if name in columns)
    return float(min(1.0, chosen / row_bytes))


def _width(kind: pa.DataType) -> float | None:
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return None


def whole(topic: Any, wanted: list[Span]) -> list[Slice]:
    """A slice for each partition, from its oldest row up to the span's end."""
    found = []
    for span in wanted:
        partition = topic.partition(span.partition)
        part = replace(span, start=partition.start_offset)
        if not part.is_empty:
            found.append(Slice(span=part, token=partition.token(part.start)))
    return found


def undivided(topic: Any, wanted: list[Span]) -> list[Slice]:
    """A slice for each span that has rows: for what chain files tell."""
    return [
        Slice(span=span, token=topic.partition(span.partition).token(span.start))
        for span in wanted
        if not span.is_empty
    ]


def measured(partition: Any, span: Span) -> Measured:
    """The blocks of a span, from chain files; over the wire, even parts of it by its mean row."""
    stored = files_of(partition)
    if stored is None:
        return _estimated(partition, span)
    ends, sizes = [np.empty(0, "int64")], [np.empty(0, "int64")]
    for stretch in stored.plan(span.start, span.end):
        first = stretch.start
        raw = stretch.segment.read_chain(first * HEADER_SIZE, (stretch.stop - first) * HEADER_SIZE)
        headers = chain.as_array(raw)
        with_rows = headers[headers["span"] > 0]
        ends.append(with_rows["base_offset"].astype("int64") + with_rows["span"])
        sizes.append(with_rows["length"].astype("int64"))
    return np.concatenate(ends), np.concatenate(sizes)


def _estimated(partition: Any, span: Span) -> Measured:
    stats = partition.stats()
    row = max(1, int(stats.bytes) // max(1, int(stats.rows)))
    step = max(1, _PIECE_BYTES // row)
    ends = np.append(np.arange(span.start + step, span.end, step, dtype="int64"), span.end)
    return ends, np.diff(ends, prepend=span.start) * row


def _cut(span: Span, ends: Any, sizes: Any, target: int) -> Iterator[tuple[Span, int]]:
    """The span in parts of about `target` bytes."""
    if not len(ends):
        return
    sums = np.cumsum(sizes)
    total = int(sums[-1])
    count = max(1, round(total / target))
    start, done = span.start, 0
    for number in range(1, count + 1):
        at = len(ends) - 1 if number == count else int(np.searchsorted(sums, total * number / count))
        end = span.end if at == len(ends) - 1 else int(ends[at])
        if end > start:
            yield replace(span, start=start, end=end), int(sums[at]) - done
            start, done = end, int(sums[at])
