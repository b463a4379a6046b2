"""Room behind the data: no part of the log, wherever it is looked at from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import polars
import pyarrow as pa
import pytest

import virta


def _data_file(root: Path) -> Path:
    (found,) = root.glob("**/t/**/*.arrows")
    return found


def _committed(topic) -> int:
    return topic.stats().bytes


@pytest.fixture
def filled(tmp_path: Path):
    with virta.open(tmp_path / "log") as log:
        topic = log.create_topic("t", {"id": int}, durability="disk")
        for number in range(5):
            topic.append({"id": number})
        yield topic, _data_file(tmp_path)


def test_small_synced_blocks_get_zeros_ahead(filled) -> None:
    topic, path = filled
    data = path.read_bytes()
    assert len(data) > _committed(topic)
    assert not any(data[_committed(topic) :])


def test_other_readers_stop_where_the_data_ends(filled) -> None:
    _, path = filled
    with pa.ipc.open_stream(path) as reader:
        assert reader.read_all().column("id").to_pylist() == list(range(5))
    assert polars.read_ipc_stream(path)["id"].to_list() == list(range(5))


def test_verify_sees_no_leftover(filled) -> None:
    topic, _ = filled
    report = topic.verify()
    assert report.ok
    assert report.problems == ()


def test_closing_gives_it_back(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        topic = log.create_topic("t", {"id": int}, durability="disk")
        topic.append({"id": 1})
        topic.append({"id": 2})
        committed = _committed(topic)
    assert _data_file(tmp_path).stat().st_size == committed


def test_sealing_gives_it_back(filled, tmp_path: Path) -> None:
    topic, path = filled
    committed = _committed(topic)
    topic.alter(schema={"id": int, "more": str | None})
    assert path.stat().st_size == committed
    assert topic.verify().ok


_KILLED = """
import os, signal, sys, virta
topic = virta.open(sys.argv[1]).create_topic("t", {"id": int}, durability="disk")
for number in range(5):
    topic.append({"id": number})
os.kill(os.getpid(), signal.SIGKILL)
"""


def _killed(root: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(root)], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_room_of_a_killed_writer_is_no_torn_tail(tmp_path: Path) -> None:
    _killed(tmp_path / "log")
    with virta.open(tmp_path / "log") as log:
        topic = log.topic("t")
        assert topic.verify().problems == ()
        assert topic.append({"id": 5}).first_offset == 5
        assert [row["id"] for row in topic] == list(range(6))
    assert not list(tmp_path.rglob("*.torn-*"))


def test_a_block_begun_in_the_room_is_cut_and_kept(tmp_path: Path) -> None:
    _killed(tmp_path / "log")
    path = _data_file(tmp_path)
    with virta.open(tmp_path / "log") as log:
        committed = _committed(log.topic("t"))
    with path.open("r+b") as file:
        file.seek(committed)
        file.write(b"\xff\xff\xff\xff" + os.urandom(100))
    with virta.open(tmp_path / "log") as log:
        topic = log.topic("t")
        assert [problem.severity for problem in topic.verify().problems] == ["notice"]
        topic.append({"id": 5})
        assert [row["id"] for row in topic] == list(range(6))
        assert topic.verify().ok
    (kept,) = tmp_path.rglob("*.arrows.torn-1")
    assert kept.read_bytes().startswith(b"\xff\xff\xff\xff")
