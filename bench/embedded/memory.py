"""Resident memory: one process appends 10 GiB while another one tails it."""

from __future__ import annotations

from bench.embedded import child
from bench.harness import (
    MEBIBYTES,
    ROWS_PER_SECOND,
    Bench,
    Contest,
    Runner,
    Sample,
    Target,
    expect_rows,
)
from bench.rows import BATCH_ROWS

ROW_BYTES = 139  # a row of the append workload on disk: offset, time, key, value, their lengths


def memory(bench: Bench) -> None:
    """The most that was ever resident, mapped pages of files included, in each process."""
    try:
        from virta import open as open_log  # heavy, and perhaps not there
    except ImportError as error:
        print(f"\nmemory: not here ({error})")
        return
    size = 256 * 2**20 if bench.quick else 10 * 2**30
    rows = size // ROW_BYTES // BATCH_ROWS * BATCH_ROWS
    with bench.scratch() as place:
        with open_log(place) as log:
            log.create_topic(child.TOPIC)
        appending = child.start("append", str(place), str(rows))
        tailing = child.start("tail", str(place), str(rows))
        answers = {"appending": child.answer(appending), "tailing": child.answer(tailing)}

    def sample(name: str) -> Sample:
        found = answers[name]
        expect_rows(name, rows, found["rows"])
        return {MEBIBYTES: found["bytes"] / 2**20, ROWS_PER_SECOND: rows / found["seconds"]}

    runners: dict[str, Runner] = {
        "appending": lambda: sample("appending"),
        "tailing": lambda: sample("tailing"),
    }
    bench.compete(
        Contest(
            workload="memory",
            title=f"append {size / 2**30:g} GiB and tail it: peak resident memory",
            conditions="durability os; two processes at the same time; mapped file pages are counted",
            runners=runners,
            targets=[Target(metric=MEBIBYTES, contender=name, limit=400) for name in runners],
            rounds=1,
        )
    )
