"""The one WebSocket of a tab: any number of streams of messages over it, each with the name the tab gave it.

    → {"id": "a", "op": "topics"}                        ← {"id": "a", "topics": […]} every second
    → {"id": "b", "op": "rows", "topic": …, "after": 17}  ← {"id": "b", "rows": […], "next": …, "skipped": 0}
    → {"id": "b", "op": "stop"}                          ← {"id": "b", "end": true}, or an error

A stream is an async generator of dicts. The next message is made when the one before has been taken, so
a browser that is slow makes its streams slow, not the server's memory full. After a lost connection the tab
asks again with the offset after the last row it has: no gap, no double.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from virta.console.access import READ, check
from virta.console.state import Console
from virta.console.values import dump
from virta.errors import UsageError, VirtaError

Messages = AsyncIterator["dict[str, Any] | str"]
Stream = Callable[[Console, WebSocket, Mapping[str, Any]], Messages]

# More streams than any page opens; each costs a task.
_MOST_STREAMS = 32
_MOST_BYTES = 1 << 20


def error_of(error: VirtaError) -> dict[str, Any]:
    """An error as the browser shows it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


class Connection:
    """One tab."""

    def __init__(self, console: Console, socket: WebSocket, streams: Mapping[str, Stream]) -> None:
        self._console = console
        self._socket = socket
        self._streams = streams
        self._running: dict[str, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()

    async def serve(self) -> None:
        await self._socket.accept()
        self._console.connections += 1
        try:
            while True:
                self._heard(await self._socket.receive_text())
        except WebSocketDisconnect:
            pass
        finally:
            self._console.connections -= 1
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _heard(self, text: str) -> None:
        try:
            request = json.loads(text) if len(text) <= _MOST_BYTES else None
        except ValueError:
            request = None
        if not isinstance(request, dict) or not isinstance(request.get("id"), str):
            return
        name = request["id"]
        old = self._running.pop(name, None)
        if old is not None:
            old.cancel()
        if request.get("op") == "stop":
            return
        self._running[name] = asyncio.create_task(self._run(name, request))

    async def _run(self, name: str, request: dict[str, Any]) -> None:
        try:
            stream = self._streams.get(str(request.get("op")))
            if stream is None or len(self._running) > _MOST_STREAMS:
                raise UsageError("the console does not know this request, or too many run at once")
            async with contextlib.aclosing(stream(self._console, self._socket, request)) as messages:  # type: ignore[type-var]
                async for message in messages:
                    await self._send(name, message)
            await self._send(name, {"end": True})
        except VirtaError as error:
            await self._send(name, {"error": error_of(error)})
        except (WebSocketDisconnect, RuntimeError):
            return  # the tab is gone
        finally:
            if self._running.get(name) is asyncio.current_task():
                del self._running[name]

    async def _send(self, name: str, message: dict[str, Any] | str) -> None:
        body = message if isinstance(message, str) else dump(message)[1:-1]
        async with self._sending:
            await self._socket.send_text(f'{{"id":{json.dumps(name)},{body}}}')


# -- the streams that every page may open ----------------------------------------------------------


async def topics(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:  # noqa: ARG001
    """All topics, once a second."""
    visitor = check(console.access, socket, READ, None)
    seen = 0
    async with console.hub.sampling() as pulse:
        while True:
            shown = [
                each
                for each in console.hub.samples
                if console.access.allows(visitor, READ, str(each["name"]))
            ]
            yield {"topics": shown, "now": console.now_us()}
            seen = await pulse.after(max(seen, pulse.count))


async def rows(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """The rows of a partition after an offset, as they come; with `quiet` only where it stands."""
    topic, partition = str(request.get("topic")), int(request.get("partition", 0))
    check(console.access, socket, READ, topic)
    quiet = bool(request.get("quiet"))
    after = request.get("after")
    async with console.hub.tail(topic, partition) as watched:
        tail, pulse = watched.tail, watched.pulse
        if watched.error is not None:
            raise watched.error
        at = int(after) if after is not None else max(tail.start, tail.next - 100)
        if after is not None and at > tail.next:
            yield {"lost": at - tail.next}  # rows were seen that are no longer there: a crash took them
            at = tail.next
        first = True
        while True:
            seen = pulse.count
            if watched.error is not None:
                raise watched.error
            news = (
                tail.since(tail.next if quiet else at)
                if quiet or tail.has_ready(at)
                else await console.hub.work(tail.since, at)
            )
            if first or news.rows or quiet or news.next != at:
                yield (
                    f'"rows":[{",".join(news.rows)}],"start":{news.start},"next":{news.next},'
                    f'"skipped":{0 if first and after is None else news.skipped},"version":{news.version},'
                    f'"now":{console.now_us()}'
                )
            at, first = news.next, False
            await pulse.after(seen)


STREAMS: dict[str, Stream] = {"topics": topics, "rows": rows}
