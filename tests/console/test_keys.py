"""Keys: neighbours of the same key, the newest row of each, two states held against each other."""

from __future__ import annotations

import datetime
import decimal
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import virta
from tests.console.test_acts import OWN, post
from tests.console.test_server import get
from virta.console import application


@pytest.fixture
def client(scratch: Any) -> Iterator[TestClient]:
    with TestClient(application(scratch), base_url="http://127.0.0.1:7401", headers=OWN) as made:
        yield made


def test_neighbours_of_the_same_key(client: TestClient, scratch: Any) -> None:
    topic = scratch.create_topic("orders", {"id": int, "n": int}, keys=["id"])
    random.seed(7)
    keys = [random.randrange(20) for _ in range(2000)]
    topic.append([{"id": key, "n": n} for n, key in enumerate(keys)])
    for offset in (0, 3, 999, 1999):
        after = [at for at, key in enumerate(keys) if key == keys[offset] and at > offset]
        before = [at for at, key in enumerate(keys) if key == keys[offset] and at < offset]
        place = {"topic": "orders", "offset": offset}
        assert get(client, "api/near", **place, direction="next")["offset"] == min(after, default=None)
        assert get(client, "api/near", **place, direction="previous")["offset"] == max(before, default=None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, -5),
        (str, "o'b\"x"),
        (bytes, b"\x00\xff'"),
        (bool, True),
        (datetime.datetime, datetime.datetime(2026, 11, 19, 10, 0, 0, 123456, tzinfo=datetime.UTC)),
        (datetime.date, datetime.date(2026, 11, 19)),
        (decimal.Decimal, decimal.Decimal("12.50")),
        (str | None, None),
    ],
)
def test_a_key_of_any_type_finds_its_own_rows(
    client: TestClient, scratch: Any, kind: Any, value: Any
) -> None:
    import pyarrow as pa

    column = pa.decimal128(10, 2) if kind is decimal.Decimal else kind
    topic = scratch.create_topic("typed", {'the "key"': column, "n": int}, keys=['the "key"'])
    topic.append([{'the "key"': value, "n": n} for n in range(3)])
    where = get(client, "api/key", topic="typed", offset=1)["where"]
    assert [row["n"] for row in topic.where(where)] == [0, 1, 2]
    assert get(client, "api/near", topic="typed", offset=1, direction="next")["offset"] == 2


def test_the_newest_row_of_each_key(client: TestClient, scratch: Any) -> None:
    appended = scratch.create_topic("a", {"id": int, "n": int}, keys=["id"])
    table = scratch.create_topic("b", {"id": int, "n": int}, keys=["id"], kind="update")
    rows = [{"id": n % 5, "n": n} for n in range(50)]
    for topic in (appended, table):
        topic.append(rows)
    table.delete({"id": 3})
    found = get(client, "api/latest", topic="a")
    assert sorted(row[2:] for row in found["rows"]) == [[n % 5, n] for n in range(45, 50)]
    found = get(client, "api/latest", topic="b", where="n > 45")
    assert sorted(row[2:] for row in found["rows"]) == [[1, 46], [2, 47], [4, 49]]
    assert found["count"] == 3
    answer = client.get("/api/latest", params={"topic": "a", "where": "n > 1) or (1=1"})
    assert answer.status_code == 400  # a filter is parsed before it becomes a part of a query


def test_rows_of_update_topics_say_what_they_delete(client: TestClient, scratch: Any) -> None:
    table = scratch.create_topic("b", {"id": int, "n": int}, keys=["id"], kind="update")
    table.append({"id": 1, "n": 7})
    table.delete({"id": 1})
    names = [each["name"] for each in get(client, "api/topic", topic="b")["row_columns"]]
    rows = get(client, "api/rows", topic="b", start=0, stop=9)["rows"]
    assert [dict(zip(names, row[2:], strict=True)) for row in rows] == [
        {"_deleted": False, "id": 1, "n": 7},
        {"_deleted": True, "id": 1, "n": 0},
    ]
    row = get(client, "api/row", topic="b", offset=1)
    assert row["deletes"]
    assert [each["name"] for each in row["fields"]] == ["id", "n"]
    exported = client.get("/api/export", params={"topic": "b", "form": "csv"}).text.splitlines()
    assert exported[0] == "_offset,_timestamp,_deleted,id,n"
    assert len(exported) == 3


def test_replaying_an_update_topic_deletes_what_it_deleted(client: TestClient, scratch: Any) -> None:
    table = scratch.create_topic("b", {"id": int, "n": int}, keys=["id"], kind="update")
    copy = scratch.create_topic("c", {"id": int, "n": int}, keys=["id"], kind="update")
    table.append([{"id": n, "n": n} for n in range(4)])
    table.delete({"id": 1})
    table.append({"id": 2, "n": 9})
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_json({"id": "r", "op": "replay", "topic": "b", "target": "c"})
        while not socket.receive_json().get("end"):
            pass
    assert copy.table().to_pylist() == table.table().to_pylist()


def test_two_moments_of_a_topic(client: TestClient, scratch: Any) -> None:
    table = scratch.create_topic("b", {"id": int, "n": int}, keys=["id"], kind="update")
    table.append([{"id": n, "n": n} for n in range(4)])
    time.sleep(0.002)
    then = virta.requests.format_moment(time.time_ns() // 1000)
    time.sleep(0.002)
    table.append([{"id": 1, "n": 100}, {"id": 9, "n": 9}])
    table.delete({"id": 0})
    for before in ("4", then):
        found = post(client, "diff", {"topic": "b", "before": before})
        assert (found["inserted"], found["updated"], found["deleted"]) == (1, 1, 1)
        assert sorted(found["changes"]) == [
            ["delete", [0, 0], None],
            ["insert", None, [9, 9]],
            ["update", [1, 1], [1, 100]],
        ]
    found = post(client, "diff", {"topic": "b", "before": "4", "after": "4"})
    assert found["changes"] == []


def test_two_logs(client: TestClient, scratch: Any, tmp_path: Path) -> None:
    scratch.create_topic("a", {"id": int, "n": int}, keys=["id"]).append(
        [{"id": n, "n": n} for n in range(5)]
    )
    with virta.open(tmp_path / "other") as other:
        copy = other.create_topic("a", {"id": int, "n": int}, keys=["id"])
        copy.append([{"id": n, "n": n + (n == 2)} for n in range(4)])
    found = post(client, "diff", {"topic": "a", "other": str(tmp_path / "other")})
    assert sorted(found["changes"]) == [["delete", [4, 4], None], ["update", [2, 2], [2, 3]]]


def test_queries_as_of_a_moment(client: TestClient, scratch: Any) -> None:
    topic = scratch.create_topic("a", {"id": int}, keys=["id"])
    table = scratch.create_topic("b-2", {"id": int, "n": int}, keys=["id"], kind="update")
    topic.append([{"id": n} for n in range(5)])
    table.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    time.sleep(0.002)
    us = time.time_ns() // 1000
    time.sleep(0.002)
    topic.append({"id": 7})
    table.append({"id": 1, "n": 5})
    table.delete({"id": 2})
    query = 'with x as (select sum(n) as n from "b-2") select (select count(*) from a) as rows, n from x'
    with client.websocket_connect("/live", headers=OWN) as socket:
        for asked, wanted in ((None, [6, 5]), (us, [5, 3])):
            socket.send_json({"id": "q", "op": "sql", "query": query, "us": asked})
            assert socket.receive_json()["rows"] == [wanted]
            while not socket.receive_json().get("end"):
                pass


def test_groups_stand_where_they_stood(client: TestClient, scratch: Any) -> None:
    topic = scratch.create_topic("a", {"id": int})
    topic.append([{"id": n} for n in range(10)])
    place = {"topic": "a", "us": time.time_ns() // 1000}
    assert get(client, "api/asof", **place)["groups"] == []
    topic.group("g").reset(4)
    time.sleep(0.002)
    then = time.time_ns() // 1000
    time.sleep(0.002)
    topic.group("g").reset(9)
    now = get(client, "api/asof", topic="a", us=time.time_ns() // 1000)["groups"]
    assert [(each["group"], each["offset"]) for each in now] == [("g", 9)]
    was = get(client, "api/asof", topic="a", us=then)["groups"]
    assert [(each["group"], each["offset"]) for each in was] == [("g", 4)]
