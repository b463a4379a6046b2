"""Streams at the end of a partition: rows of this broker and of other processes, in their order."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import virta
from tests.served import Served

ROUNDS = 40
# Appends one row to the directory for each line it reads, and says when it has.
LOCAL_WRITER = """
import sys, virta
with virta.open(sys.argv[1]) as log:
    topic = log.topic("t")
    for line in sys.stdin:
        topic.append({"n": int(line), "who": "process"})
        print("done", flush=True)
"""


def test_rows_of_the_broker_and_of_a_process_reach_a_stream_in_order(tmp_path: Path) -> None:
    with Served(tmp_path / "log") as served, virta.open(served.address) as log:
        topic = log.create_topic("t", {"n": int, "who": str})
        seen: list[tuple[int, int, str]] = []
        grown = threading.Condition()

        def follow() -> None:
            with virta.open(served.address) as other:
                for row in other.topic("t").tail():
                    with grown:
                        seen.append((row.offset, row["n"], row["who"]))
                        grown.notify()
                    if len(seen) == 3 * ROUNDS:
                        return

        def wait_for(count: int) -> None:
            with grown:
                assert grown.wait_for(lambda: len(seen) >= count, 20), f"{len(seen)} rows came, not {count}"

        reader = threading.Thread(target=follow)
        reader.start()
        command = [sys.executable, "-c", LOCAL_WRITER, str(tmp_path / "log")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            for number in range(ROUNDS):
                # its row alone, while the stream waits; then one of each right after the other
                for here in (False, number % 2 == 0, number % 2 == 1):
                    if here:
                        topic.append({"n": number, "who": "broker"})
                        continue
                    process.stdin.write(f"{number}\n")
                    process.stdin.flush()
                    assert process.stdout.readline() == "done\n"
                if number % 3 == 0:
                    wait_for(3 * (number + 1))
            process.stdin.close()
        wait_for(3 * ROUNDS)
        reader.join(20)
        rows = [(row.offset, row["n"], row["who"]) for row in topic[:]]
    assert seen == rows
    assert [offset for offset, _, _ in seen] == list(range(3 * ROUNDS))
