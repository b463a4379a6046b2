"""What every request passes: the right Host, the right Origin, and headers that allow nothing foreign.

A page of another site may send requests to this port, and a name of another site may be made to
lead here (DNS rebinding). So whoever changes something, or opens the WebSocket, has to come
from a page of this very origin; and without a sign-in the name in Host has to be one that
cannot lead here by accident.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_LOOPBACK_NAMES = ("localhost", "localhost.localdomain")


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(netloc: str) -> str:
    """The name in `name:port`."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


class Guard:
    """An ASGI application around another. `hosts`: names that may stand in Host; addresses always may."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        why = self._refusal(scope)
        if why is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": why})
            return
        app = self._app if why is None else PlainTextResponse(why + "\n", status_code=403)
        await app(scope, receive, self._with_headers(scope, send))

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_known(host_of(host)):
            return (
                "this name does not lead to the console: open it by its address, or name it with --host-name"
            )
        if scope["type"] == "http" and scope["method"] in _SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is None or urlsplit(origin).netloc.lower() != host.lower():
            return "this request comes from a page of another site"
        return None

    def _is_known(self, name: str) -> bool:
        if is_loopback(name) or name.lower() in self._hosts:
            return True
        try:  # an address cannot be made to lead elsewhere
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    @staticmethod
    def _with_headers(scope: Scope, send: Send) -> Send:
        if scope["type"] != "http":
            return send

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS:
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        return sending
