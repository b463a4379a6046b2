"""Rows that match a filter, newest first: looked for in stretches that grow, backwards from the end.

So the newest matches are there at once, and a search over a hundred million rows can be watched and
stopped. Stretches without a match are skipped by the statistics of their blocks. When the past is done
(or enough was found), what comes is filtered as it comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from starlette.websockets import WebSocket

from virta.console.access import READ, check
from virta.console.live import Messages
from virta.console.rows_of import stamped
from virta.console.state import Console
from virta.console.topic_api import find_range
from virta.console.values import encode_rows
from virta.topics.filters import parse_filter

FIRST_STRETCH, MOST_STRETCH = 10_000, 1_000_000
MOST_MATCHES = 2_000
# New rows that one look filters; beyond it the newest are taken.
_MOST_NEW = 20_000


async def search(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """Matches of `where`, with how far the search is; then those that come."""
    topic, partition = str(request.get("topic")), int(request.get("partition", 0))
    check(console.access, socket, READ, topic)
    where = str(request.get("where"))
    work = console.hub.work
    found = await work(_begin, console, topic, partition, where, request.get("at"))
    start, end, is_open = found
    if request.get("done") and request.get("after") is not None:
        at = int(request["after"])  # a tab that was here before: only what came meanwhile
    else:
        at = end
        scanned, matches, stretch = 0, 0, FIRST_STRETCH
        yield {"rows": [], "scanned": 0, "total": end - start, "done": False, "next": end}
        while end > start and matches < MOST_MATCHES:
            low = max(start, end - stretch)
            rows = await work(_matching, console, topic, partition, where, low, end, MOST_MATCHES - matches)
            matches += len(rows)
            scanned += end - low
            end = low
            stretch = min(stretch * 2, MOST_STRETCH)
            if rows or end > start:
                yield {"rows": rows, "scanned": scanned, "total": at - start, "done": False}
        yield {"rows": [], "scanned": scanned, "total": at - start, "done": True, "more": end > start}
    if not is_open:
        return
    async with console.hub.tail(topic, partition) as watched:
        while True:
            seen = watched.pulse.count
            if watched.error is not None:
                raise watched.error
            newest = watched.tail.next
            if newest > at:
                low = max(at, newest - _MOST_NEW)
                rows = await work(_matching, console, topic, partition, where, low, newest, MOST_MATCHES)
                at = newest
                if rows:
                    yield {"rows": rows, "next": at}
            await watched.pulse.after(seen)


def _begin(console: Console, name: str, partition: int, where: str, at: str | None) -> tuple[int, int, bool]:
    """From, to, and whether it goes on after that."""
    topic = console.log.topic(name)
    place = topic.partition(partition)
    parse_filter(where).check(stamped(topic))
    if not at:
        return place.start_offset, place.next_offset, True
    found = find_range(console, name, partition, at)
    stop = found["stop"]
    return found["start"], place.next_offset if stop is None else stop, stop is None


def _matching(
    console: Console, name: str, partition: int, where: str, start: int, stop: int, most: int
) -> list[Any]:
    """The newest matches in a stretch, oldest first."""
    topic = console.log.topic(name)
    kept: list[pa.RecordBatch] = []
    count = 0
    with contextlib.closing(topic.partition(partition)[start:stop].where(where).batches()) as batches:
        for batch in batches:
            kept.append(batch)
            count += batch.num_rows
            while kept and count - kept[0].num_rows >= most:
                count -= kept.pop(0).num_rows
    rows = [row for batch in kept for row in encode_rows(batch)]
    return rows[-most:]
