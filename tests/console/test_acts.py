"""What the console does to a log, by its interface: rows in and out, topics made and changed, SQL."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from starlette.testclient import TestClient

from virta.console import ReadOnly, application

OWN = {"origin": "http://127.0.0.1:7401", "host": "127.0.0.1:7401"}


@pytest.fixture
def orders(scratch: Any) -> Any:
    topic = scratch.create_topic("orders", {"id": int, "user": str, "note": str | None})
    topic.append([{"id": n, "user": "ada" if n % 2 else "bob", "note": None} for n in range(100)])
    return topic


@pytest.fixture
def client(scratch: Any, orders: Any) -> Iterator[TestClient]:
    with TestClient(application(scratch), base_url="http://127.0.0.1:7401", headers=OWN) as made:
        yield made


def post(client: TestClient, path: str, body: Any, status: int = 200) -> Any:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def stream(client: TestClient, request: dict[str, Any]) -> list[dict[str, Any]]:
    """All messages of a stream that ends by itself."""
    found = []
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_text(json.dumps({"id": "x", **request}))
        while True:
            found.append(json.loads(socket.receive_text()))
            if "end" in found[-1] or "error" in found[-1]:
                return found


def test_a_page_of_another_site_changes_nothing(client: TestClient, orders: Any) -> None:
    body = {"topic": "orders", "rows": [{"id": 1, "user": "eve"}]}
    for origin in ("http://evil.example", "http://127.0.0.1:1"):
        assert client.post("/api/append", json=body, headers={"origin": origin}).status_code == 403
    assert orders.next_offset == 100


def test_read_only_changes_nothing(scratch: Any, orders: Any) -> None:
    app = application(scratch, access=ReadOnly())
    with TestClient(app, base_url="http://127.0.0.1:7401", headers=OWN) as client:
        for path in ("append", "create", "alter", "lock", "drop", "delete"):
            body = {"topic": "orders", "name": "orders", "typed": "orders", "rows": [{"id": 1, "user": "x"}]}
            assert post(client, path, body, 403)["error"]["code"] == "denied"
        for op in ("generate", "replay"):
            told = stream(client, {"op": op, "topic": "orders", "target": "orders", "count": 1})
            assert told[-1]["error"]["code"] == "denied"
        assert client.post("/api/import?topic=orders&name=x.csv", content=b"").status_code == 403
    assert orders.next_offset == 100


def test_rows_of_a_form(client: TestClient, orders: Any) -> None:
    told = post(client, "append", {"topic": "orders", "rows": [{"id": 7, "user": "eve", "note": "hi"}]})
    assert (told["first"], told["last"], told["durability"]) == (100, 100, "os")
    assert orders[100].to_dict() == {"id": 7, "user": "eve", "note": "hi"}
    error = post(client, "append", {"topic": "orders", "rows": [{"id": "seven", "user": "eve"}]}, 400)[
        "error"
    ]
    assert "id" in error["message"]


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1, "user": "x"}\n{"id": 2, "user": "y"}',
        '[{"id": 1, "user": "x"}, {"id": 2, "user": "y"}]',
        "id,user\n1,x\n2,y\n",
        "id\tuser\n1\tx\n2\ty\n",
    ],
)
def test_pasted_rows(client: TestClient, orders: Any, text: str) -> None:
    looked = post(client, "append", {"topic": "orders", "text": text, "dry_run": True})
    assert looked["rows"] == 2
    assert looked["preview"]["rows"] == [[1, "x"], [2, "y"]]
    assert orders.next_offset == 100
    assert post(client, "append", {"topic": "orders", "text": text})["last"] == 101
    assert [row["user"] for row in orders[-2:]] == ["x", "y"]


def test_pasted_rows_that_do_not_fit_are_refused_whole(client: TestClient, orders: Any) -> None:
    text = '{"id": 1, "user": "x"}\n{"id": 2, "user": 3}'
    message = post(client, "append", {"topic": "orders", "text": text}, 400)["error"]["message"]
    assert "pasted:2" in message
    assert orders.next_offset == 100


def test_made_up_rows_are_the_same_for_a_seed(client: TestClient, orders: Any) -> None:
    request = {"op": "generate", "topic": "orders", "seed": 7, "count": 10}
    assert stream(client, {**request, "dry_run": True})[0]["preview"]["rows"]
    assert orders.next_offset == 100
    for _ in range(2):
        assert stream(client, request)[-2]["done"] == 10
    rows = orders[100:].to_pylist()
    assert rows[:10] == rows[10:]
    wrong = stream(client, {**request, "template": '{"id": "{{nothing}}"}'})
    assert "nothing" in wrong[-1]["error"]["message"]
    assert "files" in stream(client, {**request, "template": "@/etc/passwd"})[-1]["error"]["message"]


def test_a_replay_into_a_new_topic(client: TestClient, scratch: Any) -> None:
    request = {"op": "replay", "topic": "orders", "at": "10:20", "where": "user = 'ada'", "target": "copy"}
    looked = stream(client, {**request, "dry_run": True})[0]
    assert looked["count"] == 5
    assert [row[0] for row in looked["preview"]["rows"]] == [11, 13, 15, 17, 19]
    assert "copy" not in scratch.topics()
    assert stream(client, request)[-1]["error"]["code"] == "not_found"
    assert stream(client, {**request, "create": True, "speed": 1000})[-2]["done"] == 5
    assert [row["id"] for row in scratch.topic("copy")] == [11, 13, 15, 17, 19]


def test_a_replay_through_sql(client: TestClient, scratch: Any) -> None:
    request = {
        "op": "replay",
        "topic": "orders",
        "at": "0:4",
        "sql": "select id * 10 as id, upper(user) as user from rows",
        "target": "changed",
        "create": True,
    }
    assert stream(client, request)[-2]["finished"]
    assert scratch.topic("changed").to_arrow().select(["id", "user"]).to_pydict() == {
        "id": [0, 10, 20, 30],
        "user": ["BOB", "ADA", "BOB", "ADA"],
    }


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "arrow"])
def test_what_is_exported_comes_back(client: TestClient, scratch: Any, form: str) -> None:
    answer = client.get("/api/export", params={"topic": "orders", "where": "id < 50", "form": form})
    assert answer.status_code == 200
    assert f"orders.{form}" in answer.headers["content-disposition"]
    scratch.create_topic("back", {"id": int, "user": str, "note": str | None})
    for known in (0, 50):  # sent twice, it is there once
        told = client.post(f"/api/import?topic=back&name=x.{form}", content=answer.content).json()
        assert (told["rows"], told["known"]) == (50 - known, known)
    assert scratch.topic("back").to_arrow().column("id").to_pylist() == list(range(50))


def test_a_topic_from_birth_to_death(client: TestClient, scratch: Any) -> None:
    body = {"name": "people", "columns": "id:int name:str?", "keys": "id", "options": {"retention_age": "7d"}}
    post(client, "create", body)
    assert post(client, "create", body, 400)["error"]["code"] == "already_exists"
    topic = scratch.topic("people")
    assert topic.config.retention_age_seconds == 7 * 86400
    post(client, "alter", {"topic": "people", "options": {"retention_age": None}, "columns": "city:str?"})
    assert topic.config.retention_age_seconds is None
    assert topic.schema.names == ["id", "name", "city"]
    assert (
        "type the topic"
        in post(client, "lock", {"topic": "people", "typed": "peopl"}, 400)["error"]["message"]
    )
    post(client, "lock", {"topic": "people", "typed": "people"})
    assert topic.config.locked
    post(client, "drop", {"topic": "people", "typed": ""}, 400)
    post(client, "drop", {"topic": "people", "typed": "people"})
    assert scratch.topics() == ["orders"]


def test_sql(client: TestClient) -> None:
    query = "select user, count(*) as n, sum(id) as total from orders group by 1 order by 1"
    told = stream(client, {"op": "sql", "query": query})
    assert [each["name"] for each in told[0]["columns"]] == ["user", "n", "total"]
    assert told[0]["rows"] == [["ada", 50, 2500], ["bob", 50, 2450]]
    assert told[-2]["done"] and not told[-2]["more"]
    cut = stream(client, {"op": "sql", "query": "from orders", "limit": 10})
    assert sum(len(each.get("rows", [])) for each in cut) == 10
    assert cut[-2]["more"]
    exact = stream(client, {"op": "sql", "query": "from orders", "limit": 100})
    assert not exact[-2]["more"]
    empty = stream(client, {"op": "sql", "query": "select id from orders where id < 0"})
    assert [each["name"] for each in empty[0]["columns"]] == ["id"]
    assert stream(client, {"op": "sql", "query": "drop table orders"})[-1]["error"]["code"] == "usage"
    assert "order" in stream(client, {"op": "sql", "query": "from ordres"})[-1]["error"]["hint"]


def test_a_query_that_runs_long_is_cancelled(client: TestClient) -> None:
    slow = "select count(*) from range(100000000000) a, range(1000) b"
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_text(json.dumps({"id": "x", "op": "sql", "query": slow}))
        socket.send_text(json.dumps({"id": "y", "op": "sql", "query": "select 1 as one"}))
        assert json.loads(socket.receive_text())["rows"] == [[1]]
        socket.send_text(json.dumps({"id": "x", "op": "stop"}))
        socket.send_text(json.dumps({"id": "z", "op": "sql", "query": "select 2 as two"}))
        while (told := json.loads(socket.receive_text()))["id"] != "z":
            assert told["id"] == "y"
        assert told["rows"] == [[2]]


def test_a_result_is_exported_whole(client: TestClient) -> None:
    query = "select id from orders where id > 89"
    answer = client.get("/api/sql/export", params={"q": query, "form": "csv"})
    assert answer.text.split() == ["id", *map(str, range(90, 100))]
    whole = client.get("/api/sql/export", params={"q": query, "form": "parquet"}).content
    assert pyarrow.parquet.read_table(pa.py_buffer(io.BytesIO(whole).read())).num_rows == 10
