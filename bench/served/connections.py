"""Many connections at once, and many partitions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from bench.harness import ROWS_PER_SECOND, Bench, Contest, Sample
from bench.rows import BATCH_ROWS
from bench.served.child import Child
from bench.served.contenders import Served, field_of
from bench.served.throughput import BATCH_TARGETS, ROW_TARGETS, WORDS, produced

# connections → thousands of rows that each of them sends
SHARES = {1: 256, 16: 16, 256: 1}
PARTITIONS = 16


def connections(bench: Bench) -> None:
    """The same rows over 1, 16 and 256 connections of one process."""
    with field_of(bench) as field:
        for form in ("ready", "rows"):
            for number, batches_each in SHARES.items():
                bench.compete(
                    Contest(
                        workload="connections",
                        title=f"produce over {number} connection{'s' * (number > 1)}, {form}",
                        conditions=(
                            f"durability os; one client process, a thread for each connection,"
                            f" {batches_each * BATCH_ROWS:,} rows each; {WORDS[form]}"
                        ),
                        runners=field.runners(
                            lambda served, number=number, each=batches_each, form=form: _time(  # type: ignore[misc]
                                served, number, each, form
                            )
                        ),
                        targets=BATCH_TARGETS if form == "ready" else ROW_TARGETS,
                        rounds=min(2, bench.options.rounds),
                    )
                )


def _time(served: Served, number: int, batches_each: int, form: str) -> Sample:
    stream = served.fresh()
    child = Child(
        task="produce",
        peer=served.name,
        address=served.server.address,
        stream=stream,
        partitions=1,
        count=batches_each,
        form=form,
        connections=number,
    )
    try:
        child.wait_ready()
        child.go()
        found = child.answer()
    finally:
        child.end()
    served.check(stream, 1, found["rows"])
    return {ROWS_PER_SECOND: found["rows"] / (found["ended"] - found["began"])}


def produce_over(clients: Sequence[Any], shares: Sequence[Any], form: str) -> None:
    """Each client sends its share in a thread of its own."""
    failures: list[BaseException] = []

    def work(client: Any, share: Any) -> None:
        try:
            (client.produce if form == "ready" else client.produce_rows)(share)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(clients, shares, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def partitions(bench: Bench) -> None:
    """Sixteen partitions instead of one."""
    count = 100 if bench.quick else 300
    with field_of(bench) as field:
        for form in ("ready", "rows"):
            produced(bench, field, form, count, PARTITIONS)
