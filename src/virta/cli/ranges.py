"""`topic@from:to` as people type it, into what the library reads.

A hash stands for its block: as a start its first row, as an end its last row (a head
noted earlier names all history up to and including its block).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import virta
from virta import requests
from virta.cli.invocation import Invocation
from virta.errors import NotFound, UsageError

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.read import Selection
    from virta.topics.topic import Topic

RANGE_HELP = (
    "TOPIC@FROM:TO, either side left out: 100 an offset, -10 rows before the end, "
    "-15m or 2026-11-18T10:00Z a moment, #3f9c1a a block, end the end as of now."
)


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


def select(topic: Topic, request: requests.RangeRequest) -> Selection:
    """The rows the range names, not read yet."""
    if request.is_point and request.start is not None:
        return _point(topic, request.start)
    start, since = _bound(topic, request.start, is_end=False)
    end, until = _bound(topic, request.end, is_end=True)
    selection: Selection = topic[start:end]
    if since is not None:
        selection = selection.since(since)
    if until is not None:
        selection = selection.until(until)
    return selection


def _point(topic: Topic, bound: requests.Bound) -> Selection:
    """One row, or the rows of one block."""
    if isinstance(bound, requests.HashBound):
        block = topic.partition(0).find(bound.hex)
        return topic[block.base_offset : block.last_offset + 1]  # type: ignore[no-any-return]
    if isinstance(bound, requests.End):
        return topic[topic.next_offset :]  # type: ignore[no-any-return]
    start, since = _bound(topic, bound, is_end=False)
    if isinstance(start, int):
        at = start if start >= 0 else topic.next_offset + start
        if not topic.start_offset <= at < topic.next_offset:
            raise NotFound(f'topic "{topic.name}" has no row at offset {start}', hint=_offsets(topic))
        return topic[at : at + 1]  # type: ignore[no-any-return]
    selection: Selection = topic[start:]
    return (selection if since is None else selection.since(since)).limit(1)


def _offsets(topic: Topic) -> str:
    if topic.next_offset == topic.start_offset:
        return "the topic is empty"
    return f"offsets go from {topic.start_offset} to {topic.next_offset - 1}"


def _bound(topic: Topic, bound: requests.Bound | None, *, is_end: bool) -> tuple[Any, Any]:
    """An offset or token, and a moment: one of them at most."""
    match bound:
        case requests.Offset(offset=offset):
            return offset, None
        case requests.FromEnd(rows=rows):
            return -rows, None
        case requests.Moment(us=moment):
            from datetime import UTC, datetime, timedelta

            return None, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
        case requests.HashBound(hex=digits):
            block = topic.partition(0).find(digits)
            return (block.last_offset + 1 if is_end else block.base_offset), None
        case requests.TokenBound(token=token):
            return token, None
        case requests.End():
            return topic.next_offset, None
    return None, None
