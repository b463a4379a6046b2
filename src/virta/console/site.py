"""The console at a broker's HTTP port, with the broker's own pages (/metrics, /health, /ready) beside it.

It runs in the broker's event loop: what it asks of the log goes to threads, as everywhere in the console.
The broker's own pages are for machines: no cookie, no check of the name they are asked under.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from virta.broker.operation.http import Page, Pages, made
from virta.broker.operation.status import Status
from virta.console.application import application
from virta.console.serve import config_of, listening
from virta.console.users import UserAccess
from virta.errors import UnavailableError
from virta.security.guard import Guard, is_loopback

_LOOK_SECONDS = 0.005
_STOP_SECONDS = 3.0


class _InLoop(uvicorn.Server):
    """A server in somebody else's loop, whose signals are theirs."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Site:
    """Serves both."""

    def __init__(self, status: Status, guard: Guard, pages: Pages, *, hosts: Iterable[str] = ()) -> None:
        self._status = status
        self._guard = guard
        self._pages = pages
        self._hosts = tuple(hosts)

    async def start(self, host: str, port: int) -> int:
        place = listening(host, port)
        self._server = _InLoop(config_of(self._application(host)))
        self._running = asyncio.ensure_future(self._server.serve(sockets=[place]))
        while not self._server.started:
            if self._running.done():
                raise UnavailableError(f"the console could not start on {host}:{port}")
            await asyncio.sleep(_LOOK_SECONDS)
        return _port_of(place)

    async def stop(self) -> None:
        self._server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._running, _STOP_SECONDS)

    def _application(self, host: str) -> ASGIApp:
        log = self._status.log
        access = UserAccess(self._guard, log, local=is_loopback(host))
        console = application(
            log,
            access=access,
            hosts=self._hosts,
            broker=self._status,
            development=self._status.faults is not None,
        )
        pages = self._pages

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"] in pages:
                await _answer(scope, send, pages)
            else:
                await console(scope, receive, send)

        return both


def _port_of(place: socket.socket) -> int:
    return int(place.getsockname()[1])


async def _answer(scope: Scope, send: Send, pages: Pages) -> None:
    if scope["method"] in ("GET", "HEAD"):
        page = await made(pages, scope["path"])
    else:
        page = Page(status=405, body="only GET and HEAD\n")
    body = page.body.encode()
    headers = [
        (b"content-type", page.kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *([(b"allow", b"GET, HEAD")] if page.status == 405 else []),
    ]
    await send({"type": "http.response.start", "status": page.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
