"""`topic@from:to` as people type it, into what the library reads.

A hash stands for its block: as a start its first row, as an end its last row (a head
noted earlier names all history up to and including its block).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

import virta
from virta import requests
from virta.cli.invocation import Invocation
from virta.errors import NotFound, UsageError

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.partition import Partition
    from virta.topics.read import Selection
    from virta.topics.topic import Topic

RANGE_HELP = (
    "TOPIC@FROM:TO, either side left out: 100 an offset, -10 rows before the end, "
    "-15m or 2026-11-18T10:00Z a moment, #3f9c1a a block, end the end as of now."
)


def partition_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of a topic with several partitions, one."""
    return click.option(
        "-p", "--partition", type=click.IntRange(0), metavar="N", help="Only this partition of the topic."
    )(function)


def the_partition(topic: Topic, partition: int | None) -> Partition:
    """The partition that was named, or the only one there is."""
    if partition is None and topic.config.partitions != 1:
        raise UsageError(
            f'topic "{topic.name}" has {topic.config.partitions} partitions', hint="name one: --partition N"
        )
    return topic.partition(partition or 0)


def open_log(invocation: Invocation, *, create: bool = False) -> Log:
    """The log this invocation means; only writing makes one."""
    return virta.open(invocation.log, create=create)


def parse(text: str) -> requests.RangeRequest:
    return requests.parse_range(text, time.time_ns() // 1000)


def find(log: Log, text: str) -> tuple[Topic, requests.RangeRequest]:
    """The topic and the range; a topic whose name holds an `@` is found by its whole name too."""
    try:
        request = parse(text)
    except UsageError:
        return _named_whole(log, text)
    try:
        return log.topic(request.topic), request
    except NotFound:
        if request.topic != text and text in log.topics():
            return log.topic(text), requests.RangeRequest(topic=text)
        raise


def _named_whole(log: Log, text: str) -> tuple[Topic, requests.RangeRequest]:
    if text in log.topics():
        return log.topic(text), requests.RangeRequest(topic=text)
    parse(text)
    raise AssertionError("a range was understood the second time")


def select(topic: Topic, request: requests.RangeRequest, partition: int | None = None) -> Selection:
    """The rows the range names, not read yet."""
    place = _place(topic, request, partition)
    if request.is_point and request.start is not None:
        return _point(place, request.start)
    start, since = _bound(place, request.start, is_end=False)
    end, until = _bound(place, request.end, is_end=True)
    selection: Selection = (
        place[:]._with(start=start, end=end) if _is_relative(start, end) else place[start:end]
    )
    if since is not None:
        selection = selection.since(since)
    if until is not None:
        selection = selection.until(until)
    return selection


def _place(topic: Topic, request: requests.RangeRequest, partition: int | None) -> Topic | Partition:
    """What the bounds are of: the partition that was named, or is the only one, or holds the block."""
    if partition is not None:
        return topic.partition(partition)
    if topic.config.partitions == 1:
        return topic
    named = [bound for bound in (request.start, request.end) if bound is not None]
    for bound in named:
        if isinstance(bound, requests.TokenBound):
            return topic.partition(bound.token.partition)
        if isinstance(bound, requests.HashBound):
            return holder(topic, bound.hex)
    return topic


def holder(topic: Topic, digits: str) -> Partition:
    """The partition that holds a block."""
    for partition in topic.partitions:
        with contextlib.suppress(NotFound):
            partition.find(digits)
            return partition
    raise NotFound(f"no block has the hash {digits}")


def _is_relative(start: Any, end: Any) -> bool:
    """Whether the bounds mean something in each partition: so many rows before its end, or the end."""
    return all(
        place is None or isinstance(place, requests.End) or (isinstance(place, int) and place < 0)
        for place in (start, end)
    )


def _point(place: Topic | Partition, bound: requests.Bound) -> Selection:
    """One row, or the rows of one block."""
    if isinstance(bound, requests.HashBound):
        block = _partition(place).find(bound.hex)
        return place[block.base_offset : block.last_offset + 1]  # type: ignore[no-any-return]
    if isinstance(bound, requests.End):
        return place[:]._with(start=bound)  # type: ignore[no-any-return]
    start, since = _bound(place, bound, is_end=False)
    if isinstance(start, int):
        at = start if start >= 0 else place.next_offset + start
        if not place.start_offset <= at < place.next_offset:
            raise NotFound(f'topic "{place[:].topic}" has no row at offset {start}', hint=_offsets(place))
        return place[at : at + 1]  # type: ignore[no-any-return]
    selection: Selection = place[start:]
    return (selection if since is None else selection.since(since)).limit(1)


def _partition(place: Topic | Partition) -> Partition:
    return place.partition(0) if hasattr(place, "partition") else place


def _offsets(place: Topic | Partition) -> str:
    if place.next_offset == place.start_offset:
        return "the topic is empty"
    return f"offsets go from {place.start_offset} to {place.next_offset - 1}"


def _bound(place: Topic | Partition, bound: requests.Bound | None, *, is_end: bool) -> tuple[Any, Any]:
    """An offset, token or the end, and a moment: one of them at most."""
    match bound:
        case requests.Offset(offset=offset):
            return offset, None
        case requests.FromEnd(rows=rows):
            return -rows, None
        case requests.Moment(us=moment):
            from datetime import UTC, datetime, timedelta

            return None, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
        case requests.HashBound(hex=digits):
            block = _partition(place).find(digits)
            return (block.last_offset + 1 if is_end else block.base_offset), None
        case requests.TokenBound(token=token):
            return token, None
        case requests.End():
            return bound, None
    return None, None
