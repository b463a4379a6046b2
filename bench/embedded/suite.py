"""The embedded suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.embedded.append import batched, busy, concurrent, one_row
from bench.embedded.chain import chain
from bench.embedded.growth import growth
from bench.embedded.many_topics import many_topics
from bench.embedded.memory import memory
from bench.embedded.replay import replay
from bench.embedded.wake import wake
from bench.embedded.writer import writer
from bench.harness import Bench

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {
    "append": batched,
    "one-row": one_row,
    "concurrent": concurrent,
    "busy": busy,
    "writer": writer,
    "replay": replay,
    "wake": wake,
    "chain": chain,
    "growth": growth,
    "topics": many_topics,
    "memory": memory,
}
