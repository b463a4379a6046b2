"""What to read, cut into tasks: decided from manifest and chain files, never from data.

A range is fixed to offsets per partition of the topic, then cut at blocks into slices of
about the same number of bytes. A slice carries the token it begins at, so that the
executor that reads it notices when history is not the one that was planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from virta.clock import SystemClock
from virta.errors import NotFound, UsageError
from virta.requests import End, FromEnd, HashBound, Moment, Offset, TokenBound, parse_bound
from virta.spark.options import Bounds
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE
from virta.types import Token

_EARLIEST, _LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows of one partition: offsets from `start` up to `end`, and moments where asked for."""

    partition: int
    start: int
    end: int
    since_us: int | None = None
    until_us: int | None = None

    @property
    def is_empty(self) -> bool:
        if self.since_us is not None and self.until_us is not None and self.since_us >= self.until_us:
            return True
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
    return [
        _span(partition, starts[partition.number], ends[partition.number], len(partitions))
        for partition in partitions
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


def _span(partition: Any, starting: str, ending: str, count: int) -> Span:
    oldest, newest = partition.start_offset, partition.next_offset
    start, since = _resolve(partition, starting, count, oldest, newest)
    end, until = _resolve(partition, ending, count, oldest, newest)
    if start < oldest and since is None:
        raise NotFound(
            f"offset {start} of partition {partition.number} is not here any more",
            hint=f"the oldest is {oldest}; .option('starting', 'earliest') begins there",
        )
    return Span(
        partition=partition.number,
        start=oldest if since is not None else min(max(start, oldest), newest),
        end=min(end, newest),
        since_us=since,
        until_us=until,
    )


def _resolve(partition: Any, text: str, count: int, oldest: int, newest: int) -> tuple[int, int | None]:
    """A bound as an offset, and as a moment where it was one: then the offset is an outer one."""
    if text == _EARLIEST:
        return oldest, None
    if text == _LATEST:
        return newest, None
    bound = parse_bound(text, SystemClock().now_us())
    if isinstance(bound, End):
        return newest, None
    if isinstance(bound, Moment):
        return newest, bound.us
    if isinstance(bound, TokenBound):
        _check_one(partition, count, bound.token.partition)
        partition.poll(bound.token, max_bytes=1)  # looks whether it stands on this history
        return bound.token.offset, None
    if count > 1:
        raise UsageError(
            f"{text!r} is a position in one partition, and the topic has {count}",
            hint='give one for each: {"0": 100, "1": 250}',
        )
    if isinstance(bound, Offset):
        return bound.offset, None
    if isinstance(bound, FromEnd):
        return max(oldest, newest - bound.rows), None
    assert isinstance(bound, HashBound)
    return partition.find(bound.hex).base_offset, None


def _check_one(partition: Any, count: int, named: int) -> None:
    if named != partition.number:
        raise UsageError(
            f"the token is of partition {named}, and partition {partition.number} has none"
            if count > 1
            else f"the token is of partition {named}, which the topic does not have",
            hint='give one for each: {"0": "t1…", "1": "t1…"}' if count > 1 else None,
        )


def narrowed(span: Span, *, start: int | None = None, end: int | None = None) -> Span:
    """The span with offsets from `start` on and before `end` only."""
    return replace(
        span,
        start=span.start if start is None else max(span.start, start),
        end=span.end if end is None else min(span.end, end),
    )


# -- slices -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Blocks that lie one behind the other, by their ends."""

    ends: Any  # offsets
    sizes: Any  # bytes


def slices(topic: Any, wanted: list[Span], *, task_bytes: int, tasks: int = 1) -> list[Slice]:
    """The spans, cut at blocks into parts of about the same size."""
    measured = [
        (span, _measure(topic.partition(span.partition), span)) for span in wanted if not span.is_empty
    ]
    total = sum(int(piece.sizes.sum()) for _, pieces in measured for piece in pieces)
    target = max(1, min(task_bytes, math.ceil(total / max(1, tasks))))
    found: list[Slice] = []
    for span, pieces in measured:
        partition = topic.partition(span.partition)
        for part, size in _cut(span, pieces, target):
            found.append(Slice(span=part, token=_token(partition, part.start), bytes=size))
    return found


def _token(partition: Any, offset: int) -> Token:
    token: Token = partition.token(offset)
    return token


def _measure(partition: Any, span: Span) -> list[_Piece]:
    """The blocks of a span, from chain files; over the wire the partition is one piece."""
    stored = getattr(partition, "stored", None)
    if stored is None:
        size = _bytes_per_row(partition) * (span.end - span.start)
        return [_Piece(ends=np.array([span.end]), sizes=np.array([max(1, int(size))]))]
    found = []
    for stretch in stored.plan(span.start, span.end):
        first = stretch.start
        raw = stretch.segment.read_chain(first * HEADER_SIZE, (stretch.stop - first) * HEADER_SIZE)
        headers = chain.as_array(raw)
        ends = headers["base_offset"].astype("int64") + headers["span"]
        keep = headers["span"] > 0
        if span.since_us is not None:
            keep &= headers["max_timestamp"] >= span.since_us
        if span.until_us is not None:
            keep &= headers["min_timestamp"] < span.until_us
        found.append(_Piece(ends=ends, sizes=np.where(keep, headers["length"].astype("int64"), 0)))
    return found


def _bytes_per_row(partition: Any) -> float:
    stats = partition.stats()
    return int(stats.bytes) / max(1, int(stats.rows))


def _cut(span: Span, pieces: list[_Piece], target: int) -> Iterator[tuple[Span, int]]:
    """The span in parts of about `target` bytes; parts without any are left out."""
    if not pieces:
        return
    ends = np.concatenate([piece.ends for piece in pieces])
    sizes = np.concatenate([piece.sizes for piece in pieces])
    wanted = np.flatnonzero(sizes)
    if not len(wanted):
        return
    first, last = int(wanted[0]), int(wanted[-1])
    start = max(span.start, int(ends[first - 1])) if first else span.start
    sums = np.cumsum(sizes)
    total = int(sums[-1])
    count = max(1, round(total / target))
    done = 0
    for number in range(1, count + 1):
        at = last if number == count else int(np.searchsorted(sums, total * number / count))
        end = min(span.end, int(ends[at]))
        if end > start:
            yield replace(span, start=start, end=end), int(sums[at]) - done
            start, done = end, int(sums[at])
