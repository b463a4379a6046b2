"""Compaction killed at every change it makes to the disk: the log opens, verifies and reads the same.

A kill between two reads leaves the same disk as one at the next change, so every write (half of
it done), file made, rename, unlink, truncation and sync is a place to die; nothing after it is
done, as if the process were gone.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.log import Log
from virta.steward.steward import Steward
from virta.storage.files import Bytes
from virta.testing.files import FilesTwin

KILLED = 99
READING = {"open", "pread", "size", "map", "stat", "names", "lock"}


class DyingFiles(FilesTwin):
    """The process is gone at the n-th change from when counting began."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def _touch(self, kind: str, path: Path, act: Callable[[], Any]) -> Any:
        if self.left is not None and kind not in READING:
            self.left -= 1
            if self.left < 0:
                os._exit(KILLED)
        return act()

    def _write(self, descriptor: int, parts: Sequence[Bytes], position: int) -> int:
        if self.left == 0:
            data = b"".join(parts)
            self._real.pwrite(descriptor, data[: len(data) // 2], position)
        return super()._write(descriptor, parts, position)


def fill(log: Log) -> None:
    """Rows of few keys over several segments, partitions and schemas, with deletions old enough to go."""
    topic = log.create_topic(
        "users",
        {"id": int, "name": str},
        kind="update",
        keys=["id"],
        partitions=2,
        segment_bytes=64 * 1024,
        tombstone_age="1us",
    )
    for turn in range(4):
        topic.append([{"id": number % 17, "name": f"{turn}-{number}" * 40} for number in range(300)])
        topic.delete([3, 5 + turn])
    topic.alter(schema={"id": int, "name": str, "age": int | None})
    topic.append([{"id": number, "name": "new", "age": number} for number in range(8, 12)])


def looked_at(log: Log) -> dict[str, Any]:
    topic = log.topic("users")
    return {
        "table": sorted(map(str, topic.table().to_arrow().to_pylist())),
        "get": [topic.get(number) and dict(topic.get(number)) for number in range(18)],
        "next": dict(topic.next_offsets),
        "heads": dict(topic.heads),
    }


def steward(path: Path, at: int) -> bool:
    """One forced round over a log in a process of its own; whether it was killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: it opens a log anew
        child = os.fork()
    if child == 0:
        code = 1
        try:
            files = DyingFiles()
            log = Log(path, files=files, create=False)
            log.topic("users")
            files.left = at
            report = Steward(log).run_once(force=True)
            files.left = None
            log.close()
            code = 0 if report.ok else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED), (at, code)
    return code == KILLED


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with virta.open(tmp_path / "filled") as log:
        fill(log)
    return tmp_path / "filled"


def test_compaction_killed_at_every_change(filled: Path, tmp_path: Path) -> None:
    with virta.open(filled) as log:
        before = looked_at(log)
        rows = {(row.partition, row.offset): dict(row) for row in log.topic("users")}
    at, was_killed = 0, True
    while was_killed:
        path = tmp_path / str(at)
        shutil.copytree(filled, path)
        was_killed = steward(path, at)
        with virta.open(path) as log:
            topic = log.topic("users")
            found = looked_at(log)
            # sealing writes control blocks, so heads may be later ones; rows and offsets are the same
            assert {**found, "heads": None} == {**before, "heads": None}, at
            for row in topic:
                assert rows[row.partition, row.offset] == dict(row), at
            report = topic.verify(against=before["heads"])
            assert report.ok, (at, report.problems)
            topic.append({"id": 99, "name": "after", "age": None})
            if at % 5 == 0 or not was_killed:
                assert Steward(log).run_once(force=True).ok
                assert topic.table().count() == len(before["table"]) + 1
                assert topic.verify().ok
        shutil.rmtree(path)
        at += 1
    assert at > 30
