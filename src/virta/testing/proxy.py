"""A TCP proxy that misbehaves on request: between a client and a broker, for tests and campaigns.

    with Proxy(broker_port) as proxy:
        log = virta.open(f"virta://127.0.0.1:{proxy.port}")
        proxy.cut()                     every connection ends with a reset, wherever it is in a frame
        proxy.cut_after(100)            the next connection ends after so many bytes to the broker
        proxy.delay(0.05)               every piece of data waits so long; order is kept
        proxy.freeze(); proxy.thaw()    nothing passes, and nobody is told (half-open)
        proxy.hold(2)                   the next two connections are made in the other order
        proxy.lose_answers(1)           of the next connections, what the broker answers is lost

It runs in a thread of its own and knows nothing of what it carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_PIECE_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)

Result = TypeVar("Result")


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker: asyncio.StreamWriter | None = None
        self.budget: int | None = None  # bytes that still go to the broker before it is cut
        self.deaf = False  # the client hears nothing

    def reset(self) -> None:
        """End both sides at once, with what lies in their buffers thrown away."""
        for writer in (self.client, self.broker):
            if writer is None:
                continue
            sock = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):  # it may have ended by itself
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    """Carries connections to a port of this machine, until told otherwise."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.made = 0  # connections so far
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay = 0.0
        self._budget: int | None = None
        self._deaf = 0
        self._held: list[asyncio.Event] = []
        self._holding = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virta-proxy", daemon=True)

    # -- what it does to connections ---------------------------------------------------------------

    def cut(self, most: int | None = None) -> int:
        """Reset connections that are open, all or so many of the oldest; gives how many."""

        def act() -> int:
            chosen = list(self._links)[:most]
            for link in chosen:
                link.reset()
            return len(chosen)

        return self._call(act)

    def cut_after(self, size: int) -> None:
        """Reset the next connection once so many bytes of it have gone to the broker."""
        self._set("_budget", size)

    def delay(self, seconds: float) -> None:
        """Have every piece of data wait; 0 ends that."""
        self._set("_delay", seconds)

    def freeze(self) -> None:
        """Let nothing pass in either direction, and tell nobody."""
        self._call(self._passing.clear)

    def thaw(self) -> None:
        self._call(self._passing.set)

    def hold(self, connections: int) -> None:
        """Keep the next connections waiting, and make them in the other order."""
        self._set("_holding", connections)

    def lose_answers(self, connections: int) -> None:
        """The next connections bring everything to the broker, and nothing back."""
        self._set("_deaf", connections)

    def heal(self) -> None:
        """End all of it; connections whose answers were lost are reset."""

        def act() -> None:
            self._delay, self._budget, self._holding, self._deaf = 0.0, None, 0, 0
            self._passing.set()
            for event in self._held:
                event.set()
            for link in list(self._links):
                if link.deaf or link.budget is not None:
                    link.reset()

        self._call(act)

    def _set(self, name: str, value: Any) -> None:
        self._call(lambda: setattr(self, name, value))

    def _call(self, act: Callable[[], Result]) -> Result:
        async def inside() -> Result:
            return act()

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(10)

    # -- carrying ----------------------------------------------------------------------------------

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        link = _Link(writer)
        link.budget, self._budget = self._budget, None
        if self._deaf:
            self._deaf -= 1
            link.deaf = True
        self._links.add(link)
        self.made += 1
        try:
            await self._in_turn()
            from_broker, link.broker = await asyncio.open_connection("127.0.0.1", self.target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, link.broker, link, outward=True))
                both.create_task(self._pump(from_broker, writer, link, outward=False))
        except* (OSError, asyncio.CancelledError):
            pass  # a connection that ends is what this is about
        finally:
            link.reset()
            self._links.discard(link)
            self._tasks.discard(task)

    async def _in_turn(self) -> None:
        """Whoever came first of those that are held goes last."""
        if not self._holding:
            return
        mine = asyncio.Event()
        self._held.insert(0, mine)
        if len(self._held) >= self._holding:
            self._holding = 0
            waiting, self._held = self._held, []
            for event in waiting:
                event.set()
                await asyncio.sleep(0)
        # the second one may never come
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await mine.wait()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, *, outward: bool
    ) -> None:
        while data := await reader.read(_PIECE_BYTES):
            await self._passing.wait()
            if self._delay:
                await asyncio.sleep(self._delay)
            if outward and link.budget is not None:
                data = data[: link.budget]
                link.budget -= len(data)
            if outward or not link.deaf:
                writer.write(data)
                await writer.drain()
            if outward and link.budget == 0:
                # what was let through arrives; then it is over
                await asyncio.sleep(0.01)
                link.reset()
        if not link.deaf:
            writer.close()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._passing = asyncio.Event()
        self._passing.set()
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
