"""Bug capsules: a range put into a file with its schema, group positions and an expectation."""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.access import READ, check
from virta.console.download import Selected
from virta.console.requests import answer, body_of, console_of
from virta.console.state import Console
from virta.errors import UsageError
from virta.exchange import capsule


def routes() -> list[Route]:
    return [
        Route("/api/capsule/look", look, methods=["POST"]),
        Route("/api/capsule", make, methods=["POST"]),
    ]


async def look(request: Request) -> Response:
    """What would be in it: how many rows, and what the query gives over them alone."""
    console = console_of(request)
    body = await body_of(request)
    check(console.access, request, READ, str(body.get("topic")))
    _, about = await console.hub.work(_made, console, body)
    return answer(
        {
            "rows": about.rows,
            "first": about.first,
            "last": about.last,
            "positions": about.positions,
            "query": about.query,
            "expected": about.expected,
            "test": capsule.test_text(about),
        }
    )


async def make(request: Request) -> Response:
    """The file."""
    console = console_of(request)
    body = await body_of(request)
    check(console.access, request, READ, str(body.get("topic")))
    data, about = await console.hub.work(_made, console, body)
    name = quote(f"{about.topic}-{about.first}.capsule", safe="")
    return Response(
        data,
        media_type="application/zip",
        headers={"content-disposition": f"attachment; filename*=utf-8''{name}"},
    )


def _made(console: Console, body: dict[str, Any]) -> tuple[bytes, capsule.Capsule]:
    name, partition = str(body.get("topic")), int(body.get("partition") or 0)
    where = str(body.get("where") or "").strip()
    chosen = Selected(console, name, partition, str(body.get("at") or ""), where)
    expected = body.get("expected")
    if expected is not None and not isinstance(expected, list):
        raise UsageError("what is expected is a list of rows, as JSON")
    file = io.BytesIO()
    about = capsule.write_capsule(
        file,
        chosen.topic,
        start=chosen.start,
        stop=chosen.stop,
        partition=partition,
        where=where,
        query=str(body.get("query") or ""),
        expected=expected,
        positions=_positions(chosen.topic, partition),
        note=str(body.get("note") or ""),
    )
    return file.getvalue(), about


def _positions(topic: Any, partition: int) -> dict[str, int]:
    """Where the topic's groups stand in the partition."""
    found: dict[str, int] = {}
    for group in topic.groups() if hasattr(topic, "groups") else ():
        for part in topic.group(group).describe().partitions:
            if part.partition == partition and part.offset is not None:
                found[group] = part.offset
    return found
