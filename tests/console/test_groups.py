"""Groups in the console: lags over time, previews that tell the truth, resets that do what was previewed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.test_acts import OWN, post
from virta.console import ReadOnly, application
from virta.console.group_lags import GroupSampler


@pytest.fixture
def topic(scratch: Any) -> Any:
    made = scratch.create_topic("orders", {"id": int})
    made.append([{"id": n} for n in range(100)])
    read(made, 40)
    return made


def read(topic: Any, rows: int, group: str = "billing") -> None:
    with topic.reader(group=group) as reader:
        seen = 0
        for batch in reader.batches(max_rows=10, stop_when_idle=0.1):
            seen += len(batch)
            if seen >= rows:
                reader.commit()
                break


@pytest.fixture
def client(scratch: Any) -> Iterator[TestClient]:
    with TestClient(application(scratch), base_url="http://127.0.0.1:7401", headers=OWN) as made:
        yield made


def test_groups_are_streamed_with_their_lag(client: TestClient, topic: Any) -> None:
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_json({"id": "g", "op": "groups"})
        found = socket.receive_json()["groups"]
        assert [(each["group"], each["topic"], each["rows"]) for each in found] == [
            ("billing", topic.name, 60)
        ]
        part = found[0]["partitions"][0]
        assert (part["offset"], part["next"], part["rows"]) == (40, 100, 60)
        socket.send_json({"id": "t", "op": "topics"})
        told = next(each for each in iter(socket.receive_json, None) if each["id"] == "t")
        assert (told["topics"][0]["lag"], told["topics"][0]["group"]) == (60, "billing")


def test_a_trend_says_when_it_will_be_gone(scratch: Any, topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("virta.console.group_lags.time.monotonic", lambda: now)
    sampler = GroupSampler(scratch)
    assert sampler.sample()[0]["growth"] is None
    now += 10
    read(topic, 20)
    found = sampler.sample()[0]
    assert (found["rows"], found["growth"], found["reading"], found["clear"]) == (40, -2.0, 2.0, 20.0)
    now += 10
    topic.append([{"id": n} for n in range(30)])
    found = sampler.sample()[0]
    assert found["growth"] == 3.0
    assert found["clear"] is None


def test_what_a_reset_was_said_to_do_it_does(client: TestClient, topic: Any) -> None:
    asked = {"group": "billing", "topic": "orders", "to": "10"}
    plan = post(client, "group/plan", asked)
    assert (plan["again"], plan["skipped"]) == (30, 0)
    assert topic.group("billing").describe().partitions[0].offset == 40
    assert post(client, "group/reset", asked) == plan
    assert topic.group("billing").describe().partitions[0].offset == 10
    assert post(client, "group/plan", asked | {"to": "newest"})["skipped"] == 90
    assert "say where" in post(client, "group/plan", asked | {"to": ""}, status=400)["error"]["message"]


def test_a_group_that_is_read_is_left_alone(client: TestClient, topic: Any) -> None:
    with topic.reader(group="billing") as reader:
        next(iter(reader.batches(max_rows=1, stop_when_idle=1.0)))
        refused = post(
            client, "group/reset", {"group": "billing", "topic": "orders", "to": "oldest"}, status=400
        )
        assert refused["error"]["code"] == "conflict"


def test_forgetting_a_group_wants_its_name(client: TestClient, topic: Any) -> None:
    asked = {"group": "billing", "topic": "orders", "typed": "bill"}
    assert "type the group's name" in post(client, "group/remove", asked, status=400)["error"]["message"]
    post(client, "group/remove", asked | {"typed": "billing"})
    assert topic.groups() == []


def test_a_read_only_console_previews_and_does_not_reset(scratch: Any, topic: Any) -> None:
    with TestClient(
        application(scratch, access=ReadOnly()), base_url="http://127.0.0.1:7401", headers=OWN
    ) as client:
        asked = {"group": "billing", "topic": "orders", "to": "oldest"}
        assert post(client, "group/plan", asked)["again"] == 40
        post(client, "group/reset", asked, status=403)
    assert topic.group("billing").describe().partitions[0].offset == 40
