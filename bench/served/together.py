"""Producing and consuming at the same time: from the first row sent to the last row received."""

from __future__ import annotations

import time

from bench.harness import ROWS_PER_SECOND, Bench, Contest, Sample, expect_rows
from bench.rows import BATCH_ROWS, batches, flat
from bench.served.child import Child
from bench.served.contenders import Served, field_of
from bench.served.throughput import BATCH_TARGETS, ROW_TARGETS, WORDS

FORMS = {"ready": "consumed into Arrow", "rows": "consumed as one Python object per row"}


def together(bench: Bench) -> None:
    """A consumer in a process of its own has all rows."""
    count = 100 if bench.quick else 300
    with field_of(bench) as field:
        for form, consumed in FORMS.items():
            bench.compete(
                Contest(
                    workload="together",
                    title=f"produce and consume {count * BATCH_ROWS:,} rows at once, {form}",
                    conditions=f"durability os; one producer, one consumer; {WORDS[form]}; {consumed}",
                    runners=field.runners(
                        lambda served, form=form: _time(served, form, count)  # type: ignore[misc]
                    ),
                    targets=BATCH_TARGETS if form == "ready" else ROW_TARGETS,
                )
            )


def _time(served: Served, form: str, count: int) -> Sample:
    rows = count * BATCH_ROWS
    stream = served.fresh()
    child = Child(
        task="consume",
        peer=served.name,
        address=served.server.address,
        stream=stream,
        partitions=1,
        rows=rows,
        form=form,
    )
    try:
        with served.client(stream) as client:
            made = client.ready(batches(count)) if form == "ready" else flat(count)
            child.wait_ready()
            child.go()
            began = time.monotonic()
            if form == "ready":
                client.produce(made)
            else:
                client.produce_rows(made)
            found = child.answer()
    finally:
        child.end()
    expect_rows(served.name, rows, found["rows"])
    return {ROWS_PER_SECOND: rows / (found["ended"] - began)}
