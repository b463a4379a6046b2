"""Brokers for tests: in a thread of this process, over a directory of the test's own."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import virta
from virta.broker.server import Server
from virta.log import Log


class Served:
    """A broker over a directory, until it is stopped."""

    def __init__(self, path: Path, *, port: int = 0, **options: Any) -> None:
        self.log: Log = virta.open(path)
        self.port = port
        self._options = options
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-broker")
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def address(self) -> str:
        return f"virta://127.0.0.1:{self.port}"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._started.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.server = Server(self.log, **self._options)
        self.port = await self._start()
        self._started.set()
        await self._stopping.wait()
        await self.server.stop(grace_seconds=5.0)

    async def _start(self) -> int:
        return await self.server.start("127.0.0.1", self.port)

    def call(self, function: Any, *arguments: Any) -> Any:
        """Call it inside the broker's event loop."""

        async def inside() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(inside(), self.loop).result(10)

    def stop(self) -> None:
        """In order: clients are told, what was begun is finished."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self.log.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
