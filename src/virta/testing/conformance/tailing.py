"""Tails: what is there, then what comes, without a gap and without an end that was not asked for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from virta.testing.conformance.base import Conformance, ns, up_to


class TailConformance(Conformance):
    def test_a_tail_ends_when_idle(self, numbers: Any) -> None:
        numbers.append(up_to(5))
        assert ns(numbers.tail(stop_when_idle=0.01)) == list(range(5))
        assert ns(numbers[-2:].tail(stop_when_idle=0.01)) == [3, 4]
        assert ns(numbers[5:].tail(stop_when_idle=0.01)) == []
        batches = list(numbers[:].tail_batches(stop_when_idle=0.01))
        assert sum(batch.num_rows for batch in batches) == 5

    @pytest.mark.parametrize("durability", ["memory", "os", "disk"])
    def test_a_tail_sees_what_comes(self, log: Any, other: Any, durability: str) -> None:
        topic = log.create_topic("growing", {"n": int}, durability=durability)
        seen = threading.Semaphore(0)
        rows: list[int] = []

        def follow() -> None:
            for row in other.topic("growing").limit(30).tail():
                rows.append(row["n"])
                seen.release()

        follower = threading.Thread(target=follow)
        follower.start()
        for n in range(30):
            topic.append({"n": n})
            assert seen.acquire(timeout=30)
        follower.join()
        assert rows == list(range(30))

    def test_a_tail_goes_over_rolls(self, log: Any) -> None:
        topic = log.create_topic("rolling", {"n": int, "filler": bytes}, segment_bytes="64KiB")
        tail = iter(topic.limit(40).tail())
        for n in range(40):
            topic.append({"n": n, "filler": bytes(10_000)})
            if n % 10 == 9:  # asleep over a roll or two
                assert [next(tail)["n"] for _ in range(10)] == list(range(n - 9, n + 1))
        assert topic.stats().segments > 3
        assert list(tail) == []

    def test_a_tail_with_an_end_waits_for_it(self, numbers: Any) -> None:
        numbers.append(up_to(5))
        tail = iter(numbers[3:7].tail())
        assert [next(tail)["n"] for _ in range(2)] == [3, 4]
        numbers.append(up_to(10, 5))
        assert ns(tail) == [5, 6]

    def test_a_tail_from_a_row_to_come(self, numbers: Any) -> None:
        numbers.append(up_to(2))
        tail = iter(numbers[4:].limit(2).tail())
        appended = threading.Thread(target=lambda: [numbers.append({"n": n}) for n in range(2, 8)])
        appended.start()
        assert ns(tail) == [4, 5]
        appended.join()

    def test_a_tail_of_the_past_ends(self, numbers: Any) -> None:
        numbers.append(up_to(3))
        assert ns(numbers.until("now").tail()) == [0, 1, 2]
        assert ns(numbers.until("-1h").tail()) == []

    def test_a_narrowed_tail(self, log: Any) -> None:
        topic = log.create_topic("typed", {"n": int, "even": bool})
        topic.append([{"n": n, "even": n % 2 == 0} for n in range(10)])
        tail = topic[2:].where("even").columns("n").tail(stop_when_idle=0.01)
        assert [row.to_dict() for row in tail] == [{"n": 2}, {"n": 4}, {"n": 6}, {"n": 8}]
        assert ns(topic.since("-1h").limit(3).tail()) == [0, 1, 2]

    def test_a_tail_over_a_change_of_schema(self, log: Any) -> None:
        topic = log.create_topic("typed", {"n": int})
        topic.append({"n": 0})
        tail = iter(topic.tail())
        assert next(tail).to_dict() == {"n": 0}
        topic.alter(schema={"n": int, "note": str | None})
        topic.append({"n": 1, "note": "new"})
        assert next(tail).to_dict() == {"n": 1, "note": "new"}

    def test_many_tails_at_once(self, numbers: Any) -> None:
        results: list[list[int]] = [[] for _ in range(8)]

        def follow(into: list[int]) -> None:
            into.extend(ns(numbers.limit(50).tail()))

        followers = [threading.Thread(target=follow, args=(each,)) for each in results]
        for follower in followers:
            follower.start()
        for start in range(0, 50, 5):
            numbers.append(up_to(start + 5, start))
        for follower in followers:
            follower.join()
        assert results == [list(range(50))] * 8
