"""The served suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.harness import Bench
from bench.served.connections import connections, partitions
from bench.served.limit import limit
from bench.served.roundtrip import roundtrip
from bench.served.steady import chain, idle, latency
from bench.served.throughput import consume, produce
from bench.served.together import together

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {
    "produce": produce,
    "consume": consume,
    "together": together,
    "roundtrip": roundtrip,
    "partitions": partitions,
    "connections": connections,
    "latency": latency,
    "idle": idle,
    "chain": chain,
    "limit": limit,
}
