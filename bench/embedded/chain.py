"""What the hash chain costs: the same append with and without hashing.

There is no setting for it, and there will be none: the measuring process puts a hasher
that does nothing in the place of BLAKE3, for its own appends only.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from bench.harness import MICROSECONDS, Bench, Contest, Sample, Target, expect_rows
from bench.rows import BATCH_ROWS, batches

HASHING_MODULES = ("virta.storage.block", "virta.storage.chain")
WARM_UP_BATCHES = 5


class NoHash:
    """Takes what BLAKE3 takes and does nothing with it."""

    def __init__(self, _data: object = b"") -> None:
        pass

    def update(self, _data: object) -> NoHash:
        return self

    def digest(self) -> bytes:
        return bytes(32)


@contextmanager
def no_hashing() -> Iterator[None]:
    """While this lasts, blocks are stamped without being hashed."""
    modules = [importlib.import_module(name) for name in HASHING_MODULES]
    hashers = [module.__dict__["blake3"] for module in modules]
    for module in modules:
        module.__dict__["blake3"] = NoHash
    try:
        yield
    finally:
        for module, hasher in zip(modules, hashers, strict=True):
            module.__dict__["blake3"] = hasher


def chain(bench: Bench) -> None:
    """The time of a batch of a thousand rows, in process."""
    count = 40 if bench.quick else 200
    bench.compete(
        Contest(
            workload="chain",
            title="the chain's cost: 1,000 rows of 100-byte values per append",
            conditions="durability os; ready Arrow batches; the other side does not hash at all",
            runners={
                "virta": functools.partial(_append, bench, count, hashing=True),
                "without hashing": functools.partial(_append, bench, count, hashing=False),
            },
            targets=[Target(metric=MICROSECONDS, against="without hashing", times_cost=1.4)],
        )
    )


def _append(bench: Bench, count: int, *, hashing: bool) -> Sample:
    from virta import open as open_log  # heavy, and perhaps not there

    ready = [batch.arrow() for batch in batches(count + WARM_UP_BATCHES)]
    with (
        bench.scratch() as place,
        # around it all: what is read back is checked the same way
        nullcontext() if hashing else no_hashing(),
        open_log(place) as log,
    ):
        topic = log.create_topic("log")
        for batch in ready[:WARM_UP_BATCHES]:
            topic.append(batch)
        start = time.perf_counter()
        for batch in ready[WARM_UP_BATCHES:]:
            topic.append(batch)
        seconds = time.perf_counter() - start
        expect_rows("virta", len(ready) * BATCH_ROWS, topic.next_offset)
    return {MICROSECONDS: seconds / count * 1e6}
