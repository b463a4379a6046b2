"""Who takes part, and their servers while a workload runs."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import machine
from bench.harness import Bench, Runner, Sample, Unavailable, expect_rows
from bench.served.peers.contract import Client, Peer, Server

# contender → the module it is in
MODULES = {"virta": "virta", "redis": "redis", "redis packed": "redis", "nats": "nats", "kafka": "kafka"}
NAMES = ("virta", "redis", "nats", "kafka")
_numbers = itertools.count(1)
_MEMORY_BYTES = 3 << 30  # what a workload writes, and more


@functools.cache
def peer(name: str) -> Peer:
    """A contender by its name; Unavailable when its client is not installed."""
    try:
        module = importlib.import_module(f"bench.served.peers.{MODULES[name]}")
    except ImportError as error:
        raise Unavailable(f"{error}: pip install 'virta[bench]'") from error
    return next(found for found in module.PEERS if found.name == name)


@dataclass(slots=True, kw_only=True)
class Served:
    """A contender whose server runs."""

    peer: Peer
    server: Server

    @property
    def name(self) -> str:
        return self.peer.name

    def fresh(self, partitions: int = 1) -> str:
        """A new stream, for one run."""
        stream = f"s{next(_numbers)}"
        self.server.make(stream, partitions)
        return stream

    @contextmanager
    def client(self, stream: str, partitions: int = 1) -> Iterator[Client]:
        made = self.peer.connect(self.server.address, stream, partitions)
        try:
            yield made
        finally:
            made.close()

    def check(self, stream: str, partitions: int, rows: int) -> None:
        expect_rows(self.name, rows, self.server.count(stream, partitions))


class Field:
    """The contenders of one workload: their servers start with their first turn and end with it."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self._bench = bench
        self._stack = stack
        self._running: dict[str, Served] = {}

    def get(self, name: str) -> Served:
        found = self._running.get(name)
        if found is None:
            directory = self._stack.enter_context(self._bench.scratch())
            chosen = peer(name)
            server = chosen.start(directory)
            self._stack.callback(server.close)
            found = self._running[name] = Served(peer=chosen, server=server)
        return found

    def runners(self, run: Callable[[Served], Sample], names: Sequence[str] = NAMES) -> dict[str, Runner]:
        return {name: functools.partial(self._run, run, name) for name in names if MODULES[name] in _chosen}

    def _run(self, run: Callable[[Served], Sample], name: str) -> Sample:
        return run(self.get(name))


@functools.cache
def _touch_memory() -> None:
    machine.touch_memory(_MEMORY_BYTES)


@contextmanager
def field_of(bench: Bench) -> Iterator[Field]:
    _touch_memory()
    with ExitStack() as stack:
        yield Field(bench, stack)


_chosen: tuple[str, ...] = NAMES


def choose(names: Sequence[str]) -> None:
    """Leave out everybody but these and Virta."""
    global _chosen
    _chosen = tuple(name for name in NAMES if name in names or name == "virta")
