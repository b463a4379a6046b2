"""What is drawn of the chain, what is proven by it, and how a topic stood at a moment."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import virta
from virta.console import application
from virta.console.chain_reading import cells_of, header_at, segments_of
from virta.console.proof import check_proof, make_proof
from virta.console.verifying import compared

OWN = {"origin": "http://127.0.0.1:7401", "host": "127.0.0.1:7401"}


@pytest.fixture
def topic(scratch: Any) -> Any:
    made = scratch.create_topic("orders", {"id": int, "user": str}, segment_bytes="64KiB")
    for first in range(0, 4000, 100):
        made.append([{"id": n, "user": f"user {n}" * 3} for n in range(first, first + 100)])
    return made


@pytest.fixture
def client(scratch: Any, topic: Any) -> Iterator[TestClient]:
    with TestClient(application(scratch), base_url="http://127.0.0.1:7401", headers=OWN) as made:
        yield made


def stream(client: TestClient, request: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_text(json.dumps({"id": "x", **request}))
        while True:
            found.append(json.loads(socket.receive_text()))
            if "end" in found[-1] or "error" in found[-1]:
                return found


@pytest.mark.parametrize("most", [1200, 7])
def test_the_cells_cover_all_offsets_and_bytes(topic: Any, most: int) -> None:
    place = topic.partition(0)
    cells, blocks = cells_of(place, most)
    segments = segments_of(place)
    assert len(segments) > 2
    assert blocks == sum(cell.blocks for cell in cells) == sum(each["blocks"] for each in segments)
    assert sum(each["rows"] for each in segments) == 4000
    assert cells[0].base == 0
    assert cells[-1].end == 4000
    assert all(one.end == two.base for one, two in itertools.pairwise(cells))
    assert len(cells) <= most + len(segments)


def test_every_block_follows_from_the_one_before(topic: Any) -> None:
    place = topic.partition(0)
    _, blocks = cells_of(place)
    _, before, _ = header_at(place, 0)
    for number in range(blocks):
        header, previous, _ = header_at(place, number)
        assert previous == before
        before = header.hash
    assert before.hex() == topic.head
    with pytest.raises(virta.NotFound):
        header_at(place, blocks)


def test_a_proof_holds_and_a_changed_one_does_not(topic: Any) -> None:
    proof = json.loads(json.dumps(make_proof(topic, 0, 1234)))
    shown = check_proof(proof)
    assert shown["row"]["id"] == 1234
    assert shown["head"] == topic.head
    for part, at in (("block", 700), ("headers", 10), ("headers", 200), ("headers", -1)):
        changed = copy.deepcopy(proof)
        data = bytearray(base64.b64decode(changed[part]))
        data[at] ^= 1
        changed[part] = base64.b64encode(data).decode()
        with pytest.raises(virta.Corrupt):
            check_proof(changed)
    with pytest.raises(virta.Corrupt):
        check_proof({**proof, "head": "00" * 32})
    with pytest.raises(virta.Corrupt):
        check_proof({**proof, "offset": 3999})
    with pytest.raises(virta.UsageError):
        check_proof({"kind": "something else"})


def test_verifying_tells_how_far_it_is(client: TestClient, topic: Any) -> None:
    told = stream(client, {"op": "verify", "topic": "orders"})
    report = told[-2]
    assert report["done"] and report["ok"]
    assert report["rows"] == 4000
    assert report["heads"] == {"0": topic.head}
    missing = stream(client, {"op": "verify", "topic": "orders", "against": "00" * 32})[-2]
    assert not missing["ok"]


def test_a_changed_byte_is_found_and_named(tmp_path: Path, topic: Any, scratch: Any) -> None:
    scratch.sync()
    shutil.copytree(scratch.path, tmp_path / "copy")
    data = sorted((tmp_path / "copy" / "topics" / "orders" / "p0000").glob("*.arrows"))[1]
    changed = bytearray(data.read_bytes())
    changed[len(changed) // 2] ^= 1
    data.write_bytes(changed)
    with virta.open(tmp_path / "copy") as log:
        app = application(log)
        with TestClient(app, base_url="http://127.0.0.1:7401", headers=OWN) as client:
            report = stream(client, {"op": "verify", "topic": "orders"})[-2]
    assert not report["ok"]
    assert data.name in report["problems"][0]["file"]
    assert 0 < report["trustworthy"]["0"] < 4000


def test_a_noted_head_is_found(client: TestClient, topic: Any) -> None:
    noted = topic.head
    now = client.get("/api/find-head", params={"topic": "orders", "head": noted}).json()
    assert now == {"found": True, "is_head": True, "offset": 4000, "behind": 0}
    topic.append({"id": 1, "user": "later"})
    later = client.get("/api/find-head", params={"topic": "orders", "head": noted[:12]}).json()
    assert later == {"found": True, "is_head": False, "offset": 4000, "behind": 1}
    assert client.get("/api/find-head", params={"topic": "orders", "head": "00" * 32}).json() == {
        "found": False
    }


def test_logs_are_compared(tmp_path: Path, topic: Any, scratch: Any, client: TestClient) -> None:
    scratch.sync()
    shutil.copytree(scratch.path, tmp_path / "copy")
    ask = {"topic": "orders", "other": str(tmp_path / "copy")}
    assert client.post("/api/compare", json=ask).json()["relation"] == "same"
    topic.append([{"id": 1, "user": "here"}] * 5)
    assert client.post("/api/compare", json=ask).json()["relation"] == "ahead"
    with virta.open(tmp_path / "copy") as other:
        theirs = other.topic("orders")
        assert compared(theirs.partition(0), topic.partition(0))["relation"] == "behind"
        theirs.append([{"id": 1, "user": "there"}] * 9)
    told = client.post("/api/compare", json=ask).json()
    assert told == {"relation": "apart", "since": 4000, "mine": 4005, "theirs": 4009}


def test_a_topic_as_of_a_moment(client: TestClient, topic: Any) -> None:
    found = client.get("/api/histogram", params={"topic": "orders"}).json()
    assert sum(found["counts"]) == 4000
    assert len(found["edges"]) == len(found["counts"]) + 1
    moment = topic[1999].timestamp
    us = int(moment.timestamp() * 1_000_000)
    then = client.get("/api/asof", params={"topic": "orders", "us": us}).json()
    assert (
        then["offset"]
        == topic.until(moment).count() + topic.since(moment).until(topic[2000].timestamp).count()
    )
    assert then["rows"][-1][0] == then["offset"] - 1
    before = client.get("/api/asof", params={"topic": "orders", "us": 0}).json()
    assert (before["offset"], before["rows"], before["head"]) == (0, [], None)


def test_what_the_steward_would_remove(client: TestClient, topic: Any) -> None:
    assert client.get("/api/storage/plan").json()["rows"] == 0
    topic.alter(retention_rows=100)
    plan = client.get("/api/storage/plan", params={"topic": "orders"}).json()
    assert plan["rows"] > 0
    assert plan["parts"][0]["reason"]
    assert topic.start_offset == 0
    sizes = client.get("/api/storage").json()["topics"]
    assert sizes[0]["retention"]["rows"] == 100
    parts = client.get("/api/storage/topic", params={"topic": "orders"}).json()["partitions"]
    assert sum(count for _, count in parts[0]["block_sizes"]) == sum(
        each["blocks"] for each in parts[0]["segments"]
    )
