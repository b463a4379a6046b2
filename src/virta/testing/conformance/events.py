"""The topics that Virta keeps for itself, and what is noted in `__events`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from virta.errors import Denied
from virta.testing.conformance.base import Conformance
from virta.types import Event


def noted(log: Any, topic: str) -> list[str]:
    return [row["kind"] for row in log.topic("__events").where(f"topic = '{topic}'")]


class EventConformance(Conformance):
    def test_a_topics_life_is_noted(self, log: Any) -> None:
        orders = log.create_topic("orders", {"id": int}, keys=["id"])
        orders.alter(retention_rows=10)
        orders.alter(schema={"id": int, "note": str | None})
        orders.lock()
        log.drop_topic("orders")
        assert noted(log, "orders") == ["created", "altered", "schema changed", "locked", "deleted"]
        rows = list(log.topic("__events").where("topic = 'orders'"))
        assert [row["version"] for row in rows] == [1, 2, 3, 4, 4]
        assert len({row["topic_id"] for row in rows}) == 1
        assert all("@" in row["actor"] for row in rows)
        details = json.loads(rows[2]["details"])
        assert details["config"]["retention_rows"] == 10
        assert [column["name"] for column in details["columns"]] == ["id", "note"]

    def test_a_call_that_changes_nothing_is_not_noted(self, log: Any, numbers: Any) -> None:
        numbers.alter(retention_rows=5)
        numbers.alter(retention_rows=5)
        log.create_topic("numbers", {"n": int}, if_missing=True)
        assert noted(log, "numbers") == ["created", "altered"]

    @pytest.mark.usefixtures("numbers")
    def test_another_handle_sees_it(self, log: Any, other: Any) -> None:
        assert noted(other, "numbers") == ["created"]
        other.topic("numbers").alter(retention_rows=5)
        assert noted(log, "numbers") == ["created", "altered"]

    @pytest.mark.usefixtures("numbers")
    def test_internal_topics_are_hidden(self, log: Any) -> None:
        assert log.topics() == ["numbers"]
        assert log.topics(internal=True) == ["__events", "numbers"]

    @pytest.mark.usefixtures("numbers")
    def test_only_virta_writes_them(self, log: Any) -> None:
        events = log.topic("__events")
        refused: list[Callable[[], Any]] = [
            lambda: log.create_topic("__mine", {"n": int}),
            lambda: log.create_topic("__events", {"n": int}, if_missing=True),
            lambda: log.drop_topic("__events"),
            lambda: events.append({"kind": "made up"}),
            events.writer,
            lambda: events.alter(schema={"n": int}),
            events.lock,
        ]
        for act in refused:
            with pytest.raises(Denied, match="__"):
                act()
        assert noted(log, "numbers") == ["created"]

    @pytest.mark.usefixtures("numbers")
    def test_they_can_be_read_as_any_topic(self, log: Any) -> None:
        events = log.topic("__events")
        assert [row["kind"] for row in events.tail(stop_when_idle=0.01)] == ["created"]
        assert log.sql("select kind, topic from __events").to_arrow().to_pylist() == [
            {"kind": "created", "topic": "numbers"}
        ]
        assert events.verify().ok

    @pytest.mark.usefixtures("numbers")
    def test_their_configuration_can_be_changed(self, log: Any) -> None:
        log.topic("__events").alter(retention_age="90d")
        assert log.topic("__events").config.retention_age_seconds == 90 * 24 * 3600

    def test_any_part_may_note_something(self, log: Any) -> None:
        assert log.record_event(
            Event(kind="audit", actor="ada", details={"address": "10.0.0.7"}, from_offset=3, hash_after="ab")
        )
        (row,) = log.topic("__events").where("kind = 'audit'")
        assert (row["topic"], row["actor"], row["from_offset"], row["hash_after"]) == (None, "ada", 3, "ab")
        assert json.loads(row["details"]) == {"address": "10.0.0.7"}
