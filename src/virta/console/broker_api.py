"""The Broker page: connections, how long answers take, what is slow, what the log says; faults on purpose.

Only at the broker's own HTTP port. It shows who is connected and what they do, so it is for whoever
may administer the log as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.websockets import WebSocket

from virta.console.access import ALTER, check
from virta.console.live import Messages
from virta.console.requests import answer, body_of, console_of
from virta.console.state import Console
from virta.errors import UnavailableError, UsageError

_LOOK_SECONDS = 1.0


def routes() -> list[Route]:
    return [
        Route("/api/broker/faults", faults, methods=["POST"]),
        Route("/api/broker/drop", drop, methods=["POST"]),
    ]


def _broker_of(console: Console) -> Any:
    if console.broker is None:
        raise UnavailableError(
            "this console has opened the log itself: there is no broker behind it",
            hint="a broker shows its page at its own HTTP port: virta serve ./events --console",
        )
    return console.broker


async def broker(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """How the broker does, once a second; log lines once each."""
    status = _broker_of(console)
    check(console.access, socket, ALTER, None)
    seen = int(request.get("after") or 0)
    while True:
        found = status.look(after=seen)
        if found["lines"]:
            seen = found["lines"][-1]["number"]
        yield {**found, "process": await status.process(), "tabs": console.connections}
        await asyncio.sleep(_LOOK_SECONDS)


def _development(console: Console) -> Any:
    status = _broker_of(console)
    if status.faults is None:
        raise UnavailableError(
            "faults on purpose are for development",
            hint="start it with: virta serve --set development=true",
        )
    return status


async def faults(request: Request) -> Response:
    """Say what goes wrong from now on."""
    console = console_of(request)
    body = await body_of(request)
    status = _development(console)
    check(console.access, request, ALTER, None)
    try:
        status.faults.change(
            delay_seconds=float(body.get("delay_seconds") or 0),
            paused=bool(body.get("paused")),
            disk_full=bool(body.get("disk_full")),
            drop_percent=float(body.get("drop_percent") or 0),
        )
    except ValueError:
        raise UsageError("delays and shares are numbers") from None
    return answer({})


async def drop(request: Request) -> Response:
    """Cut connections; clients come back by themselves."""
    console = console_of(request)
    body = await body_of(request)
    status = _development(console)
    check(console.access, request, ALTER, None)
    return answer({"dropped": status.drop(body.get("connection"))})
