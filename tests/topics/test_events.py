"""What is noted in `__events` when something goes wrong on the way there."""

from __future__ import annotations

import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import virta
from virta.log import Log
from virta.types import Event


def kinds(log: Log, topic: str) -> list[str]:
    return [row["kind"] for row in log.topic("__events").where(f"topic = '{topic}'")]


def test_what_cannot_be_noted_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with virta.open(tmp_path / "log") as log:
        log.create_topic("one", {"n": int})
    manifest = tmp_path / "log" / "topics" / "__events" / "p0000" / "manifest"
    kept = manifest.read_bytes()
    manifest.write_bytes(b"not a manifest")
    with virta.open(tmp_path / "log") as log, caplog.at_level(logging.WARNING, logger="virta.events"):
        log.create_topic("two", {"n": int}).append({"n": 1})
        assert not log.record_event(Event(kind="audit"))
    assert "'created' of topic 'two' could not be noted" in caplog.text
    manifest.write_bytes(kept)
    with virta.open(tmp_path / "log") as log:
        assert kinds(log, "two") == []
        log.topic("two").alter(retention_rows=7)
        assert kinds(log, "two") == ["created", "altered"]
        (created, _) = log.topic("__events").where("topic = 'two'")
        assert json.loads(created["details"])["noted_later"] is True


def test_many_at_once_make_one_topic(tmp_path: Path) -> None:
    logs = [virta.open(tmp_path / "log") for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        made = list(
            threads.map(lambda pair: pair[1].create_topic(f"t{pair[0]}", {"n": int}), enumerate(logs))
        )
    assert len(made) == 4
    assert sorted(row["topic"] for row in logs[0].topic("__events")) == ["t0", "t1", "t2", "t3"]
    for log in logs:
        log.close()


def test_a_log_made_before_there_were_events(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        log.create_topic("old", {"n": int})
    shutil.rmtree(tmp_path / "log" / "topics" / "__events")
    with virta.open(tmp_path / "log") as log:
        assert log.topics(internal=True) == ["old"]
        log.topic("old").lock()
        assert kinds(log, "old") == ["created", "locked"]


def test_reading_makes_no_topic(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        assert log.topics(internal=True) == []
    assert list((tmp_path / "log" / "topics").iterdir()) == []
