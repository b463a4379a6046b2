"""Bug capsules: what goes in comes out, as a log of its own and as a test."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import virta
from tests.console.test_acts import OWN, post
from virta.console import application
from virta.exchange.capsule import MOST_ROWS, write_capsule


@pytest.fixture
def client(scratch: Any) -> Iterator[TestClient]:
    with TestClient(application(scratch), base_url="http://127.0.0.1:7401", headers=OWN) as made:
        yield made


def made(client: TestClient, path: Path, **asked: Any) -> Path:
    answer = client.post("/api/capsule", json=asked, headers=OWN)
    assert answer.status_code == 200, answer.text
    path.write_bytes(answer.content)
    return path


def test_a_capsule_opens_as_a_log_with_rows_times_and_groups(
    client: TestClient, scratch: Any, tmp_path: Path
) -> None:
    topic = scratch.create_topic("orders", {"id": int, "user": str, "amount": float}, keys=["id"])
    for n in range(30):
        topic.append({"id": n, "user": "ada", "amount": n / 2})
    topic.group("billing").reset(15)
    path = made(client, tmp_path / "bug.capsule", topic="orders", at="10:20", note='says "no"')
    with virta.open(path) as log:
        directory, copy = log.path, log.topic("orders")
        assert [row.to_dict() for row in copy] == [row.to_dict() for row in topic[10:20]]
        assert [row.timestamp for row in copy] == [row.timestamp for row in topic[10:20]]
        assert (copy.schema, copy.config.keys) == (topic.schema, topic.config.keys)
        assert log.capsule.first == 10
        assert copy.group("billing").describe().partitions[0].offset == 5
        assert log.capsule.answer() == log.capsule.expected == [{"rows": 10}]
        assert copy.verify().ok
    assert not directory.exists()


def test_an_update_topic_keeps_what_it_deleted(client: TestClient, scratch: Any, tmp_path: Path) -> None:
    table = scratch.create_topic("users", {"id": int, "n": int}, keys=["id"], kind="update")
    table.append([{"id": n, "n": n} for n in range(4)])
    table.delete({"id": 1})
    path = made(client, tmp_path / "bug.capsule", topic="users", at=":", query="from users order by id")
    with virta.open(path) as log:
        assert log.topic("users").table().to_pylist() == table.table().to_pylist()
        assert [row["id"] for row in log.capsule.expected] == [0, 2, 3]


@pytest.mark.parametrize(("expected", "passes"), [(None, True), ([{"total": 1.0}], False)])
def test_its_test_runs(client: TestClient, scratch: Any, tmp_path: Path, expected: Any, passes: bool) -> None:
    scratch.create_topic("orders", {"amount": float}).append([{"amount": 1.5}, {"amount": 2.5}])
    path = made(
        client,
        tmp_path / "bug.capsule",
        topic="orders",
        at=":",
        query="select sum(amount) as total from orders",
        expected=expected,
    )
    with zipfile.ZipFile(path) as file:
        file.extract("test_capsule.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_capsule.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout


def test_what_will_be_in_it_is_shown_first(client: TestClient, scratch: Any) -> None:
    scratch.create_topic("orders", {"n": int}).append([{"n": n} for n in range(9)])
    found = post(client, "capsule/look", {"topic": "orders", "at": "2:8", "where": "n > 3"})
    assert (found["rows"], found["first"], found["last"]) == (4, 4, 7)
    assert found["expected"] == [{"rows": 4}]
    assert "virta.open" in found["test"]
    assert post(client, "capsule/look", {"topic": "orders", "at": "2:2"}, status=404)["error"]["hint"]


def test_a_capsule_is_bounded(scratch: Any, tmp_path: Path) -> None:
    topic = scratch.create_topic("orders", {"n": int})
    topic.append([{"n": 0}] * (MOST_ROWS + 1))
    with pytest.raises(virta.TooLarge):
        write_capsule(tmp_path / "x.capsule", topic, start=0, stop=MOST_ROWS + 1)


def test_what_is_no_capsule_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "x.capsule"
    path.write_bytes(b"PK nothing of the kind")
    with pytest.raises(virta.Corrupt, match="not a capsule"):
        virta.open(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("capsule.json", "[]")
    with pytest.raises(virta.Corrupt):
        virta.open(path)
