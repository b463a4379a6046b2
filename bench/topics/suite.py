"""The topics suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.harness import Bench
from bench.topics.sql import sql

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {
    "sql": sql,
}
