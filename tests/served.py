"""Brokers for tests, over a directory of the test's own: in a thread here, or in another process."""

from __future__ import annotations

import asyncio
import multiprocessing
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


class Elsewhere:
    """A process that serves any directory it is asked to, so that each test need not start one."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve_elsewhere, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def serve(self, path: Path) -> str:
        """Serve this directory, and no other any more; gives the address."""
        self._pipe.send(path)
        return str(self._pipe.recv())

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join()
        self._pipe.close()


def _serve_elsewhere(pipe: Any) -> None:
    broker: Served | None = None
    while (path := pipe.recv()) is not None:
        if broker is not None:
            broker.stop()
        broker = Served(path)
        pipe.send(broker.address)
    if broker is not None:
        broker.stop()
