"""The console's interface without a browser: who is let in, what is answered, how values are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from virta.console import ReadOnly, application
from virta.console.guard import POLICY


@pytest.fixture
def client(scratch: Any) -> Iterator[TestClient]:
    topic = scratch.create_topic("orders", {"id": int, "note": str | None})
    topic.append([{"id": n, "note": "x" * 10} for n in range(300)])
    topic.append([{"id": 300, "note": "y" * 100_000}])
    with TestClient(application(scratch), base_url="http://127.0.0.1:7401") as made:
        yield made


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pages_have_a_strict_policy_and_no_script_inside(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "<script>" not in answer.text
    assert " style=" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7401", ""])
def test_another_name_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/topics", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:7401", "127.0.0.1", "[::1]:7401", "192.0.2.7:80"])
def test_loopback_and_addresses_are_let_in(client: TestClient, host: str) -> None:
    assert client.get("/api/topics", headers={"host": host}).status_code == 200


def test_a_name_that_was_given_is_let_in(scratch: Any) -> None:
    with TestClient(application(scratch, hosts=["log.example"]), base_url="http://log.example") as client:
        assert client.get("/api/topics").status_code == 200


@pytest.mark.parametrize("origin", [None, "http://evil.example", "http://127.0.0.1:9999", "null"])
def test_a_page_of_another_site_opens_no_socket(client: TestClient, origin: str | None) -> None:
    from starlette.websockets import WebSocketDisconnect

    headers = {} if origin is None else {"origin": origin}
    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/live", headers=headers):
        pass
    assert refused.value.code == 1008


OWN = {"origin": "http://127.0.0.1:7401", "host": "127.0.0.1:7401"}


def asked(client: TestClient, request: dict[str, Any], until: str) -> list[dict[str, Any]]:
    """The messages of a stream up to the first that has this field."""
    found = []
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_text(json.dumps({"id": "x", **request}))
        while True:
            found.append(json.loads(socket.receive_text()))
            if found[-1].get(until):
                return found


def test_a_tail_goes_on_where_it_stopped(client: TestClient, scratch: Any) -> None:
    first = asked(client, {"op": "rows", "topic": "orders"}, "rows")[-1]
    assert [row[0] for row in first["rows"]] == list(range(201, 301))
    scratch.topic("orders").append([{"id": 9, "note": None}] * 3)
    more = asked(client, {"op": "rows", "topic": "orders", "after": first["next"]}, "rows")[-1]
    assert [row[0] for row in more["rows"]] == [301, 302, 303]
    assert more["skipped"] == 0


def test_what_is_too_much_is_skipped_and_counted(client: TestClient, scratch: Any) -> None:
    scratch.topic("orders").append([{"id": 1, "note": None}] * 2000)
    told = asked(client, {"op": "rows", "topic": "orders", "after": 301}, "rows")[-1]
    assert told["next"] == 2301
    assert [row[0] for row in told["rows"]] == list(range(1801, 2301))
    assert told["skipped"] == 1500


def test_rows_that_a_crash_took_are_told(client: TestClient) -> None:
    assert asked(client, {"op": "rows", "topic": "orders", "after": 400}, "lost")[-1]["lost"] == 99


def test_a_stream_over_nothing_ends_with_an_error(client: TestClient) -> None:
    error = asked(client, {"op": "rows", "topic": "order"}, "error")[-1]["error"]
    assert error["code"] == "not_found"
    assert "orders" in error["hint"]
    assert asked(client, {"op": "no such thing"}, "error")[-1]["error"]["code"] == "usage"


def test_values_are_cut_and_can_be_had_whole(client: TestClient) -> None:
    rows = get(client, "/api/rows", topic="orders", start=299, stop=400)["rows"]
    assert [row[0] for row in rows] == [299, 300]
    assert rows[1][3] == {"$cut": "y" * 256, "size": 100_000}
    field = get(client, "/api/row", topic="orders", offset=300)["fields"][1]
    assert field["value"] == {"$cut": "y" * 4096, "size": 100_000}
    whole = get(client, "/api/value", topic="orders", offset=300, column="note")
    assert whole["value"] == "y" * 100_000
    assert get(client, "/api/value", topic="orders", offset=5, column="note", form="hex")["hex"] == "78" * 10
    assert client.get("/api/raw?topic=orders&offset=300&column=note").content == b"y" * 100_000


@pytest.mark.parametrize(
    ("at", "start", "stop", "point"),
    [
        ("17", 17, None, True),
        ("-10", 291, None, True),
        ("10:20", 10, 20, False),
        ("-10:", 291, None, False),
        ("end", 300, None, True),
        ("99999", 300, None, True),
        ("-15m:", 0, None, False),
        ("2020-01-01", 0, None, True),
        (":2020-01-01", 0, 0, False),
    ],
)
def test_places(client: TestClient, at: str, start: int, stop: int | None, point: bool) -> None:
    found = get(client, "/api/seek", topic="orders", at=at)
    assert found == {"start": start, "stop": stop, "point": point}


def test_a_place_by_hash(client: TestClient, scratch: Any) -> None:
    head = scratch.topic("orders").head
    assert get(client, "/api/seek", topic="orders", at=f"#{head[:12]}")["start"] == 300


def test_a_search_finds_the_newest_first_and_goes_on(client: TestClient, scratch: Any) -> None:
    with client.websocket_connect("/live", headers=OWN) as socket:
        socket.send_text(json.dumps({"id": "x", "op": "search", "topic": "orders", "where": "id < 3"}))
        done: dict[str, Any] = {}
        found: list[int] = []
        while not done.get("done"):
            done = json.loads(socket.receive_text())
            found = [row[0] for row in done["rows"]] + found
        assert found == [0, 1, 2]
        assert (done["scanned"], done["total"], done["more"]) == (301, 301, False)
        scratch.topic("orders").append([{"id": 2, "note": "new"}, {"id": 7, "note": "new"}])
        assert [row[0] for row in json.loads(socket.receive_text())["rows"]] == [301]


def test_a_filter_that_is_wrong_points_at_it(client: TestClient) -> None:
    error = asked(client, {"op": "search", "topic": "orders", "where": "idd = 3"}, "error")[-1]["error"]
    assert "idd" in error["message"]


def test_errors_say_what_to_do(client: TestClient) -> None:
    answer = client.get("/api/topic", params={"topic": "order"})
    assert answer.status_code == 404
    assert "orders" in answer.json()["error"]["hint"]


def test_topics_are_sampled(client: TestClient) -> None:
    told = asked(client, {"op": "topics"}, "topics")[-1]["topics"]
    assert told[0]["name"] == "orders"
    assert told[0]["next"] == 301
    assert told[0]["head"]


def test_read_only_reads(scratch: Any) -> None:
    scratch.create_topic("orders", {"id": int})
    with TestClient(application(scratch, access=ReadOnly()), base_url="http://127.0.0.1") as client:
        may = get(client, "/api/topic", topic="orders")["may"]
    assert may == {"read": True, "write": False, "alter": False, "delete": False}


def test_own_files_are_served_once_and_then_only_asked_about(client: TestClient) -> None:
    answer = client.get("/static/rows.js")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    again = client.get("/static/rows.js", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/static/../application.py", "/static/%2e%2e/application.py", "/static/nothing.js"):
        assert client.get(path).status_code == 404
