"""Who may do what: the broker's users, with the rights the protocol gives them; strangers only look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.test_acts import OWN, post
from virta.clock import SystemClock
from virta.console import application
from virta.console.users import UserAccess
from virta.security.access import Access, User
from virta.security.guard import Guard
from virta.security.permissions import Grant, Permission, Verb
from virta.security.scram import LEAST_ITERATIONS, make_verifier


class Users:
    """Users and permissions that a test may change."""

    def __init__(self) -> None:
        self.access = Access.empty()
        self.guard = Guard(access=lambda _: self.access, clock=SystemClock())

    def add(self, name: str, password: str) -> None:
        verifier = make_verifier(password, iterations=LEAST_ITERATIONS)
        self.access = self.access.with_user(User(name=name, created_us=0, verifier=verifier))

    def allow(self, who: str, topics: str, *verbs: Verb) -> None:
        grant = Grant(verbs=frozenset(verbs), topics=topics)
        self.access = self.access.with_permission(Permission(who=who, grant=grant))


@pytest.fixture
def users() -> Users:
    made = Users()
    made.add("ada", "lovelace")
    made.allow("ada", "orders", Verb.CONSUME, Verb.PRODUCE)
    made.add("root", "secret")
    made.allow("root", "*", *Verb)
    return made


@pytest.fixture
def logged(scratch: Any) -> Any:
    for name in ("orders", "payroll"):
        scratch.create_topic(name, {"id": int}).append({"id": 1})
    return scratch


@contextmanager
def opened(log: Any, users: Users, *, local: bool = False) -> Iterator[TestClient]:
    app = application(log, access=UserAccess(users.guard, log, local=local))
    with TestClient(app, base_url="http://127.0.0.1:7401", headers=OWN) as client:
        yield client


def sign_in(client: TestClient, name: str, password: str, status: int = 200) -> Any:
    return post(client, "sign-in", {"name": name, "password": password}, status)


def test_strangers_are_asked_to_sign_in(logged: Any, users: Users) -> None:
    with opened(logged, users) as client:
        assert client.get("/api/topics").json()["error"]["hint"] == "sign in first"
        assert "signin.js" in client.get("/rows?topic=orders").text
        post(client, "append", {"topic": "orders", "rows": [{"id": 2}]}, status=403)


def test_a_user_may_what_the_protocol_allows(logged: Any, users: Users) -> None:
    with opened(logged, users) as client:
        sign_in(client, "ada", "lovelace")
        assert client.get("/api/topics").json()["topics"] == ["orders"]
        post(client, "append", {"topic": "orders", "rows": [{"id": 2}]})
        assert client.get("/api/rows", params={"topic": "payroll", "start": 0, "stop": 1}).status_code == 403
        post(client, "alter", {"topic": "orders", "options": {"retention_age": "1d"}}, status=403)
        post(client, "drop", {"topic": "orders", "typed": "orders"}, status=403)
        assert client.get("/api/sql/export", params={"q": "from payroll"}).status_code == 403
        assert client.get("/api/sql/export", params={"q": "from orders"}).status_code == 200
        users.allow("ada", "orders", Verb.ADMINISTER)  # at once, without another sign-in
        post(client, "alter", {"topic": "orders", "options": {"retention_age": "1d"}})
        users.access = users.access.with_changed_user("ada", disabled=True)
        assert client.get("/api/topics").status_code == 403


def test_the_cookie_is_kept_from_scripts_and_other_sites(logged: Any, users: Users) -> None:
    with opened(logged, users) as client:
        answer = client.post("/api/sign-in", json={"name": "ada", "password": "lovelace"})
        said = answer.headers["set-cookie"].lower()
        assert "httponly" in said
        assert "samesite=strict" in said
        assert client.get("/api/topics").status_code == 200
        post(client, "sign-out", {})
        assert client.get("/api/topics").status_code == 403


def test_signing_out_ends_the_session_wherever_the_cookie_is(logged: Any, users: Users) -> None:
    with opened(logged, users) as client:
        sign_in(client, "root", "secret")
        taken = dict(client.cookies)
        post(client, "sign-out", {})
        client.cookies.update(taken)
        assert client.get("/api/topics").status_code == 403


def test_wrong_passwords_are_refused_alike_and_slowed_down(logged: Any, users: Users) -> None:
    with opened(logged, users) as client:
        wrong = sign_in(client, "ada", "wrong", status=403)
        assert sign_in(client, "nobody", "wrong", status=403) == wrong
        for _ in range(users.guard.limits.failed_logins_per_minute):
            answer = client.post("/api/sign-in", json={"name": "ada", "password": "wrong"})
        assert answer.status_code == 503
        sign_in(client, "ada", "lovelace", status=503)


def test_another_sites_page_cannot_sign_anybody_in(logged: Any, users: Users) -> None:
    with opened(logged, users) as client:
        answer = client.post(
            "/api/sign-in",
            json={"name": "ada", "password": "lovelace"},
            headers={"origin": "http://evil.example"},
        )
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_off_loopback_strangers_only_read_what_is_open_to_them(logged: Any, users: Users) -> None:
    users.allow("anonymous", "orders", Verb.CONSUME, Verb.PRODUCE)
    body = {"topic": "orders", "rows": [{"id": 2}]}
    with opened(logged, users) as client:
        assert client.get("/api/topics").json()["topics"] == ["orders"]
        post(client, "append", body, status=403)
    with opened(logged, users, local=True) as client:
        post(client, "append", body)


def test_a_topic_that_all_may_write_to_is_written_to(logged: Any, users: Users) -> None:
    users.add("bob", "builder")
    users.allow("bob", "other", Verb.CONSUME)
    logged.topic("orders").alter(public_write=True)
    with opened(logged, users) as client:
        sign_in(client, "bob", "builder")
        post(client, "append", {"topic": "orders", "rows": [{"id": 2}]})
        assert client.get("/api/rows", params={"topic": "orders", "start": 0, "stop": 1}).status_code == 403


def test_without_users_whoever_is_on_the_machine_may_all(logged: Any) -> None:
    with opened(logged, Users(), local=True) as client:
        post(client, "append", {"topic": "orders", "rows": [{"id": 2}]})
        post(client, "create", {"name": "made", "columns": "id:int"})
    with opened(logged, Users()) as client:
        post(client, "append", {"topic": "orders", "rows": [{"id": 2}]}, status=403)


def test_the_plan_of_the_steward_names_only_topics_one_may_read(logged: Any, users: Users) -> None:
    topic = logged.create_topic("payroll-2", {"text": str}, segment_bytes=65536)
    for _ in range(3):
        topic.append([{"text": str(n) * 5000} for n in range(30)])
    topic.alter(retention_rows=1)
    with opened(logged, users) as client:
        sign_in(client, "root", "secret")
        assert client.get("/api/storage/plan").json()["parts"]
        sign_in(client, "ada", "lovelace")
        assert client.get("/api/storage/plan").json()["parts"] == []
