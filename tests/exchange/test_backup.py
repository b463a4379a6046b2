"""Backup and restore: what is copied verifies, what is there is not copied again, writers go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.errors import AlreadyExists, Corrupt, UsageError
from virta.exchange import backup as module
from virta.exchange.backup import backup, restore
from virta.log import Log


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "user": f"user {number}"} for number in range(first, first + count)]


def fill(log: Log, first: int, count: int, name: str = "orders", step: int = 200) -> None:
    topic = log.create_topic(name, {"id": int, "user": str}, segment_bytes="64KiB", if_missing=True)
    for start in range(first, first + count, step):
        topic.append(rows(start, step))


def ids(path: Path, name: str = "orders", *, tidy: bool = True) -> list[int]:
    with virta.open(path, create=False) as log:
        report = log.topic(name).verify()
        assert report.ok and not (tidy and report.problems), report.problems
        return log.topic(name)[:].to_arrow()["id"].to_pylist()


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with virta.open(tmp_path / "log") as opened:
        fill(opened, 0, 6000)
        yield opened


def test_a_backup_is_a_log(log: Log, tmp_path: Path) -> None:
    report = backup(log, tmp_path / "copy")
    assert ids(tmp_path / "copy") == list(range(6000))
    with virta.open(tmp_path / "copy") as copy:
        assert copy.topic("orders").head == log.topic("orders").head == report.topics[0].heads[0]
        assert copy.topic("orders").stats().segments == log.topic("orders").stats().segments > 3


def test_only_what_is_new_is_copied(log: Log, tmp_path: Path) -> None:
    first = backup(log, tmp_path / "copy").topics[0]
    assert first.is_new and first.segments_kept == 0 and first.rows == 6000
    again = backup(log, tmp_path / "copy").topics[0]
    assert (again.segments, again.bytes, again.segments_kept) == (0, 0, first.segments)
    fill(log, 6000, 200)
    small = backup(log, tmp_path / "copy").topics[0]
    assert small.segments == 1 and 0 < small.bytes < 30_000 and not small.is_new
    fill(log, 6200, 4000)
    backup(log, tmp_path / "copy")
    assert ids(tmp_path / "copy") == list(range(10200))


def test_sealed_files_are_not_touched_again(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    sealed = sorted((tmp_path / "copy").glob("topics/orders/p0000/*.arrows"))[:-1]
    before = [path.stat().st_mtime_ns for path in sealed]
    fill(log, 6000, 2000)
    backup(log, tmp_path / "copy")
    assert before == [path.stat().st_mtime_ns for path in sealed]


def test_a_dry_run_tells_and_copies_nothing(log: Log, tmp_path: Path) -> None:
    planned = backup(log, tmp_path / "copy", dry_run=True)
    assert not (tmp_path / "copy").exists()
    done = backup(log, tmp_path / "copy")
    assert planned.topics == done.topics and planned.dry_run and not done.dry_run


def test_some_topics_only(log: Log, tmp_path: Path) -> None:
    fill(log, 0, 200, "users")
    backup(log, tmp_path / "copy", topics=["users"])
    with virta.open(tmp_path / "copy") as copy:
        assert copy.topics() == ["users"]


def test_the_backup_of_another_log_is_refused(log: Log, tmp_path: Path) -> None:
    with virta.open(tmp_path / "other") as other:
        fill(other, 0, 200)
        backup(other, tmp_path / "copy")
    with pytest.raises(UsageError, match="another log"):
        backup(log, tmp_path / "copy")
    with pytest.raises(UsageError, match="onto itself"):
        backup(log, log.path)
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="letter"):
        backup(log, tmp_path / "busy")


def test_a_backup_that_was_written_to_is_left_alone(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    with virta.open(tmp_path / "copy") as copy:
        copy.topic("orders").append(rows(77, 1))
    with pytest.raises(UsageError, match="not in the source"):
        backup(log, tmp_path / "copy")
    fill(log, 6000, 200)
    with pytest.raises(UsageError, match="not in the source"):
        backup(log, tmp_path / "copy")
    assert ids(tmp_path / "copy")[-1] == 77


def test_a_damaged_block_is_not_copied(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    fill(log, 6000, 200)
    newest = max(log.path.glob("topics/orders/p0000/*.arrows"))
    data = bytearray(newest.read_bytes())
    data[-200] ^= 1
    newest.write_bytes(data)
    with pytest.raises(Corrupt) as caught:
        backup(log, tmp_path / "copy")
    assert caught.value.file == str(newest)
    assert ids(tmp_path / "copy") == list(range(6000))


def test_changes_of_the_topic_come_along(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    topic = log.topic("orders")
    topic.alter(schema={"id": int, "user": str, "note": str | None}, retention_rows=500)
    topic.append([{"id": 6000, "user": "u", "note": "new"}])
    virta.Steward(log).run_once()
    assert topic.start_offset > 0
    backup(log, tmp_path / "copy")
    with virta.open(tmp_path / "copy") as copy:
        copied = copy.topic("orders")
        assert copied.verify().ok and copied.start_offset == topic.start_offset
        assert copied.version == topic.version and copied.schema.equals(topic.schema)
        assert copied[-1]["note"] == "new"
        assert len(list(copy.path.glob("topics/orders/p0000/*.arrows"))) == topic.stats().segments


def test_a_topic_made_again_takes_the_place_of_the_old_one(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    log.topic("orders").alter(topic_deletion=True)
    log.drop_topic("orders")
    fill(log, 50, 200)
    assert backup(log, tmp_path / "copy").topics[0].is_new
    assert ids(tmp_path / "copy") == list(range(50, 250))


def test_two_at_once_are_refused(log: Log, tmp_path: Path) -> None:
    def again(step: Any) -> None:
        with pytest.raises(virta.UnavailableError, match="under way"):
            backup(log, tmp_path / "copy")

    backup(log, tmp_path / "copy", progress=again)


class Stop(Exception):
    pass


@pytest.mark.parametrize("fresh", [True, False])
def test_a_backup_cut_short_leaves_the_one_before(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    """Cut at every file operation that changes something, once each."""
    if not fresh:
        backup(log, tmp_path / "copy")
        fill(log, 6000, 1000)
    known = 0 if fresh else 6000
    total = 6000 if fresh else 7000
    files = log._files
    left = 0

    def counted(call: Any) -> Any:
        def act(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Stop
            return call(*arguments, **named)

        return act

    for allowed in range(400):
        left = allowed
        with monkeypatch.context() as patch:
            for name in ("pwrite", "rename", "truncate", "sync", "sync_directory", "unlink"):
                patch.setattr(files, name, counted(getattr(files, name)))
            try:
                backup(log, tmp_path / "copy")
                break
            except Stop:
                pass
        if fresh and not (tmp_path / "copy" / "topics" / "orders").exists():
            continue
        found = ids(tmp_path / "copy", tidy=False)
        assert found == list(range(len(found))) and known <= len(found) <= total
    assert allowed > 10
    assert ids(tmp_path / "copy") == list(range(total))


WRITER = """
import sys, virta
with virta.open(sys.argv[1]) as log:
    orders = log.topic("orders")
    number = orders.next_offset
    print("ready", flush=True)
    while True:
        orders.append([{"id": number + more, "user": f"user {more}"} for more in range(50)])
        number += 50
"""


def test_while_a_writer_runs_and_is_killed(log: Log, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(log.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        before = 0
        try:
            for _ in range(5):
                report = backup(log, tmp_path / "copy").topics[0]
                found = ids(tmp_path / "copy")
                assert found == list(range(report.rows)) and report.rows >= before
                before = report.rows
        finally:
            os.kill(writer.pid, signal.SIGKILL)
    backup(log, tmp_path / "copy")
    assert ids(tmp_path / "copy") == list(range(log.topic("orders").next_offset))


KILLED = """
import sys, virta
from virta.exchange.backup import backup
with virta.open(sys.argv[1]) as log:
    backup(log, sys.argv[2], progress=lambda step: print("step", flush=True))
"""


def test_a_killed_backup_is_gone_on_with(log: Log, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(log.path), str(tmp_path / "copy")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    backup(log, tmp_path / "copy")
    assert ids(tmp_path / "copy") == list(range(6000))


def test_restored_it_verifies_and_goes_on(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    planned = restore(tmp_path / "copy", tmp_path / "back", dry_run=True)
    assert planned.copied.bytes and not (tmp_path / "back").exists()
    report = restore(tmp_path / "copy", tmp_path / "back")
    assert report.ok and report.verified["orders"].rows == 6000
    with virta.open(tmp_path / "back") as back:
        fill(back, 6000, 1000)
    assert ids(tmp_path / "back") == list(range(7000))
    with pytest.raises(AlreadyExists):
        restore(tmp_path / "copy", tmp_path / "back")
    with pytest.raises(UsageError, match="onto itself"):
        restore(tmp_path / "copy", tmp_path / "copy")
    with pytest.raises(virta.NotFound):
        restore(tmp_path / "nowhere", tmp_path / "elsewhere")


def test_a_producer_goes_on_in_what_was_restored(log: Log, tmp_path: Path) -> None:
    with log.topic("orders").writer(producer="p") as writer:
        writer.send_batch(rows(0, 10))
    fill(log, 0, 4000)
    backup(log, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "back")
    with virta.open(tmp_path / "back") as back, back.topic("orders").writer(producer="p") as writer:
        assert writer.last_sequence == 9


def test_a_restore_cut_short_is_finished(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup(log, tmp_path / "copy")

    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(module, "put_in_force", stop)
        with pytest.raises(Stop):
            restore(tmp_path / "copy", tmp_path / "back")
    assert restore(tmp_path / "copy", tmp_path / "back").ok
    assert ids(tmp_path / "back") == list(range(6000))


def test_damage_in_the_backup_is_found_while_restoring(log: Log, tmp_path: Path) -> None:
    backup(log, tmp_path / "copy")
    data = sorted((tmp_path / "copy").glob("topics/orders/p0000/*.arrows"))[1]
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with pytest.raises(Corrupt):
        restore(tmp_path / "copy", tmp_path / "back")
