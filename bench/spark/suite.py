"""The Spark suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.harness import Bench
from bench.spark.heavy import masking, verification
from bench.spark.reading import aggregate, count, growth, scan
from bench.spark.streaming import microbatch
from bench.spark.writing import write

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {
    "scan": scan,
    "aggregate": aggregate,
    "count": count,
    "write": write,
    "microbatch": microbatch,
    "masking": masking,
    "verification": verification,
    "growth": growth,
}
