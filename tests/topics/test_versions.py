"""Versions of a topic: their history, what differs between two, and reading with older columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import virta
from virta.errors import NotFound, SchemaMismatch
from virta.log import Log
from virta.topics.topic import Topic
from virta.topics.versions import Column, VersionChange


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with virta.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def orders(log: Log) -> Topic:
    """Four versions, with rows under each schema."""
    topic = log.create_topic(
        "orders", {"id": pa.field("id", pa.int32(), nullable=False), "user": str}, keys=["id"]
    )
    topic.append({"id": 1, "user": "ada"})
    topic.alter(schema={"id": int, "user": str, "amount": float | None})
    topic.append({"id": 2, "user": "bob", "amount": 2.5})
    topic.alter(retention_age="7d")
    topic.alter(
        schema={"id": int, "customer": str | None, "amount": float | None}, renames={"user": "customer"}
    )
    topic.append({"id": 3, "customer": "eve", "amount": None})
    return topic


def test_history_names_every_version(orders: Topic) -> None:
    found = orders.history()
    assert [(each.number, each.kind, each.schema_version) for each in found] == [
        (1, "created", 1),
        (2, "schema changed", 2),
        (3, "altered", 2),
        (4, "schema changed", 3),
    ]
    assert [column.name for column in found[3].columns] == ["id", "customer", "amount"]
    assert found[1].columns[2] == Column(name="amount", type="float", nullable=True, number=3)
    assert found[2].config["retention_age_seconds"] == 7 * 86_400
    assert all(each.actor and each.timestamp for each in found)


def test_what_is_different_between_two(orders: Topic) -> None:
    assert orders.version_changes(1, 2) == [
        VersionChange(what="column id", before="int32", after="int"),
        VersionChange(what="column amount", before=None, after="float | None"),
    ]
    assert orders.version_changes(2, 3) == [
        VersionChange(what="retention_age_seconds", before=None, after=604800.0)
    ]
    assert orders.version_changes(-2) == [
        VersionChange(what="column user", before="user str", after="customer str | None")
    ]
    assert orders.version_changes(4, 4) == []
    assert [str(each) for each in orders.version_changes(4, 3)] == [
        "column customer: customer str | None → user str"
    ]
    with pytest.raises(NotFound, match="no version 5"):
        orders.version_changes(1, 5)


def test_a_version_that_nobody_noted_is_known_from_the_topic(log: Log, orders: Topic) -> None:
    orders._events.rows = lambda *_, **__: []  # type: ignore[method-assign]
    (found,) = orders.history()
    assert (found.number, found.kind, found.timestamp) == (4, "unknown", None)
    assert [str(column) for column in found.columns] == ["int", "str | None", "float | None"]


def test_rows_of_all_versions_with_the_columns_of_one(orders: Topic) -> None:
    first = orders.at_version(1)
    assert first.to_arrow().schema.field("id").type == pa.int32()
    assert first.to_pylist() == [
        {"id": 1, "user": "ada"},
        {"id": 2, "user": "bob"},
        {"id": 3, "user": "eve"},
    ]
    second = orders.at_version(2).where("amount > 1").columns("user", "amount")
    assert second.to_pylist() == [{"user": "bob", "amount": 2.5}]
    assert [row["user"] for row in orders.at_version(-2)] == ["ada", "bob", "eve"]
    assert orders.at_version(4).to_arrow() == orders.to_arrow()
    with pytest.raises(NotFound, match="no column 'amount'"):
        orders.at_version(1).columns("amount")


def test_what_does_not_fit_an_older_version_is_said(orders: Topic) -> None:
    orders.append({"id": 1 << 40, "customer": None, "amount": 1.0})
    with pytest.raises(SchemaMismatch, match="'id' does not go from int64 to int32"):
        orders.at_version(1).to_arrow()
    with pytest.raises(SchemaMismatch, match="'user' was not null in that version"):
        orders.at_version(2).to_arrow()
    assert orders.at_version(2).columns("id").count() == 4


def test_differences_of_any_kind_by_any_key_at_any_moment(log: Log, orders: Topic) -> None:
    orders.append([{"id": 2, "customer": "bob", "amount": 9.0}, {"id": 4, "customer": "ada", "amount": 1.0}])
    found = orders.diff(3)
    assert [(each.kind, (each.after or {})["id"]) for each in found] == [("update", 2), ("insert", 4)]
    by_customer = orders.diff(3, keys=["customer"])
    assert (by_customer.inserted, by_customer.updated, by_customer.deleted) == (0, 2, 0)
    copy = log.create_topic(
        "copy", {"id": int, "customer": str | None, "amount": float | None}, kind="update", keys=["id"]
    )
    copy.append(orders[:3].columns("id", "customer", "amount"))
    assert not log.diff("orders", "copy", first_as_of=3)
    copy.delete({"id": 1})
    found = log.diff("orders", "copy", first_as_of=orders.token(3))
    assert [(each.kind, (each.before or {})["id"]) for each in found] == [("delete", 1)]
    assert not log.diff("orders", "copy", first_as_of=3, second_as_of=3)
    assert log.diff("orders", "copy", first_as_of="2000-01-01").inserted == 2


async def test_the_twin_and_a_broker_say_the_same(tmp_path: Path, orders: Topic, log: Log) -> None:
    async with virta.aopen(log.path) as twin:
        topic = await twin.topic("orders")
        assert await topic.history() == orders.history()
        assert await topic.version_changes(1) == orders.version_changes(1)
        older = await topic.at_version(1)
        assert await older.to_pylist() == orders.at_version(1).to_pylist()
        assert len(await topic.diff(1)) == 2
        assert await topic.by_key() == orders.by_key()
        assert not await twin.diff("orders", "orders", first_as_of=3)
