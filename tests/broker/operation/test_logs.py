"""Lines of the broker's log: readable by both, forged by nobody, and without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from virta.broker.operation.logs import Events, set_up, take_down
from virta.security.tokens import new_token, split_token

TOKEN, _ = new_token("ada", now_us=0)
Told = Callable[..., list[str]]


@pytest.fixture
def told() -> Iterator[Told]:
    def run(form: str, act: Callable[[], None], level: str = "info") -> list[str]:
        stream = io.StringIO()
        set_up(form, level, stream=stream)
        act()
        return stream.getvalue().splitlines()

    yield run
    take_down()


def test_json_is_one_object_per_line(told: Told) -> None:
    (line,) = told("json", lambda: Events()("connected", connection="c1", bytes=b"123", none=None))
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {"level": "info", "event": "connected", "connection": "c1", "bytes": "‹3 bytes›"}


def test_text_is_fields(told: Told) -> None:
    (line,) = told("text", lambda: Events()("refused", logging.WARNING, who="ada", why='a "b" c', n=3))
    assert line.split(" ", 1)[1] == 'warning refused  who=ada why="a \\"b\\" c" n=3'


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_value_cannot_forge_a_line(told: Told, form: str) -> None:
    evil = "x\n2026-01-01T00:00:00.000Z info granted\r\x1b[2J\u2028"
    lines = told(form, lambda: Events()("refused", user=evil))
    assert len(lines) == 1 and "\x1b" not in lines[0]


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_do_not_come_through(told: Told, form: str) -> None:
    def act() -> None:
        Events()("x", password="hunter2", address="virtas://ada:hunter2@h", note=f"got {TOKEN}")
        logging.getLogger("somebody.else").warning("Authorization: Bearer hunter2hunter2")
        try:
            raise ValueError(f"hidden in a traceback: {TOKEN}")
        except ValueError:
            logging.getLogger("virta.broker").exception("failed")

    text = "\n".join(told(form, act))
    assert "hunter2" not in text and split_token(TOKEN)[1] not in text
    assert "Traceback" in text and "hidden in a traceback" in text


def test_levels_and_being_set_up_twice(told: Told) -> None:
    assert told("text", lambda: Events()("quiet"), "warning") == []
    assert len(told("text", lambda: Events()("once"))) == 1


def test_long_values_are_cut(told: Told) -> None:
    (line,) = told("text", lambda: Events()("x", v="y" * 100_000))
    assert len(line) < 2200
