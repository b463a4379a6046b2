"""Topics: made, found, named, changed, locked and dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from virta.errors import (
    AlreadyExists,
    Denied,
    Locked,
    NotFound,
    SchemaMismatch,
    TooLarge,
    UsageError,
    VirtaError,
)
from virta.testing.conformance.base import Conformance, OpenLog, nothing_written, ns, up_to
from virta.types import Compression, Durability, Kind

NAMES = [
    "orders",
    "Bestellungen/Köln",
    "注文",
    "emoji 🛒",
    "a.b.c",
    ".",
    "..",
    ".hidden",
    "100%",
    "%2e",
    "a~b",
    "^caret",
    "con",
    "x" * 1024,
    "ä" * 512,
    "with space ",
    "-dash",
    "a@b:c",
]


class TopicConformance(Conformance):
    def test_a_new_log_has_no_topics(self, log: Any) -> None:
        assert log.topics() == []
        assert log.stats().rows == 0

    def test_a_topic_that_was_made_is_found(self, log: Any, other: Any) -> None:
        made = log.create_topic("orders", {"id": int})
        for found in (log.topic("orders"), other.topic("orders")):
            assert found.name == "orders"
            assert found.id == made.id
            assert found.version == 1
            assert found.kind is Kind.APPEND
        assert other.topics() == ["orders"]

    def test_a_topic_that_is_not_there(self, log: Any) -> None:
        log.create_topic("orders", {"id": int})
        with pytest.raises(NotFound, match="orders"):
            log.topic("oders")
        with pytest.raises(NotFound):
            log.drop_topic("oders")

    def test_a_topic_is_made_once(self, log: Any, other: Any) -> None:
        first = log.create_topic("orders", {"id": int})
        with pytest.raises(AlreadyExists):
            other.create_topic("orders", {"id": int})
        again = other.create_topic("orders", {"id": int}, if_missing=True)
        assert again.id == first.id
        with pytest.raises(SchemaMismatch) as caught:
            log.create_topic("orders", {"id": str}, if_missing=True)
        assert caught.value.column == "id"

    @pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:24])
    def test_names(self, log: Any, other: Any, name: str) -> None:
        log.create_topic(name, {"n": int}).append({"n": 1})
        assert other.topics() == [name]
        assert other.topic(name).name == name
        assert ns(other.topic(name)[:]) == [1]

    def test_names_that_differ_in_case_are_different(self, log: Any) -> None:
        for n, name in enumerate(("orders", "Orders", "ORDERS", "^orders")):
            log.create_topic(name, {"n": int}).append({"n": n})
        assert log.topics() == sorted(["orders", "Orders", "ORDERS", "^orders"])
        assert [ns(log.topic(name)[:]) for name in ("orders", "Orders", "ORDERS")] == [[0], [1], [2]]

    @pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\x7f", "\ud800"], ids=ascii)
    def test_names_that_are_refused(self, log: Any, name: str) -> None:
        with pytest.raises(UsageError):
            log.create_topic(name, {"n": int})
        with pytest.raises(UsageError):
            log.topic(name)
        assert log.topics() == []

    @pytest.mark.parametrize("name", ["x" * 1025, "ä" * 513])
    def test_a_name_over_the_limit(self, log: Any, name: str) -> None:
        with pytest.raises(TooLarge) as caught:
            log.create_topic(name, {"n": int})
        assert caught.value.limit == 1024

    # -- what cannot be made ------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("schema", "options"),
        [
            ({"_hidden": int}, {}),
            ({"": int}, {}),
            ({}, {}),
            ({"a": object}, {}),
            ({"a": int}, {"keys": ["b"]}),
            ({"a": int}, {"keys": ["a", "a"]}),
            ({"a": dict[str, int]}, {"keys": ["a"]}),
            (pa.schema([("a", pa.int64()), ("a", pa.int64())]), {}),
            ({"a": int}, {"durability": "paper"}),
            ({"a": int}, {"no_such_option": 1}),
            ({"a": int}, {"kind": "table"}),
            ({"a": int}, {"segment_bytes": 1}),
            ({"a": int}, {"retention_age": "-7d"}),
        ],
        ids=str,
    )
    def test_what_cannot_be_made(self, log: Any, schema: Any, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            log.create_topic("odd", schema, **options)
        assert log.topics() == []

    # -- configuration ----------------------------------------------------------------------------

    def test_options_as_people_write_them(self, log: Any, other: Any) -> None:
        log.create_topic(
            "orders",
            {"id": int},
            keys="id",
            durability="disk",
            compression="zstd",
            segment_bytes="1MiB",
            retention_age="7d",
            retention_bytes="1GB",
            retention_rows=1000,
            row_limit_bytes="1MiB",
        )
        config = other.topic("orders").config
        assert config.keys == ("id",)
        assert config.durability is Durability.DISK
        assert config.compression is Compression.ZSTD
        assert config.segment_bytes == 1 << 20
        assert config.retention_age_seconds == 7 * 86400
        assert config.retention_bytes == 10**9
        assert config.retention_rows == 1000
        assert config.row_limit_bytes == 1 << 20

    def test_alter_is_seen_by_other_handles(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        orders.append({"n": 0})
        orders.alter(retention_age="7d", durability="disk")
        assert orders.version == same.version == 2
        assert same.config.retention_age_seconds == 7 * 86400
        assert same.append({"n": 1}).durability is Durability.DISK
        assert ns(orders[:]) == [0, 1]

    def test_altering_to_what_it_is_changes_nothing(self, log: Any) -> None:
        orders = log.create_topic("orders", {"n": int}, retention_rows=10)
        orders.alter(retention_rows=10)
        orders.alter(schema={"n": int})
        orders.alter()
        assert orders.version == 1

    def test_what_cannot_be_altered(self, log: Any) -> None:
        orders = log.create_topic("orders", {"n": int})
        for options in ({"kind": "update"}, {"partitions": 2}, {"retention_rows": 0}, {"typo": 1}):
            with pytest.raises(UsageError):
                orders.alter(**options)
        assert orders.version == 1

    # -- schemas over time --------------------------------------------------------------------------

    def test_old_rows_are_read_in_the_new_schema(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": pa.int16()}), other.topic("orders")
        orders.append(up_to(2))
        orders.alter(schema={"n": pa.int64(), "note": str | None})
        orders.append({"n": 1 << 40, "note": "big"})
        for topic in (orders, same):
            assert topic.schema.names == ["n", "note"]
            assert topic.to_arrow().column("n").to_pylist() == [0, 1, 1 << 40]
            assert topic.to_arrow().column("note").to_pylist() == [None, None, "big"]
            assert [row.to_dict() for row in topic[:1]] == [{"n": 0, "note": None}]
            assert topic[:].schema == topic.to_arrow().schema
            assert topic.partition(0).fetch(topic.token(0)).to_arrow().schema.names[2:] == ["n", "note"]

    def test_a_change_by_another_handle_is_followed(self, log: Any, other: Any) -> None:
        """Reading, Arrow streams and named writers of a handle that was not told."""
        orders, same = log.create_topic("orders", {"n": pa.int16()}), other.topic("orders")
        everything = same[:]
        assert everything.to_arrow().column_names[2:] == ["n"]
        orders.alter(schema={"n": pa.int64(), "note": str | None})
        orders.append({"n": 1 << 40, "note": "one"})
        assert [row.to_dict() for row in everything] == [{"n": 1 << 40, "note": "one"}]
        assert everything.to_arrow().column_names[2:] == ["n", "note"]
        assert [row["note"] for row in same.where("note = 'one'").columns("note")] == ["one"]
        orders.alter(schema={"n": pa.int64(), "note": str | None, "more": str | None})
        table = pa.table({"n": [2], "more": ["two"]})
        same.append(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
        orders.alter(schema={"n": pa.int64(), "note": str | None, "more": str | None, "last": bool | None})
        with same.writer(producer="importer", linger=0) as writer:
            writer.send({"n": 3, "last": True})
        assert ns(orders[:]) == [1 << 40, 2, 3]
        assert [row["last"] for row in orders[:]] == [None, None, True]

    def test_a_stream_is_read_once_even_when_the_topic_changes_meanwhile(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        batch = pa.record_batch({"n": pa.array([1, 2], pa.int64())})

        def change_between() -> Iterator[pa.RecordBatch]:
            yield batch
            orders.alter(schema={"n": int, "note": str | None})
            yield batch

        ack = same.append(pa.RecordBatchReader.from_batches(batch.schema, change_between()))
        assert ack.rows == 4
        assert ns(orders[:]) == [1, 2, 1, 2]

    def test_rows_prepared_for_the_old_schema_are_prepared_anew(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        same.append({"n": 0})
        orders.alter(schema={"n": int, "note": str | None})
        same.append({"n": 1})
        same.append({"n": 2, "note": "new"})
        assert [row.to_dict() for row in same[:]][1:] == [{"n": 1, "note": None}, {"n": 2, "note": "new"}]

    def test_a_writer_goes_on_over_a_change(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        with same.writer(producer="importer", linger=0) as writer:
            writer.send({"n": 0})
            writer.flush()
            orders.alter(schema={"n": int, "note": str | None})
            writer.send({"n": 1})
        assert ns(orders[:]) == [0, 1]
        assert writer.last_sequence == 1

    @pytest.mark.parametrize(
        "schema",
        [
            {"n": int},
            {"n": pa.int32(), "name": str},
            {"n": int, "name": str, "more": int},
            {"n": str, "name": str},
            {"other": int, "name": str},
            {"n": int, "other": str},
            {"n": int, "name": str, "_x": int | None},
        ],
        ids=str,
    )
    def test_changes_that_stored_rows_do_not_allow(self, log: Any, schema: Any) -> None:
        orders = log.create_topic("orders", {"n": int, "name": str})
        orders.append({"n": 1, "name": "one"})
        with pytest.raises(SchemaMismatch):
            orders.alter(schema=schema)
        assert orders.version == 1
        assert orders.schema.names == ["n", "name"]

    def test_a_column_renamed_keeps_its_values(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}, keys=["n"]), other.topic("orders")
        orders.append(up_to(2))
        orders.alter(schema={"number": int, "n": str | None}, renames={"n": "number"})
        orders.append({"number": 2, "n": "new"})
        for topic in (orders, same):
            assert topic.config.keys == ("number",)
            assert topic.to_arrow().column("number").to_pylist() == [0, 1, 2]
            assert [row["n"] for row in topic[:]] == [None, None, "new"]

    def test_many_changes_one_after_another(self, log: Any) -> None:
        columns: dict[str, Any] = {"n": int}
        orders = log.create_topic("orders", columns)
        for change in range(5):
            orders.append({"n": change})
            columns[f"more_{change}"] = int | None
            orders.alter(schema=columns)
        assert orders.version == 6
        assert ns(orders[:]) == list(range(5))
        assert orders.verify().ok

    # -- the end of a topic ---------------------------------------------------------------------------

    def test_a_locked_topic_is_read_and_not_written(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        orders.append(up_to(3))
        orders.lock()
        orders.lock()
        for topic in (orders, same, other.topic("orders")):
            with pytest.raises(Locked), nothing_written(topic):
                topic.append({"n": 3})
            assert ns(topic[:]) == [0, 1, 2]
            assert topic.config.locked
            with pytest.raises(UsageError):
                topic.alter(retention_rows=1)

    def test_a_locked_topic_can_be_dropped(self, log: Any) -> None:
        orders = log.create_topic("orders", {"n": int})
        orders.append(up_to(3))
        orders.lock()
        log.drop_topic("orders")
        assert log.topics() == []

    def test_a_dropped_topic_is_gone(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        orders.append(up_to(3))
        log.drop_topic("orders")
        assert log.topics() == other.topics() == []
        for topic in (orders, same):
            with pytest.raises(UsageError):
                topic.append({"n": 4})
        for each in (log, other):
            with pytest.raises(NotFound):
                each.topic("orders")

    def test_a_name_made_again_is_a_new_topic(self, log: Any, other: Any) -> None:
        orders, same = log.create_topic("orders", {"n": int}), other.topic("orders")
        orders.append(up_to(3))
        log.drop_topic("orders")
        again = log.create_topic("orders", {"other": str})
        assert again.id != orders.id
        assert again.next_offset == 0
        again.append({"other": "new"})
        with pytest.raises(VirtaError):
            same.append({"n": 4})
        assert [row["other"] for row in other.topic("orders")[:]] == ["new"]
        assert [row["other"] for row in log.topic("orders")[:]] == ["new"]

    def test_a_topic_that_may_not_be_dropped(self, log: Any) -> None:
        orders = log.create_topic("orders", {"n": int}, topic_deletion=False)
        with pytest.raises(Denied):
            log.drop_topic("orders")
        orders.alter(topic_deletion=True)
        log.drop_topic("orders")
        assert log.topics() == []

    # -- sizes and closing ----------------------------------------------------------------------------

    def test_stats(self, log: Any, numbers: Any) -> None:
        empty = numbers.stats()
        assert (empty.rows, empty.start_offset, empty.next_offset, empty.segments) == (0, 0, 0, 1)
        for at in range(3):
            numbers.append(up_to(10 * at + 10, 10 * at))
        stats = numbers.stats()
        assert (stats.rows, stats.start_offset, stats.next_offset) == (30, 0, 30)
        assert stats.bytes > empty.bytes
        assert stats.blocks >= empty.blocks + 3
        log.create_topic("more", {"n": int}, durability="memory").append(up_to(5))
        whole = log.stats()
        assert whole.rows == 35
        assert whole.segments == 2

    def test_what_is_closed_says_so(self, open_log: OpenLog) -> None:
        with open_log() as log:
            topic = log.create_topic("orders", {"n": int})
        log.close()
        for call in (log.topics, lambda: log.topic("orders"), lambda: topic.append({"n": 1})):
            with pytest.raises(UsageError, match="closed"):
                call()
        with pytest.raises(UsageError, match="closed"):
            list(topic[:])

    def test_rows_are_there_when_it_is_opened_again(self, open_log: OpenLog) -> None:
        for durability in ("memory", "os", "disk"):
            with open_log() as log:
                topic = log.create_topic(durability, {"n": int}, durability=durability)
                topic.append(up_to(10))
                self.let_others_see(topic, durability)
            with open_log() as log:
                topic = log.topic(durability)
                assert ns(topic[:]) == list(range(10))
                assert topic.append({"n": 10}).first_offset == 10
                assert topic.verify().ok

    def test_verify(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(10))
        head = numbers.head
        numbers.append(up_to(20, 10))
        report = numbers.verify()
        assert report.ok
        assert report.problems == ()
        assert report.rows == 20
        assert report.heads == {0: numbers.head}
        assert numbers.verify(against=head).ok
        assert not numbers.verify(against="00" * 32).ok
        assert log.verify()["numbers"].ok
