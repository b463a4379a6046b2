"""A process of its own for what has to be measured alone: resident memory, a first opening.

    python -m bench.embedded.child list DIRECTORY
    python -m bench.embedded.child append DIRECTORY ROWS
    python -m bench.embedded.child tail DIRECTORY ROWS

Answers with one line of JSON on standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]  # where `bench` can be imported from
TOPIC = "log"


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Run this file in a process of its own."""
    command = [sys.executable, "-m", "bench.embedded.child", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait for its line of JSON."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a child process ended with {process.returncode}")
    found: dict[str, Any] = json.loads(output)
    return found


def status_bytes(name: str) -> int:
    """A size from /proc/self/status: VmRSS is resident now, VmHWM the most ever."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def list_topics(directory: Path) -> dict[str, Any]:
    from virta import open as open_log

    for warm_up in ("numpy", "pyarrow", "blake3"):
        __import__(warm_up)
    before = status_bytes("VmRSS")
    began = time.perf_counter()
    with open_log(directory) as log:
        names = [str(topic) for topic in log.topics()]
        seconds = time.perf_counter() - began
        return {"topics": len(names), "seconds": seconds, "bytes": status_bytes("VmRSS") - before}


def append(directory: Path, rows: int) -> dict[str, Any]:
    from bench.embedded.growth import FILL_BATCHES
    from bench.rows import BATCH_ROWS, batches
    from virta import open as open_log

    ready = [batch.arrow() for batch in batches(FILL_BATCHES)]
    began = time.perf_counter()
    with open_log(directory) as log:
        topic = log.topic(TOPIC)
        for number in range(rows // BATCH_ROWS):
            topic.append(ready[number % FILL_BATCHES])
        held = topic.next_offset
    return {"rows": held, "seconds": time.perf_counter() - began, "bytes": status_bytes("VmHWM")}


def tail(directory: Path, rows: int) -> dict[str, Any]:
    from virta import open as open_log

    began, seen = time.perf_counter(), 0
    with open_log(directory) as log:
        partition = log.topic(TOPIC).partition(0)
        for block in partition.stream(partition.first_token):
            seen += block.to_arrow().num_rows
            if seen >= rows:
                break
    return {"rows": seen, "seconds": time.perf_counter() - began, "bytes": status_bytes("VmHWM")}


def main(what: str, directory: str, rows: str = "0") -> None:
    place = Path(directory)
    if what == "list":
        found = list_topics(place)
    else:
        found = {"append": append, "tail": tail}[what](place, int(rows))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
