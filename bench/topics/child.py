"""A process of its own for what has to be measured alone: resident memory, a first look at a table.

python -m bench.topics.child get|compact|table DIRECTORY [KEYS]

Answers with one line of JSON on standard output.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.embedded.child import ROOT, answer, status_bytes

TOPIC = "accounts"
GETS = 200_000


def run(*arguments: str) -> dict[str, Any]:
    """Run this file in a process of its own, and wait for what it says."""
    command = [sys.executable, "-m", "bench.topics.child", *arguments]
    return answer(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT))


def get(directory: Path, keys: int) -> dict[str, Any]:
    import virta

    generator = random.Random(9)
    with virta.open(directory, create=False) as log:
        topic = log.topic(TOPIC)
        start = time.perf_counter()
        topic.get(0)
        first = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(GETS):
            row = topic.get(generator.randrange(keys))
            assert row is not None
        seconds = time.perf_counter() - start
    note = f"{GETS:,} look-ups, {seconds / GETS * 1e6:.1f} µs each; the first took {first:.2f} s"
    return {"bytes": status_bytes("VmHWM"), "note": f"{note}, {_anonymous()}"}


def compact(directory: Path) -> dict[str, Any]:
    import virta
    from virta.steward.steward import Steward

    with virta.open(directory, create=False) as log:
        start = time.perf_counter()
        report = Steward(log).run_once(force=True)
        seconds = time.perf_counter() - start
        assert report.ok, report.partitions
    note = f"{report.rows:,} rows went in {seconds:.1f} s"
    return {"bytes": status_bytes("VmHWM"), "note": f"{note}, {_anonymous()}"}


def table(directory: Path) -> dict[str, Any]:
    import pyarrow as pa

    import virta

    pa.array([0])  # the first array brings pandas along, where that is installed: no part of a table's cost
    with virta.open(directory, create=False) as log:
        topic = log.topic(TOPIC)
        start = time.perf_counter()
        found = topic.table().to_arrow()
        return {"rows": found.num_rows, "seconds": time.perf_counter() - start}


def _anonymous() -> str:
    return f"{status_bytes('RssAnon') / 2**20:,.0f} MiB of it not of files at the end"


def main(what: str, directory: str, keys: str = "0") -> None:
    place = Path(directory)
    if what == "get":
        found = get(place, int(keys))
    else:
        found = {"compact": compact, "table": table}[what](place)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
