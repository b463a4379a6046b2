"""`"topic@from:to"` in a query: a table of some rows, or of the moment a table was as it was.

The grammar is that of the command line. A range is the rows in it (of an update topic every
row, not only the newest of each key); a point is an update topic's table as of that place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from virta import requests
from virta.errors import UsageError
from virta.topics.snapshot import Range, TopicSnapshot
from virta.topics.topic import Topic
from virta.types import Kind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')


def ranged(query: str, topics: Iterable[str]) -> list[str]:
    """The names with ranges that stand in the query; a topic's own name may hold an `@` as well."""
    known = set(topics)
    found = (text.replace('""', '"') for text in _QUOTED.findall(query))
    named = (name for name in found if name not in known and name.rpartition("@")[0] in known)
    return list(dict.fromkeys(named))


def snapshot_of(topic: Topic, text: str, now_us: int) -> TopicSnapshot:
    """What a query reads under such a name."""
    request = requests.parse_range(text, now_us)
    if request.is_point:
        return _as_of(topic, request.start, text)
    start, since = _place(topic, request.start, text)
    end, until = _place(topic, request.end, text)
    whole = Range()
    return topic.snapshot(
        Range(
            start=whole.start if start is None else start,
            end=whole.end if end is None else end,
            since_us=since,
            until_us=until,
        )
    )


def _as_of(topic: Topic, bound: requests.Bound | None, text: str) -> TopicSnapshot:
    if topic.kind is not Kind.UPDATE:
        raise UsageError(
            f'"{text}" is one place, and topic {topic.name!r} is no table',
            hint=f'a range has a colon: "{text}:"',
        )
    offset, moment_us = _place(topic, bound, text)
    if moment_us is not None:
        return topic.table(as_of=_EPOCH + timedelta(microseconds=moment_us)).snapshot()
    return topic.table(as_of=offset).snapshot()


def _place(topic: Topic, bound: requests.Bound | None, text: str) -> tuple[int | None, int | None]:
    """An offset, or a moment in microseconds."""
    match bound:
        case None | requests.End():
            return None, None
        case requests.Moment(us=moment_us):
            return None, moment_us
        case requests.Offset(offset=offset):
            # of several partitions this says that offsets belong to each of them
            return min(offset, topic.next_offset), None
        case requests.FromEnd(rows=rows):
            return max(0, topic.next_offset - rows), None
        case _:
            raise UsageError(
                f'"{text}" does not go by offset or time', hint='write "topic@-15m:", "topic@100:200"'
            )
