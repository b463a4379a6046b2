"""Appending: what an acknowledgement says, expectations, and many who append at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from virta.errors import Conflict
from virta.testing.conformance.base import Conformance, nothing_written, ns, up_to
from virta.types import Durability

DURABILITIES = ["memory", "os", "disk"]
THREADS = 8
APPENDS_PER_THREAD = 40


class AppendConformance(Conformance):
    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_what_an_acknowledgement_says(self, log: Any, durability: str) -> None:
        topic = log.create_topic("numbers", {"n": int}, durability=durability)
        first = topic.append({"n": 0})
        assert (first.partition, first.first_offset, first.last_offset, first.rows) == (0, 0, 0, 1)
        assert first.durability is Durability(durability)
        assert first.head == topic.head
        assert not first.duplicate
        second = topic.append(up_to(4, 1))
        assert (second.first_offset, second.last_offset, second.rows) == (1, 3, 3)
        assert second.head == topic.head != first.head
        assert ns(topic[:]) == [0, 1, 2, 3]

    def test_what_is_durable(self, log: Any) -> None:
        topic = log.create_topic("numbers", {"n": int}, durability="disk")
        topic.append(up_to(3))
        assert topic.durable_offset == 3

    def test_sync_makes_durable(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(3))
        numbers.sync()
        assert numbers.durable_offset == 3
        numbers.append(up_to(5, 3))
        log.sync()
        assert numbers.durable_offset == 5

    def test_timestamps_never_fall(self, numbers: Any) -> None:
        for n in range(20):
            numbers.append({"n": n})
        stamps = [row.timestamp for row in numbers[:]]
        assert stamps == sorted(stamps)
        assert all(stamp.utcoffset().total_seconds() == 0 for stamp in stamps)

    def test_the_expected_offset(self, numbers: Any, other: Any) -> None:
        numbers.append(up_to(2), if_next_offset=0)
        other.topic("numbers").append({"n": 2}, if_next_offset=2)
        for expected in (0, 2, 4):
            with pytest.raises(Conflict) as caught, nothing_written(numbers):
                numbers.append({"n": 9}, if_next_offset=expected)
            assert (caught.value.expected, caught.value.actual) == (expected, 3)
        with pytest.raises(Conflict), nothing_written(numbers):
            numbers.append([], if_next_offset=2)
        assert numbers.append([], if_next_offset=3).rows == 0

    def test_an_expectation_over_several_blocks(self, log: Any) -> None:
        """More than a block holds goes in as a whole or not at all."""
        topic = log.create_topic("large", {"value": bytes})
        rows = [{"value": bytes(6 << 20)}] * 4
        assert topic.append(rows, if_next_offset=0).rows == 4
        assert topic.partition(0).fetch(topic.token(0)).rows < 4
        with pytest.raises(Conflict), nothing_written(topic):
            topic.append(rows, if_next_offset=3)

    def test_of_many_who_expect_the_same_one_wins(self, numbers: Any) -> None:
        won: list[int] = []
        start = threading.Barrier(THREADS)

        def attempt(n: int) -> None:
            start.wait()
            try:
                numbers.append({"n": n}, if_next_offset=0)
            except Conflict:
                return
            won.append(n)

        run_together([threading.Thread(target=attempt, args=(n,)) for n in range(THREADS)])
        assert ns(numbers[:]) == won
        assert len(won) == 1

    @pytest.mark.parametrize("durability", DURABILITIES)
    def test_eight_threads_lose_nothing(self, log: Any, other: Any, durability: str) -> None:
        """Rows of each thread stay in its order, over two handles on one log."""
        topic = log.create_topic("shared", {"thread": int, "n": int}, durability=durability)
        handles = [topic, other.topic("shared")]
        acks: dict[int, list[int]] = {thread: [] for thread in range(THREADS)}
        failures: list[BaseException] = []
        start = threading.Barrier(THREADS)

        def append_all(thread: int) -> None:
            try:
                start.wait()
                for n in range(APPENDS_PER_THREAD):
                    ack = handles[thread % 2].append({"thread": thread, "n": n})
                    acks[thread].append(ack.first_offset)
            except BaseException as error:
                failures.append(error)

        run_together([threading.Thread(target=append_all, args=(each,)) for each in range(THREADS)])
        assert failures == []
        rows = [(row["thread"], row["n"], row.offset) for row in topic[:]]
        assert [offset for _, _, offset in rows] == list(range(THREADS * APPENDS_PER_THREAD))
        for thread in range(THREADS):
            mine = [(n, offset) for by, n, offset in rows if by == thread]
            assert mine == list(enumerate(acks[thread]))
        assert topic.verify().ok


def run_together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
