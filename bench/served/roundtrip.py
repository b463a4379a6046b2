"""The round trip of one row: sent, committed, acknowledged, then the next."""

from __future__ import annotations

import time

from bench.harness import P50_MICROSECONDS, Bench, Contest, Sample, Target, percentiles
from bench.rows import flat
from bench.served.contenders import Served, field_of

WARM_UP_ROWS = 200


def roundtrip(bench: Bench) -> None:
    """One client that waits for each answer."""
    count = 1000 if bench.quick else 5000
    with field_of(bench) as field:
        bench.compete(
            Contest(
                workload="roundtrip",
                title="round trip of one row",
                conditions="durability os; one Python dict per call, one connection, each answer waited for",
                runners=field.runners(lambda served: _time(served, count)),
                targets=[
                    Target(metric=P50_MICROSECONDS, against="redis", times_cost=2),
                    Target(metric=P50_MICROSECONDS, against="kafka", times_cost=1),
                ],
            )
        )


def _time(served: Served, count: int) -> Sample:
    rows = flat(-(-(count + WARM_UP_ROWS) // 1000))[: count + WARM_UP_ROWS]
    clock, latencies = time.perf_counter_ns, []
    stream = served.fresh()
    with served.client(stream) as client:
        for row in rows[:WARM_UP_ROWS]:
            client.append_one(row)
        for row in rows[WARM_UP_ROWS:]:
            start = clock()
            client.append_one(row)
            latencies.append(clock() - start)
    served.check(stream, 1, count + WARM_UP_ROWS)
    return percentiles(latencies)
