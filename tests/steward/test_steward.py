"""The steward on real logs: what it removes, reports, cleans and leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from virta.errors import HistoryChanged
from virta.log import Log
from virta.steward.steward import Steward
from virta.topics.topic import Topic


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e6


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    with Log(tmp_path / "log", clock=clock) as log:
        yield log


def fill(log: Log, clock: Clock, *, segments: int = 4, **options: object) -> Topic:
    """So many segments of ten rows, an hour apart."""
    topic = log.create_topic("orders", {"id": int}, **options)
    for number in range(segments):
        if number:
            with topic.partition(0).stored.writing() as committer:
                committer.roll()
        topic.append([{"id": 10 * number + row} for row in range(10)])
        clock.now += 3600 * 1_000_000
    return topic


def test_retention_by_rows_removes_whole_segments(log: Log, clock: Clock) -> None:
    topic = fill(log, clock, retention_rows=15)
    token = topic.token(3)
    report = Steward(log, clock=clock).run_once()
    assert report.ok and report.topics == 1
    (part,) = report.partitions
    assert (part.topic, part.segments, part.rows, part.from_offset, part.to_offset) == (
        "orders",
        2,
        20,
        0,
        20,
    )
    assert part.reason == "rows"
    assert topic.start_offset == 20
    assert [row["id"] for row in topic[:]] == list(range(20, 40))
    with pytest.raises(HistoryChanged) as changed:
        topic.partition(0).poll(token)
    blocks, _ = topic.partition(0).poll(changed.value.oldest)
    assert blocks[0].base_offset == 20
    assert topic.verify().ok
    assert not Steward(log, clock=clock).run_once().partitions


def test_retention_by_age_seals_what_is_wholly_over_age(log: Log, clock: Clock) -> None:
    topic = fill(log, clock, retention_age="30m")
    report = Steward(log, clock=clock).run_once()
    (part,) = report.partitions
    assert part.sealed and part.rows == 40
    assert topic.start_offset == topic.next_offset == 40
    assert topic.append({"id": 40}).first_offset == 40
    assert [row["id"] for row in topic[:]] == [40]
    assert topic.verify().ok
    clock.now += 3600 * 1_000_000
    Steward(log, clock=clock).run_once()
    assert topic.start_offset == 41
    assert not Steward(log, clock=clock).run_once().partitions


def test_a_dry_run_says_the_same_and_does_nothing(log: Log, clock: Clock) -> None:
    topic = fill(log, clock, retention_bytes=1)
    steward = Steward(log, clock=clock)
    told = steward.run_once(dry_run=True)
    assert topic.start_offset == 0 and told.dry_run
    done = steward.run_once()
    assert told.partitions == done.partitions
    assert topic.start_offset == 30


def test_a_topic_without_limits_is_left_alone(log: Log, clock: Clock) -> None:
    fill(log, clock)
    report = Steward(log, clock=clock).run_once()
    assert report.topics == 1 and report.partitions == ()


def test_leftovers_of_interrupted_changes_are_cleaned(log: Log, clock: Clock) -> None:
    topic = fill(log, clock)
    root = topic.partition(0).stored.paths.root
    stray = root / f"{999:020d}.arrows"
    stray.write_bytes(b"x")
    evidence = root / f"{0:020d}.arrows.torn-1"
    evidence.write_bytes(b"x")
    (part,) = Steward(log, clock=clock).run_once().partitions
    assert part.cleaned == (stray.name,)
    assert not stray.exists() and evidence.exists()


def test_a_locked_topic_is_left_alone(log: Log, clock: Clock) -> None:
    fill(log, clock, retention_rows=1).lock()
    assert Steward(log, clock=clock).run_once().partitions == ()


def test_a_damaged_topic_does_not_keep_the_others_waiting(tmp_path: Path, clock: Clock) -> None:
    with Log(tmp_path / "log", clock=clock) as log:
        topic = fill(log, clock, retention_rows=1)
        log.create_topic("bad", {"id": int})
        manifest = tmp_path / "log" / "topics" / "bad" / "p0000" / "manifest"
    manifest.write_bytes(b"not a manifest at all" * 10)
    with Log(tmp_path / "log", clock=clock) as log:
        report = Steward(log, clock=clock).run_once()
        assert not report.ok
        assert {part.topic: bool(part.error) for part in report.partitions} == {"bad": True, "orders": False}
        topic = log.topic("orders")
        assert topic.start_offset == 30


def test_it_runs_in_the_background_until_it_is_stopped(log: Log, clock: Clock) -> None:
    topic = fill(log, clock, retention_rows=1)
    ran = threading.Event()

    class Watched(Steward):
        def run_once(self, **options: object):  # type: ignore[no-untyped-def, override]
            try:
                return super().run_once(**options)  # type: ignore[arg-type]
            finally:
                ran.set()

    with Watched(log, interval=0.01, clock=clock):
        assert ran.wait(10)
    assert topic.start_offset == 30


def test_appending_and_reading_go_on_meanwhile(log: Log, clock: Clock) -> None:
    topic = log.create_topic("orders", {"id": int, "text": str}, retention_rows=500, segment_bytes="64 KiB")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            topic.append([{"id": number + row, "text": "x" * 50} for row in range(100)])
            number += 100

    writer = threading.Thread(target=write)
    writer.start()
    steward = Steward(log, clock=clock)
    removed = 0
    try:
        while removed < 5:
            removed += steward.run_once().segments
            rows = topic[-50:].to_arrow()
            ids = rows.column("id").to_pylist()
            assert not ids or ids == list(range(ids[0], ids[0] + 50))
    finally:
        stop.set()
        writer.join()
    assert topic.start_offset > 0
    assert topic[:].count() == topic.next_offset - topic.start_offset
