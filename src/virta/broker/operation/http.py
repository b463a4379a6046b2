"""A few pages over HTTP: metrics, health, readiness. Nothing else, and nothing that changes.

Where the console is installed it serves these pages beside its own (`console/site.py`), and this does not.

Small on purpose: GET and HEAD, one request per connection, a head of at most HEAD_BYTES that comes
within SECONDS, at most CONNECTIONS at a time. Bodies are not read. There is no login, so it listens
only where it is told to, and shows no rows and no secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from virta.errors import UnavailableError

HEAD_BYTES = 8 * 1024
SECONDS = 5.0
CONNECTIONS = 64

_log = logging.getLogger("virta.broker.http")
_WORDS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer."""

    body: str
    status: int = 200
    kind: str = TEXT


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


class PageServer(Protocol):
    """What listens for HTTP: these pages alone, or the console with them."""

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port."""
        ...

    async def stop(self) -> None: ...


class HttpPages:
    """Serves pages by their path."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> int:
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {host}:{port} for HTTP: {error.strerror or error}",
                hint="choose another address: http.listen",
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS:
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(SECONDS):
                page, with_body = await self._answer(reader)
                writer.write(_head(page) + (page.body.encode() if with_body else b""))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, ConnectionError, OSError):
            writer.transport.abort()
        finally:
            self._open -= 1

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Page, bool]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            return Page(status=400, body="a request has a head of at most 8 KiB\n"), True
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return Page(status=400, body="this is no request of HTTP/1\n"), True
        method, path = words[0], words[1].split(b"?", 1)[0].decode("ascii", "replace")
        if method not in (b"GET", b"HEAD"):
            return Page(status=405, body="only GET and HEAD\n"), True
        if path not in self._pages:
            known = "\n".join(self._pages)
            return Page(status=404, body=f"there is no such page; there are:\n{known}\n"), method == b"GET"
        return await made(self._pages, path), method == b"GET"


async def made(pages: Pages, path: str) -> Page:
    """One of the pages. Where it fails the log is told, whole, and the other side only that it failed."""
    try:
        return await pages[path]()
    except Exception as error:
        _log.error("page failed", exc_info=error, extra={"fields": {"path": path}})
        return Page(status=500, body="this page failed; the broker's log says why\n")


def _head(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {_WORDS[page.status]}",
        f"Content-Type: {page.kind}",
        f"Content-Length: {len(page.body.encode())}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(["Allow: GET, HEAD"] if page.status == 405 else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
