"""Rows a second: producing in three forms, consuming in two."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.embedded.replay import expect_values, touch
from bench.harness import ROWS_PER_SECOND, Bench, Contest, Sample, Target, expect_rows
from bench.rows import BATCH_ROWS, VALUE_BYTES, batches, flat
from bench.served.contenders import NAMES, Field, Served, field_of
from bench.served.peers.contract import Client

WARM_UP_BATCHES = 5

READY = (
    "ready batches, made beforehand: Arrow for Virta, lists of field dicts for redis-py's pipeline"
    " (packed: bytes), payloads for NATS, lists of dicts for Kafka's produce_batch"
)
ROWS = "one Python dict and one call per row on every side"
LISTS = "one Python dict per row on every side, in lists of a thousand"

BATCH_TARGETS = (
    Target(metric=ROWS_PER_SECOND, against="redis", times_better=10),
    Target(metric=ROWS_PER_SECOND, against="nats", times_better=10),
    Target(metric=ROWS_PER_SECOND, against="kafka", times_better=3),
)
ROW_TARGETS = (
    Target(metric=ROWS_PER_SECOND, against="redis", times_better=3),
    Target(metric=ROWS_PER_SECOND, against="nats", times_better=3),
    Target(metric=ROWS_PER_SECOND, against="kafka", times_better=1),
)

# (what is made beforehand, how it is sent)
Form = tuple[Callable[[Client, int], Any], Callable[[Client, Any], None]]


def _ready(client: Client, count: int) -> Sequence[Any]:
    return client.ready(batches(count))


def _flat(_: Client, count: int) -> Sequence[Any]:
    return flat(count)


def _lists(_: Client, count: int) -> Sequence[Any]:
    return [batch.rows() for batch in batches(count)]


FORMS: dict[str, Form] = {
    "ready": (_ready, lambda client, made: client.produce(made)),
    "rows": (_flat, lambda client, made: client.produce_rows(made)),
    "lists": (_lists, lambda client, made: client.produce_lists(made)),
}
WORDS = {"ready": READY, "rows": ROWS, "lists": LISTS}


def produce(bench: Bench) -> None:
    """One connection, one partition."""
    count = 100 if bench.quick else 300
    with field_of(bench) as field:
        for form in FORMS:
            produced(bench, field, form, count, 1)


def produced(bench: Bench, field: Field, form: str, count: int, partitions: int) -> None:
    bench.compete(
        Contest(
            workload="produce" if partitions == 1 else "partitions",
            title=f"produce {count * BATCH_ROWS:,} rows, {_partitions(partitions)}, {form}",
            conditions=f"durability os; one connection; {WORDS[form]}",
            runners=field.runners(lambda served: time_produce(served, form, count, partitions), _names(form)),
            targets=BATCH_TARGETS if form == "ready" else ROW_TARGETS,
        )
    )


def _names(form: str) -> Sequence[str]:
    return (*NAMES, "redis packed") if form == "ready" else NAMES


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def time_produce(served: Served, form: str, count: int, partitions: int) -> Sample:
    make, send = FORMS[form]
    stream = served.fresh(partitions)
    with served.client(stream, partitions) as client:
        send(client, make(client, WARM_UP_BATCHES))
        made = make(client, count)
        start = time.perf_counter()
        send(client, made)
        seconds = time.perf_counter() - start
    served.check(stream, partitions, (count + WARM_UP_BATCHES) * BATCH_ROWS)
    return {ROWS_PER_SECOND: count * BATCH_ROWS / seconds}


# -- consuming --------------------------------------------------------------------------


def consume(bench: Bench) -> None:
    """What was produced, from its first row, by one client."""
    count = 100 if bench.quick else 300
    with field_of(bench) as field:
        stream = filled(count)
        _consumed(bench, field, count, "Arrow", lambda served: time_consume(served, stream(served), count))
        _consumed(
            bench, field, count, "Python objects", lambda served: _time_rows(served, stream(served), count)
        )


def filled(count: int) -> Callable[[Served], str]:
    """A stream with rows in it, made with the contender's first turn."""
    streams: dict[str, str] = {}

    def fill(served: Served) -> str:
        found = streams.get(served.name)
        if found is None:
            found = streams[served.name] = served.fresh()
            with served.client(found) as client:
                client.produce(client.ready(batches(count)))
        return found

    return fill


def _consumed(bench: Bench, field: Field, count: int, into: str, run: Callable[[Served], Sample]) -> None:
    targets = [
        Target(metric=ROWS_PER_SECOND, against=name, times_better=5) for name in ("redis", "nats", "kafka")
    ]
    bench.compete(
        Contest(
            workload="consume",
            title=f"consume {count * BATCH_ROWS:,} rows into {into}, 1 partition",
            conditions="one connection; offset, time, key and value; what was sent lies in the page cache",
            runners=field.runners(run),
            targets=targets if into == "Arrow" else ROW_TARGETS,
        )
    )


def time_consume(served: Served, stream: str, count: int) -> Sample:
    with served.client(stream) as client:
        start = time.perf_counter()
        table = client.consume(count * BATCH_ROWS)
        touch(table["value"])
        seconds = time.perf_counter() - start
    expect_rows(served.name, count * BATCH_ROWS, table.num_rows)
    expect_values(served.name, table)
    return {ROWS_PER_SECOND: count * BATCH_ROWS / seconds}


def _time_rows(served: Served, stream: str, count: int) -> Sample:
    with served.client(stream) as client:
        start = time.perf_counter()
        rows, size = client.consume_rows(count * BATCH_ROWS)
        seconds = time.perf_counter() - start
    expect_rows(served.name, count * BATCH_ROWS, rows)
    expect_rows(f"{served.name} (bytes)", rows * VALUE_BYTES, size)
    return {ROWS_PER_SECOND: rows / seconds}
