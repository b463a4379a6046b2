"""Serving the console with uvicorn: until Ctrl-C or SIGTERM, and never waiting for open tabs."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from virta.errors import UnavailableError, UsageError

# Tabs hold their WebSocket open for ever; they come back by themselves.
_GRACE_SECONDS = 1


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; the port 0 takes one that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="another program may use this port: --listen 127.0.0.1:0 takes a free one",
        ) from error


def parse_listen(text: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port`, `:port` or a port alone."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else ""
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address to listen on", hint="write 127.0.0.1:7401")
    return host or "127.0.0.1", int(port)


def config_of(app: ASGIApp) -> uvicorn.Config:
    """How the console is served."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_per_message_deflate=False,  # on one machine packing costs more than sending
        ws_max_size=2 * 1024 * 1024,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        lifespan="on",
        # Tabs, and whatever else comes: far more than people, far fewer than descriptors.
        limit_concurrency=1000,
    )


def server_of(app: ASGIApp) -> uvicorn.Server:
    """A server for the console, to be run with a socket."""
    return uvicorn.Server(config_of(app))


def serve(app: ASGIApp, place: socket.socket) -> Any:
    """Serve until it is told to stop."""
    return server_of(app).run(sockets=[place])
