"""Topics with several partitions: where rows go, and what spans partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from virta.errors import NotFound, UsageError
from virta.testing.conformance.base import Conformance, ns, up_to

PARTITIONS = 4


class SpreadConformance(Conformance):
    @pytest.fixture
    def spread(self, log: Any) -> Any:
        return log.create_topic("spread", {"user": str, "n": int}, keys=["user"], partitions=PARTITIONS)

    @pytest.fixture
    def rows(self) -> list[dict[str, Any]]:
        return [{"user": f"user {n % 10}", "n": n} for n in range(100)]

    def test_rows_of_a_key_stay_together_and_in_order(self, spread: Any, rows: Any) -> None:
        for start in range(0, 100, 20):
            spread.append(rows[start : start + 20])
        places: dict[str, set[int]] = {}
        seen: dict[str, list[int]] = {}
        for row in spread:
            places.setdefault(row["user"], set()).add(row.partition)
            seen.setdefault(row["user"], []).append(row["n"])
        assert all(len(where) == 1 for where in places.values())
        assert len({next(iter(where)) for where in places.values()}) > 1
        assert all(numbers == sorted(numbers) and len(numbers) == 10 for numbers in seen.values())

    def test_the_same_rows_go_to_the_same_place(self, log: Any, spread: Any, rows: Any) -> None:
        """By any road: in one call, one by one, as Arrow, and into a topic of another name."""
        other = log.create_topic("other", {"user": str, "n": int}, keys=["user"], partitions=PARTITIONS)
        table = log.create_topic("table", {"user": str, "n": int}, keys=["user"], partitions=PARTITIONS)
        spread.append(rows)
        for row in rows:
            other.append(row)
        table.append(pa.Table.from_pylist(rows))
        found = [sorted((row.partition, row["n"]) for row in topic) for topic in (spread, other, table)]
        assert found[0] == found[1] == found[2]

    def test_the_place_of_a_key_is_fixed_for_good(self, spread: Any) -> None:
        """Written down: another release or language must find the same."""
        places = {name: spread.append({"user": name, "n": 0}).partition for name in ("ada", "bob", "", "ä")}
        assert places == PLACES

    def test_an_ack_has_parts(self, spread: Any, rows: Any) -> None:
        ack = spread.append(rows)
        assert ack.rows == 100
        assert sum(part.rows for part in ack.parts) == 100
        assert {part.partition: part.last_offset + 1 for part in ack.parts} == {
            number: end for number, end in spread.next_offsets.items() if end
        }
        assert all(spread.heads[part.partition] == part.head for part in ack.parts)
        with pytest.raises(UsageError, match="parts"):
            _ = ack.first_offset
        one = spread.append(rows[0])
        assert one.parts == (one,)

    def test_a_partition_that_is_named_wins(self, spread: Any, rows: Any) -> None:
        ack = spread.append(rows, partition=2)
        assert (ack.partition, ack.rows) == (2, 100)
        assert spread.append(rows, partition=2, if_next_offset=100).first_offset == 100
        with spread.writer(partition=3) as writer:
            for row in rows:
                writer.send(row)
        assert spread.next_offsets == {0: 0, 1: 0, 2: 200, 3: 100}
        with pytest.raises(NotFound):
            spread.append(rows, partition=PARTITIONS)

    def test_without_keys_what_is_appended_together_stays_together(self, log: Any) -> None:
        topic = log.create_topic("plain", {"n": int}, partitions=PARTITIONS)
        assert len({topic.append(up_to(10)).partition for _ in range(2 * PARTITIONS)}) == PARTITIONS
        assert topic.next_offsets == dict.fromkeys(range(PARTITIONS), 20)

    def test_offsets_are_a_partitions_matter(self, spread: Any, rows: Any) -> None:
        spread.append(rows)
        asks: list[Callable[[], Any]] = [
            lambda: spread.next_offset,
            lambda: spread.start_offset,
            lambda: spread.durable_offset,
            lambda: spread.head,
            lambda: spread[10:20],
            lambda: spread[-5:],
            lambda: spread[3],
            lambda: spread.token(0),
            lambda: spread.append(rows, if_next_offset=0),
        ]
        for ask in asks:
            with pytest.raises(UsageError, match="partition"):
                ask()
        assert sum(spread.next_offsets.values()) == 100

    def test_a_partition_takes_offsets(self, spread: Any, rows: Any) -> None:
        spread.append(rows, partition=1)
        part = spread.partition(1)
        assert ns(part[10:20]) == list(range(10, 20))
        assert ns(part[-3:]) == [97, 98, 99]
        assert (part[5]["n"], part[5].partition) == (5, 1)
        assert part[:].count() == 100
        assert spread.partition(0)[:].count() == 0

    def test_reading_spans_partitions(self, log: Any, spread: Any, rows: Any) -> None:
        spread.append(rows)
        assert sorted(ns(spread)) == list(range(100))
        assert spread.count() == spread[:].count() == 100
        assert sorted(spread.to_arrow().column("n").to_pylist()) == list(range(100))
        assert sorted(ns(spread.where("n >= 90").columns("n"))) == list(range(90, 100))
        assert spread.where("n >= 90").count() == 10
        assert len(ns(spread.limit(7))) == 7
        assert spread.limit(7).count() == 7
        assert sorted(ns(spread.tail(stop_when_idle=0.01))) == list(range(100))
        assert len(ns(spread[:].limit(5).tail())) == 5
        assert log.sql("select count(*) n, sum(n) s from spread").to_arrow().to_pylist() == [
            {"n": 100, "s": 4950}
        ]

    def test_times_span_partitions(self, spread: Any, rows: Any) -> None:
        spread.append(rows[:50])
        middle = max(row.timestamp for row in spread)
        spread.append(rows[50:])
        assert sorted(ns(spread.until(middle)) + ns(spread.since(middle))) == list(range(100))
        assert set(ns(spread.since(middle))) >= set(range(50, 100))
        assert ns(spread["2100-01-01":]) == []

    def test_a_tail_sees_what_comes_to_any_partition(self, spread: Any, other: Any) -> None:
        tail = iter(other.topic("spread").tail(stop_when_idle=5))
        for number in (3, 0, 2, 1):
            spread.append({"user": "ada", "n": number}, partition=number)
            row = next(tail)
            assert (row.partition, row["n"]) == (number, number)

    def test_newest_rows_of_each(self, spread: Any) -> None:
        for number in range(PARTITIONS):
            spread.append([{"user": "a", "n": n} for n in range(number, number + 5)], partition=number)
        assert sorted(ns(spread[:].newest(1))) == [4, 5, 6, 7]
        assert ns(spread[:].newest(0)) == []

    def test_a_writer_spreads_its_rows(self, spread: Any, rows: Any) -> None:
        with spread.writer(max_rows=30) as writer:
            for row in rows[:50]:
                writer.send(row)
            writer.send_batch(pa.Table.from_pylist(rows[50:]))
        assert sorted(ns(spread)) == list(range(100))

    def test_changes_reach_all_partitions(self, spread: Any, rows: Any, other: Any) -> None:
        spread.append(rows)
        spread.alter(schema={"user": str, "n": int, "note": str | None})
        handle = other.topic("spread")
        handle.append([{**row, "note": "new"} for row in rows])
        assert handle.where("note = 'new'").count() == 100
        assert handle.where("note is null").count() == 100
        spread.lock()
        for number in range(PARTITIONS):
            with pytest.raises(UsageError, match="locked"):
                handle.append({"user": "a", "n": 1, "note": None}, partition=number)

    def test_verify_and_stats_span_partitions(self, log: Any, spread: Any, rows: Any) -> None:
        spread.append(rows)
        report = spread.verify(against=spread.heads)
        assert report.ok and report.rows == 100 and report.heads == spread.heads
        assert spread.stats().rows == 100
        assert log.stats().rows == 100
        assert len(spread.partitions) == PARTITIONS

    def test_rows_that_do_not_fit_leave_nothing_behind(self, spread: Any, rows: Any) -> None:
        with pytest.raises(UsageError):
            spread.append([*rows, {"user": "ada", "n": "text"}])
        assert spread.count() == 0
        assert spread.append([]).rows == 0

    @pytest.mark.parametrize("partitions", [0, -1, 1001, 1.5, True, "2"], ids=repr)
    def test_numbers_of_partitions_that_cannot_be(self, log: Any, partitions: Any) -> None:
        with pytest.raises(UsageError, match="partitions"):
            log.create_topic("never", {"n": int}, partitions=partitions)


PLACES = {"ada": 2, "bob": 3, "": 2, "ä": 2}
