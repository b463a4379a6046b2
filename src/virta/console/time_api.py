"""The time scrubber: a topic's histogram, and everything as it stood at a moment.

The histogram comes from the chain's headers: how far the offsets had come at each of its edges.
"""

from __future__ import annotations

import itertools
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.access import READ, check
from virta.console.reading import newest_us, offset_at
from virta.console.requests import answer, console_of, number_of, text_of
from virta.console.state import Console
from virta.console.values import encode_rows
from virta.errors import Denied, NotFound
from virta.metadata.internal import OFFSETS
from virta.query.names import ALL_ROWS

BINS = 120
# Through a broker each edge is a question of its own.
_REMOTE_BINS = 24
_SHOWN_ROWS = 40


def routes() -> list[Route]:
    return [Route("/api/histogram", histogram), Route("/api/asof", as_of)]


async def histogram(request: Request) -> Response:
    """Rows over time."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    return answer(await console.hub.work(_histogram, console, name, number_of(request, "partition", 0)))


def _histogram(console: Console, name: str, partition: int) -> dict[str, Any]:
    topic = console.log.topic(name)
    place = topic.partition(partition)
    start, end = place.start_offset, place.next_offset
    newest = newest_us(topic, partition)
    if newest is None:
        return {"edges": [], "counts": []}
    oldest = int(place.fetch(place.token(start)).header.min_timestamp)
    bins = BINS if hasattr(place, "stored") else _REMOTE_BINS
    width = max(1, -(-(newest + 1 - oldest) // bins))
    edges = [oldest + width * at for at in range(bins + 1)]
    offsets = [start, *(_offset_near(topic, place, edge) for edge in edges[1:-1]), end]
    counts = [after - before for before, after in itertools.pairwise(offsets)]
    return {"edges": edges, "counts": counts, "offsets": offsets}


def _offset_near(topic: Any, place: Any, moment_us: int) -> int:
    """By block where the chain is at hand, which is as fine as a histogram shows."""
    stored = getattr(place, "stored", None)
    if stored is None:
        return offset_at(topic, place.number, moment_us)
    return int(min(max(stored.first_offset_at(moment_us), place.start_offset), place.next_offset))


async def as_of(request: Request) -> Response:
    """A topic as it stood at a moment: its end, its head, its newest rows then."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "us")
    return answer(await console.hub.work(_as_of, console, name, *place))


def _as_of(console: Console, name: str, partition: int, moment_us: int) -> dict[str, Any]:
    topic = console.log.topic(name)
    place = topic.partition(partition)
    # the moment itself is in it: what was stamped then had happened
    offset = offset_at(topic, partition, moment_us + 1)
    table = console.hub.windows.read(topic, partition, offset - _SHOWN_ROWS, offset)
    rows = [] if table is None else [row for batch in table.to_batches() for row in encode_rows(batch)]
    head = place.fetch(place.token(offset - 1)).hash if offset > place.start_offset else None
    return {
        "offset": offset,
        "start": place.start_offset,
        "next": place.next_offset,
        "head": head,
        "rows": rows,
        "groups": positions_at(console.log, topic, partition, moment_us),
    }


def positions_at(log: Any, topic: Any, partition: int, moment_us: int) -> list[dict[str, Any]]:
    """Where each group stood then: the newest of its commits up to that moment, from `__offsets`."""
    try:
        found = log.sql(_POSITIONS, [topic.id, partition, moment_us]).to_arrow()
    except (NotFound, Denied):  # nobody ever committed, or this is not for whoever opened the log
        return []
    return [
        {"group": each["group"], "offset": each["offset"], "committed": each["committed"]}
        for each in found.to_pylist()
    ]


# An update topic's own rows, all of them: what was so then is no longer the newest.
_POSITIONS = f"""
    select "group", "offset", epoch_us(_timestamp) as committed from (
        from "{OFFSETS}{ALL_ROWS}"
        where topic_id = ? and "partition" = ? and _timestamp <= make_timestamptz(?::bigint)
        qualify row_number() over (partition by "group" order by _offset desc) = 1
    ) where not _deleted and "offset" is not null order by 1
"""
