"""The served suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.harness import Bench
from bench.served.roundtrip import roundtrip
from bench.served.throughput import consume, produce

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {
    "produce": produce,
    "consume": consume,
    "roundtrip": roundtrip,
}
