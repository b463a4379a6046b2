"""Members of groups in processes of their own, killed between the two steps of each promise.

At least once: the work, then the commit. At most once: the commit, then the work. Exactly
once: rows and position in one write, then the commit.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.served import Served
from virta.testing.conformance.base import up_to

ROWS, BATCH = 30, 7

# One member, whose name lets the next one take its place at once; it dies at the given call
# (counted from 1), just before or just after the commit is done.
MEMBER = """
import os, signal, sys
import virta

address, notes, promise, when, at = *sys.argv[1:5], int(sys.argv[5])
log = virta.open(address)
numbers, target = log.topic("numbers"), log.topic("target")
options = {"into": target} if promise == "exactly_once" else {"delivery": promise}
reader = numbers.reader(group="g", member="pod-0", session_timeout=30, **options)
commit, calls = reader._coordinator.commit, 0

def counted(key, member, commits):
    global calls
    calls += 1
    if calls == at and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(key, member, commits)
    if calls == at and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)

reader._coordinator.commit = counted
with open(notes, "a", buffering=1) as done, reader:
    for batch in reader.batches(7):
        found = batch.column("n").to_pylist()
        for n in found:
            if promise == "exactly_once":
                reader.send({"m": n})
            else:
                done.write(f"{n}\\n")
        if 29 in found:
            reader.commit()
            break
"""


@pytest.fixture(params=["directory", "broker"])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "directory":
        yield str(tmp_path / "events")
        return
    with Served(tmp_path / "events") as broker:
        yield broker.address


def run(address: str, notes: Path, promise: str, when: str, at: int) -> int:
    words = [sys.executable, "-c", MEMBER, address, str(notes), promise, when, str(at)]
    return subprocess.run(words, timeout=60, check=False).returncode


def prepare(address: str, **target: Any) -> None:
    with virta.open(address) as log:
        log.create_topic("numbers", {"n": int}).append(up_to(ROWS))
        log.create_topic("target", {"m": int}, **target)


def noted(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()]


def test_at_least_once_loses_nothing(address: str, tmp_path: Path) -> None:
    prepare(address)
    notes = tmp_path / "notes"
    assert run(address, notes, "at_least_once", "before", 2) == -signal.SIGKILL
    assert run(address, notes, "at_least_once", "never", 0) == 0
    found = noted(notes)
    assert sorted(set(found)) == list(range(ROWS))
    # the batch that was worked on and not committed came again, and no other
    assert sorted(n for n in set(found) if found.count(n) == 2) == list(range(BATCH, 2 * BATCH))


def test_at_most_once_doubles_nothing(address: str, tmp_path: Path) -> None:
    prepare(address)
    notes = tmp_path / "notes"
    assert run(address, notes, "at_most_once", "after", 2) == -signal.SIGKILL
    assert run(address, notes, "at_most_once", "never", 0) == 0
    # the batch that was committed and not worked on is lost, and no other
    assert noted(notes) == [n for n in range(ROWS) if not BATCH <= n < 2 * BATCH]


@pytest.mark.parametrize("partitions", [1, 3])
def test_exactly_once(address: str, tmp_path: Path, partitions: int) -> None:
    prepare(address, partitions=partitions, keys=["m"])
    notes = tmp_path / "notes"
    assert run(address, notes, "exactly_once", "before", 2) == -signal.SIGKILL
    with virta.open(address) as log:
        # the rows are there, the commit is not
        assert sorted(row["m"] for row in log.topic("target")) == list(range(2 * BATCH))
        (standing,) = log.topic("numbers").group("g").describe().partitions
        assert standing.offset == BATCH
    assert run(address, notes, "exactly_once", "after", 2) == -signal.SIGKILL
    assert run(address, notes, "exactly_once", "never", 0) == 0
    with virta.open(address) as log:
        assert sorted(row["m"] for row in log.topic("target")) == list(range(ROWS))
        assert log.topic("numbers").group("g").describe().lag.rows == 0
        assert log.topic("target").verify().ok
