"""The console as an ASGI application: its pages, its interface, its one WebSocket.

Pages are a shell that a module of `static/` fills; what they show comes from `api/…` and from the
WebSocket. All addresses are relative, so the console can stand at any path of a server.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from virta.console import (
    broker_api,
    capsule_api,
    cells,
    difference_api,
    download,
    groups_api,
    keys_api,
    pages,
    row_api,
    signing,
    sql_api,
    storage_api,
    time_api,
    topic_api,
    topic_changes,
    verifying,
    writing,
)
from virta.console.access import Access, OpenAccess
from virta.console.files import OwnFiles
from virta.console.generating import generate
from virta.console.guard import Guard
from virta.console.hub import Hub
from virta.console.live import STREAMS, Connection, error_of
from virta.console.replaying import replay
from virta.console.search import search
from virta.console.state import Console
from virta.errors import DamageError, Denied, NotFound, UnavailableError, UsageError, VirtaError

_STREAMS = {
    **STREAMS,
    "search": search,
    "generate": generate,
    "replay": replay,
    "sql": sql_api.sql,
    "verify": verifying.verify,
    "broker": broker_api.broker,
    "groups": groups_api.groups,
    "cells": cells.cells,
}


def application(
    log: Any,
    *,
    access: Access | None = None,
    hosts: Iterable[str] = (),
    broker: Any = None,
    development: bool = False,
    address: str | None = None,
) -> ASGIApp:
    """The console over an opened log (embedded or remote), to be served by any ASGI server.

    `access` decides who may do what; without it everybody may do everything. `hosts` are the names
    under which it may be opened, beside loopback and plain addresses. `broker` is whom the Broker page
    asks; `development` lets that page break things on purpose.
    """
    shown = address if address is not None else str(getattr(log, "path", getattr(log, "address", "")))
    console = Console(
        log=log,
        address=shown,
        access=access or OpenAccess(),
        hub=Hub(log),
        broker=broker,
        development=development,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await console.hub.close()

    app = Starlette(
        routes=_routes(console),
        middleware=[Middleware(Guard, hosts=tuple(hosts))],
        exception_handlers={VirtaError: _explained},
        lifespan=lifespan,
    )
    app.state.console = console
    return app


def _routes(console: Console) -> list[BaseRoute]:
    async def live(socket: WebSocket) -> None:
        await Connection(console, socket, _STREAMS).serve()

    return [
        *pages.routes(),
        *topic_api.routes(),
        *row_api.routes(),
        *writing.routes(),
        *topic_changes.routes(),
        *download.routes(),
        *sql_api.routes(),
        *verifying.routes(),
        *time_api.routes(),
        *storage_api.routes(),
        *groups_api.routes(),
        *keys_api.routes(),
        *difference_api.routes(),
        *capsule_api.routes(),
        *broker_api.routes(),
        *signing.routes(),
        WebSocketRoute("/live", live),
        Route("/healthz", _healthy),
        Mount("/static", OwnFiles()),
    ]


async def _healthy(_: Request) -> Response:
    return JSONResponse({"ok": True})


_STATUS: tuple[tuple[type[VirtaError], int], ...] = (
    (NotFound, 404),
    (Denied, 403),
    (UsageError, 400),
    (UnavailableError, 503),
    (DamageError, 500),
)


async def _explained(_: Request, error: Exception) -> Response:
    assert isinstance(error, VirtaError)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return JSONResponse({"error": error_of(error)}, status_code=status)
