"""The console's suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.console.large import large
from bench.console.live import live
from bench.console.ready import ready
from bench.harness import Bench

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {"ready": ready, "live": live, "large": large}
