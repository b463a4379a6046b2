"""Erasing rows: not a byte of them is left in the log, and the log is whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from virta.errors import Denied, Locked, NotFound, SchemaMismatch, UsageError
from virta.log import Log
from virta.steward.steward import Steward
from virta.storage.files import OperatingSystemFiles
from virta.storage.statistics import make
from virta.topics.topic import Topic

SECRET = "Agnes-Wasserfall-4711"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with Log(path) as log:
        yield log


def roll(topic: Topic) -> None:
    with topic.partition(0).stored.writing() as committer:
        committer.roll()


def fill(log: Log, **options: Any) -> Topic:
    """Three segments; the secret stands in each of them, in texts, lists and a dictionary column."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("user", pa.string()),
            pa.field("city", pa.dictionary(pa.int32(), pa.string())),
            pa.field("notes", pa.list_(pa.string())),
        ]
    )
    topic = log.create_topic("orders", schema, keys=["id"], **{"row_deletion": True, **options})
    for number in range(60):
        if number in (20, 40):
            roll(topic)
        secret = number % 10 == 3
        topic.append(
            [
                {
                    "id": 1000 + number,
                    "user": SECRET if secret else f"user {number}",
                    "city": f"city of {SECRET}" if secret else "Turku",
                    "notes": [SECRET, "x"] if secret else [],
                },
                {"id": 5000 + number, "user": "other", "city": "Turku", "notes": None},
            ]
        )
    return topic


def files_with(path: Path, text: str) -> list[str]:
    wanted = text.encode()
    return [
        str(file.relative_to(path))
        for file in path.rglob("*")
        if file.is_file() and wanted in file.read_bytes()
    ]


def test_every_byte_of_the_rows_goes(log: Log, path: Path) -> None:
    topic = fill(log)
    stored = topic.partition(0).stored
    with stored.view() as view:
        for index in range(2):
            make(stored.files, stored.paths, view.segment(index))  # statistics hold the least and greatest
    evidence = stored.paths.root / "00000000000000000000.arrows.torn-1"
    evidence.write_text(f"cut: {SECRET}")
    aside = stored.paths.root / ".00000000000000000000.arrows.123-abc"
    aside.write_text(SECRET)
    tokens = [topic.token(offset) for offset in range(0, 121, 7)]
    head = topic.head
    assert len(files_with(path, SECRET)) >= 5
    erased = topic.erase(where=f"user = '{SECRET}'")
    assert (erased.rows, erased.segments, erased.partitions, erased.dry_run) == (6, 3, 1, False)
    assert files_with(path, SECRET) == []
    assert not evidence.exists() and not aside.exists()
    assert topic.count() == len(topic) == 114
    assert [row["id"] for row in topic[:] if row["id"] < 5000] == [
        1000 + number for number in range(60) if number % 10 != 3
    ]
    for token in tokens:
        topic.partition(0).poll(token)
    report = topic.verify(against=head)
    assert report.ok and report.problems == ()
    assert [(each.reason, each.rows_removed) for each in report.receipts] == [("erased", 2)] * 3
    events = [event for event in log.topic("__events") if event["kind"] == "rows erased"]
    assert [event["from_offset"] for event in events] == [0, 40, 80]


def test_neither_this_nor_another_process_serves_them_from_memory(log: Log, path: Path) -> None:
    topic = fill(log)
    with Log(path, files=OperatingSystemFiles()) as other:
        there = other.topic("orders")
        assert any(row["user"] == SECRET for row in there[:])
        topic.erase(where=f"user = '{SECRET}'")
        for each in (topic, there):
            assert not any(row["user"] == SECRET for row in each[:])
            assert each.count() == 114
            blocks, _ = each.partition(0).poll(each.token(86))
            assert SECRET not in str([block.to_pylist() for block in blocks])


def test_the_salt_goes_too(log: Log, path: Path) -> None:
    topic = fill(log)
    block = topic.partition(0).fetch(topic.token(6))
    digits = bytes(block.bytes)
    at = digits.index(block.header.digest.hex().encode())
    salt = digits[at - 32 : at].decode()
    assert files_with(path, salt)
    topic.erase(where=f"user = '{SECRET}'")
    assert files_with(path, salt) == []


def test_by_key(log: Log, path: Path) -> None:
    topic = fill(log)
    assert topic.erase(keys=[{"id": 1003}, {"id": 5004}, {"id": 99}]).rows == 2
    assert topic.erase(keys={"id": 1013}).rows == 1
    ids = {row["id"] for row in topic[:]}
    assert not ids & {1003, 5004, 1013} and len(ids) == 117
    assert topic.verify().ok
    assert topic.erase(keys={"id": 1003}).rows == 0


def test_a_dry_run_counts_and_changes_nothing(log: Log, path: Path) -> None:
    topic = fill(log, row_deletion=False)
    before = {file: file.read_bytes() for file in path.rglob("*.arrows")}
    erased = topic.erase(where=f"user = '{SECRET}'", dry_run=True)
    assert (erased.rows, erased.segments, erased.dry_run) == (6, 3, True)
    assert {file: file.read_bytes() for file in path.rglob("*.arrows")} == before


def test_what_is_refused(log: Log) -> None:
    topic = fill(log, row_deletion=False)
    with pytest.raises(Denied, match="does not allow"):
        topic.erase(keys={"id": 1003})
    topic.alter(row_deletion=True)
    with pytest.raises(UsageError, match="either a condition or keys"):
        topic.erase()
    with pytest.raises(UsageError, match="either a condition or keys"):
        topic.erase(where="id = 1", keys={"id": 1})
    with pytest.raises(SchemaMismatch, match="'id' is missing"):
        topic.erase(keys={"user": "x"})
    with pytest.raises(SchemaMismatch):
        topic.erase(keys={"id": "seven"})
    with pytest.raises((UsageError, NotFound)):
        topic.erase(where="nothing = 1")
    with pytest.raises(Denied):
        log.topic("__events").erase(where="topic = 'orders'")
    topic.lock()
    with pytest.raises(Locked):
        topic.erase(keys={"id": 1003})


def test_in_an_update_topic_a_key_goes_with_all_its_versions(log: Log, path: Path) -> None:
    topic = log.create_topic(
        "users",
        {"region": str, "id": int, "email": str | None},
        kind="update",
        keys=["region", "id"],
        row_deletion=True,
    )
    for number in range(200):
        topic.append(
            {"region": "eu", "id": number % 20, "email": SECRET if number == 47 else f"{number}@example.org"}
        )
        if number % 60 == 59:
            roll(topic)
    Steward(log).run_once(topic="users", force=True)
    topic.append({"region": "eu", "id": 9, "email": SECRET})
    topic.append({"region": "eu", "id": 9, "email": "after"})
    erased = topic.erase(where=f"email = '{SECRET}'")
    assert erased.rows >= 2
    assert {row["id"] for row in topic[:]} == set(range(20)) - {9}
    assert files_with(path, SECRET) == []
    assert topic.verify().ok


@pytest.mark.parametrize("seed", range(3))
def test_erasing_compacting_and_appending_in_turn(log: Log, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    topic = log.create_topic(
        "users", {"id": int, "text": str}, kind="update", keys=["id"], row_deletion=True, tombstone_age="1us"
    )
    table: dict[int, str] = {}
    steward = Steward(log)
    gone: list[str] = []
    for step in range(25):
        rows = [
            {"id": rng.randrange(30), "text": f"text-{seed}-{step}-{at}-end"}
            for at in range(rng.randrange(1, 9))
        ]
        topic.append(rows)
        table.update({row["id"]: row["text"] for row in rows})
        if rng.random() < 0.3:
            roll(topic)
        if rng.random() < 0.3 and table:
            key = rng.choice(sorted(table))
            topic.erase(keys={"id": key})
            gone.append(table.pop(key))
        if rng.random() < 0.3:
            steward.run_once(topic="users", force=True)
        newest = {row["id"]: row["text"] for row in topic[:]}
        assert newest == table
    report = topic.verify()
    assert report.problems == ()
    assert all(not files_with(path, text) for text in gone)


def test_rows_of_several_partitions_and_schemas(log: Log, path: Path) -> None:
    topic = log.create_topic("wide", {"id": int, "user": str}, keys=["id"], partitions=3, row_deletion=True)
    topic.append([{"id": number, "user": SECRET if number % 4 == 0 else "x"} for number in range(60)])
    topic.alter(schema={"id": int, "user": str, "more": str | None})
    topic.append([{"id": number, "user": SECRET, "more": "y"} for number in range(60, 70)])
    erased = topic.erase(where=f"user = '{SECRET}'")
    assert (erased.rows, erased.partitions) == (25, 3)
    assert files_with(path, SECRET) == []
    assert topic.verify().ok and topic.count() == 45


def test_look_ups_and_tables_follow(log: Log, path: Path) -> None:
    topic = log.create_topic("users", {"id": int, "name": str}, kind="update", keys=["id"], row_deletion=True)
    for number in range(100):
        topic.append({"id": number % 25, "name": f"{SECRET} {number}"})
        if number % 30 == 29:
            roll(topic)
    with Log(path, files=OperatingSystemFiles()) as other:
        there = other.topic("users")
        assert there.get(7)["name"] == topic.get(7)["name"] == f"{SECRET} 82"
        assert topic.table().to_arrow().num_rows == 25
        Steward(log).run_once(topic="users", force=True)
        assert there.get(7)["name"] == topic.get(7)["name"] == f"{SECRET} 82"
        topic.erase(keys=7)
        assert there.get(7) is None and topic.get(7) is None
        assert topic.get(8)["name"] == there.get(8)["name"] == f"{SECRET} 83"
        assert sorted(there.table().to_arrow()["id"].to_pylist()) == sorted(set(range(25)) - {7})
    assert files_with(path, f"{SECRET} 82") == []
