"""A broker as a process: from an address to listening, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import Callable
from typing import Any

from virta.broker.server import Server
from virta.log import Log
from virta.security.address import Address
from virta.security.guard import Guard
from virta.security.tls import ServerTls

# A connection is a descriptor; the files of topics are more of them.
_DESCRIPTORS = 65_536


def run(
    log: Log,
    listen: Address,
    *,
    guard: Guard | None = None,
    tls: ServerTls | None = None,
    started: Callable[[Address], None] | None = None,
    observe: Callable[[str, Any], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; what was begun is finished then."""
    _raise_descriptors()
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        runner.run(_serve(Server(log, guard=guard, observe=observe), listen, tls, started))


async def _serve(
    server: Server, listen: Address, tls: ServerTls | None, started: Callable[[Address], None] | None
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    port = await server.start(listen.host, listen.port, tls=tls)
    if started is not None:
        started(Address(host=listen.host, port=port, tls=listen.tls))
    try:
        await stopping.wait()
    finally:
        await server.stop()


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: half the time per frame. The broker runs without it too."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def _raise_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
