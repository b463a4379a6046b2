"""The async twin, seen through the sync interface: so that the suite runs over it as it is.

An event loop runs in a thread of its own. Whatever the twin gives is made plain: an
awaitable by waiting for it, an iteration by stepping through it, an opening by entering it.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import virta
from virta.aio import (
    AsyncAttempt,
    AsyncChanges,
    AsyncDeadLetters,
    AsyncGroup,
    AsyncGroupReader,
    AsyncLog,
    AsyncPartition,
    AsyncReading,
    AsyncSelection,
    AsyncTable,
    AsyncTopic,
    AsyncWriter,
    Opening,
)
from virta.aio.result import AsyncResult

TWINS = (
    AsyncLog,
    AsyncTopic,
    AsyncSelection,
    AsyncTable,
    AsyncPartition,
    AsyncWriter,
    AsyncResult,
    AsyncGroupReader,
    AsyncGroup,
    AsyncAttempt,
    AsyncDeadLetters,
    AsyncChanges,
)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop")
        self._thread.start()

    def run(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call it inside the loop, and await what it gives if that can be awaited."""

        async def inside() -> Any:
            found = call(*arguments, **named)
            return await found if inspect.isawaitable(found) and not isinstance(found, Opening) else found

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result()

    @property
    def is_running(self) -> bool:
        return self._loop.is_running()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def _twin_of(given: Any) -> Any:
    return given._twin if isinstance(given, Plain) else given


class Plain:
    """One object of the twin."""

    def __init__(self, loop: Loop, twin: Any) -> None:
        self._loop = loop
        self._twin = twin

    def _plain(self, found: Any) -> Any:
        if isinstance(found, TWINS):
            return Plain(self._loop, found)
        if isinstance(found, AsyncReading) or inspect.isasyncgen(found):
            return self._steps(found)
        if isinstance(found, Opening):
            return Plain(self._loop, self._loop.run(found.__aenter__))
        if isinstance(found, list):
            return [self._plain(each) for each in found]
        return found

    def _steps(self, reading: AsyncReading[Any] | AsyncGenerator[Any]) -> Iterator[Any]:
        end = object()
        try:
            while (item := self._loop.run(anext, reading, end)) is not end:
                yield item
        finally:
            if self._loop.is_running:  # one that a traceback kept until now was closed with the loop
                self._loop.run(reading.aclose)

    def __getattr__(self, name: str) -> Any:
        found = self._loop.run(getattr, self._twin, name)
        if not callable(found):
            return self._plain(found)

        def call(*arguments: Any, **named: Any) -> Any:
            given = [_twin_of(each) for each in arguments]
            options = {name: _twin_of(each) for name, each in named.items()}
            return self._plain(self._loop.run(found, *given, **options))

        return call

    def __getitem__(self, place: Any) -> Any:
        return self._plain(self._loop.run(self._twin.__getitem__, place))

    def __iter__(self) -> Iterator[Any]:
        return self._steps(self._loop.run(self._twin.__aiter__))

    def __enter__(self) -> Plain:
        self._loop.run(self._twin.__aenter__)
        return self

    def __exit__(self, *raised: Any) -> Any:
        return self._loop.run(self._twin.__aexit__, *raised)

    def __repr__(self) -> str:
        return repr(self._twin)


def open_plainly(loop: Loop, address: Any) -> Plain:
    async def opened() -> AsyncLog:
        return await virta.aopen(address)

    return Plain(loop, loop.run(opened))
