"""Who takes part: every contender that can be imported here, Virta first."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Bench
from bench.peers.store import Level, Peer, Store

MODULES = ("virta", "sqlite", "lmdb", "honker", "raw")


@functools.cache
def peers() -> tuple[Peer, ...]:
    """All contenders; one whose package is missing is named once and left out."""
    found: list[Peer] = []
    for name in MODULES:
        try:
            module = importlib.import_module(f"bench.peers.{name}")
        except ImportError as error:
            print(f"note: {name} does not take part: {error}", file=sys.stderr)
            continue
        found.extend(module.PEERS)
    return tuple(found)


def at(level: Level, *, without: tuple[str, ...] = ()) -> list[Peer]:
    """The contenders that know this durability."""
    return [peer for peer in peers() if level in peer.levels and peer.name not in without]


@contextmanager
def opened(bench: Bench, peer: Peer, level: Level) -> Iterator[Store]:
    """A contender's empty log in a fresh directory, closed and removed afterwards."""
    with opened_in(bench, peer, level) as (_, store):
        yield store


@contextmanager
def opened_in(bench: Bench, peer: Peer, level: Level) -> Iterator[tuple[Path, Store]]:
    """The same, and where it lies."""
    with bench.scratch() as directory:
        store = peer.levels[level](directory)
        try:
            yield directory, store
        finally:
            store.close()
