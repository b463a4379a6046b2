"""The topics suite: its workloads in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.harness import Bench
from bench.topics.sql import sql
from bench.topics.tables import compaction, get, growth, memory, table
from bench.topics.upserts import changes, partial, upserts

Workload = Callable[[Bench], None]

WORKLOADS: Mapping[str, Workload] = {
    "upserts": upserts,
    "partial": partial,
    "changes": changes,
    "table": table,
    "get": get,
    "growth": growth,
    "sql": sql,
    "compaction": compaction,
    "memory": memory,
}
