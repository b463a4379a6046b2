"""The console over a broker, from elsewhere: the same pages; what takes the files says where they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import virta
from tests.console.test_acts import OWN, post
from tests.console.test_server import get
from tests.served import Served
from virta.console import application


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with Served(tmp_path_factory.mktemp("remote") / "log") as broker:
        orders = broker.log.create_topic("orders", {"id": int, "user": str}, keys=["id"])
        orders.append([{"id": n % 7, "user": "ada"} for n in range(100)])
        orders.group("billing").reset(40)
        life = broker.log.create_topic(
            "life", {"x": int, "y": int, "alive": bool}, kind="update", keys=["x", "y"]
        )
        life.append({"x": 1, "y": 2, "alive": True})
        life.append({"x": 1, "y": 2, "alive": False})
        with (
            virta.open(broker.address) as log,
            TestClient(application(log), base_url="http://127.0.0.1:7401", headers=OWN) as made,
        ):
            yield made


def test_what_is_looked_at(client: TestClient) -> None:
    assert get(client, "api/near", topic="orders", offset=5, direction="next")["offset"] == 12
    assert get(client, "api/latest", topic="orders")["count"] == 7
    assert get(client, "api/latest", topic="life")["rows"][0][2:] == [1, 2, False]
    then = get(client, "api/asof", topic="orders", us=time.time_ns() // 1000)
    assert (then["offset"], then["groups"][0]["offset"]) == (100, 40)
    assert sum(get(client, "api/histogram", topic="orders")["counts"]) == 100
    assert post(client, "diff", {"topic": "life", "before": "1"})["updated"] == 1
    assert post(client, "capsule/look", {"topic": "orders", "at": "10:20"})["rows"] == 10


def test_a_group_is_reset(client: TestClient) -> None:
    asked = {"group": "billing", "topic": "orders", "to": "10"}
    assert post(client, "group/plan", asked)["again"] == 30
    assert post(client, "group/reset", asked)["again"] == 30


@pytest.mark.parametrize("op", ["groups", "cells", "topics"])
def test_streams(client: TestClient, op: str) -> None:
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_json({"id": "s", "op": op, "topic": None if op == "groups" else "life"})
        found: dict[str, Any] = socket.receive_json()
        assert found[op]


@pytest.mark.parametrize("path", ["storage/plan", "chain?topic=orders", "block?topic=orders&number=0"])
def test_what_takes_the_files_says_where_they_are(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/{path}")
    assert answer.status_code == 503
    assert "broker itself" in answer.json()["error"]["hint"]
