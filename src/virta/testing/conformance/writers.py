"""Buffered writers: when rows leave, what a name promises, where errors come out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from virta.errors import Closed, Fenced, SchemaMismatch, TooLarge, UsageError
from virta.testing.conformance.base import Conformance, OpenLog, ns, up_to


class WriterConformance(Conformance):
    def test_leaving_flushes(self, numbers: Any) -> None:
        with numbers.writer(linger=0) as writer:
            for row in up_to(10):
                writer.send(row)
            assert numbers.next_offset == 0
        assert ns(numbers[:]) == list(range(10))
        assert writer.last_ack.last_offset == 9

    def test_rows_leave_by_number(self, numbers: Any) -> None:
        with numbers.writer(max_rows=4, linger=0) as writer:
            for row in up_to(10):
                writer.send(row)
            assert numbers.next_offset == 8
        assert ns(numbers[:]) == list(range(10))

    def test_rows_leave_by_bytes(self, log: Any) -> None:
        topic = log.create_topic("large", {"value": bytes})
        with topic.writer(max_rows=1000, max_bytes=1 << 20, linger=0) as writer:
            for _ in range(600):
                writer.send({"value": bytes(16 << 10)})
            assert topic.next_offset >= 256
        assert topic.count() == 600

    def test_rows_leave_by_time(self, numbers: Any) -> None:
        with numbers.writer(linger=0.001) as writer:
            writer.send({"n": 1})
            assert next(iter(numbers.tail()))["n"] == 1

    def test_flush(self, numbers: Any) -> None:
        with numbers.writer(linger=0) as writer:
            writer.flush()
            writer.send({"n": 1})
            writer.flush()
            assert ns(numbers[:]) == [1]
            writer.flush()
        assert numbers.next_offset == 1

    def test_batches_among_rows_keep_their_order(self, numbers: Any) -> None:
        with numbers.writer(linger=0) as writer:
            writer.send({"n": 0})
            writer.send_batch(pa.table({"n": [1, 2]}))
            writer.send({"n": 3})
            writer.send_batch(up_to(6, 4))
        assert ns(numbers[:]) == list(range(6))

    def test_bounds_are_positive(self, numbers: Any) -> None:
        for bounds in ({"max_rows": 0}, {"max_bytes": 0}, {"linger": -1}):
            with pytest.raises(UsageError), numbers.writer(**bounds):
                pytest.fail("it took what cannot be")

    # -- errors -------------------------------------------------------------------------------

    def test_an_error_surfaces_when_it_is_left(self, numbers: Any) -> None:
        with pytest.raises(SchemaMismatch) as caught, numbers.writer(linger=0) as writer:
            writer.send({"n": 0})
            writer.send({"n": "one"})
        assert (caught.value.column, caught.value.row) == ("n", 1)
        assert numbers.next_offset == 0

    def test_what_failed_stays_failed(self, numbers: Any) -> None:
        writer = numbers.writer(linger=0).__enter__()
        writer.send({"n": "one"})
        for _ in range(2):
            with pytest.raises(SchemaMismatch):
                writer.flush()
        writer.send({"n": 1})
        with pytest.raises(SchemaMismatch):
            writer.send_batch(up_to(3))
        with pytest.raises(SchemaMismatch):
            writer.close()
        assert numbers.next_offset == 0

    def test_an_error_of_the_block_is_not_hidden(self, numbers: Any) -> None:
        """Rows sent before it are still appended."""
        with pytest.raises(ZeroDivisionError), numbers.writer(linger=0) as writer:
            writer.send({"n": 1})
            raise ZeroDivisionError
        assert ns(numbers[:]) == [1]
        with pytest.raises(ZeroDivisionError), numbers.writer(linger=0) as writer:
            writer.send({"n": "one"})
            raise ZeroDivisionError
        assert ns(numbers[:]) == [1]

    def test_a_row_over_its_limit(self, log: Any) -> None:
        topic = log.create_topic("large", {"value": bytes}, row_limit_bytes="1MiB")
        with pytest.raises(TooLarge), topic.writer(linger=0) as writer:
            writer.send({"value": bytes(2 << 20)})
        assert topic.next_offset == 0

    def test_a_closed_writer(self, numbers: Any) -> None:
        writer = numbers.writer(linger=0).__enter__()
        writer.close()
        writer.close()
        for call in (writer.flush, lambda: writer.send_batch(up_to(1))):
            with pytest.raises(Closed):
                call()
        with pytest.raises(Closed):
            for row in up_to(10_000):
                writer.send(row)
        assert numbers.next_offset == 0

    # -- exactly once -----------------------------------------------------------------------------

    def test_a_name_says_where_it_stands(self, open_log: OpenLog) -> None:
        with open_log() as log:
            topic = log.create_topic("numbers", {"n": int})
            with topic.writer(producer="importer", linger=0) as writer:
                assert writer.last_sequence == -1
                for row in up_to(5):
                    writer.send(row)
                writer.flush()
                assert writer.last_sequence == 4
                writer.send_batch(up_to(8, 5))
            assert writer.last_sequence == 7
        with open_log() as log, log.topic("numbers").writer(producer="importer", linger=0) as writer:
            for n, row in enumerate(up_to(12)):
                if n > writer.last_sequence:
                    writer.send(row)
        with open_log() as log:
            assert ns(log.topic("numbers")[:]) == list(range(12))

    def test_names_stand_apart(self, numbers: Any) -> None:
        with (
            numbers.writer(producer="one", linger=0) as one,
            numbers.writer(producer="two", linger=0) as two,
        ):
            one.send({"n": 1})
            one.flush()
            assert (one.last_sequence, two.last_sequence) == (0, -1)
            two.send({"n": 2})
        assert ns(numbers[:]) == [1, 2]

    def test_a_name_is_remembered_over_rolls(self, log: Any) -> None:
        topic = log.create_topic("rolling", {"n": int, "filler": bytes}, segment_bytes="64KiB")
        for start in range(0, 40, 10):
            with topic.writer(producer="importer", max_rows=2, linger=0) as writer:
                assert writer.last_sequence == start - 1
                for n in range(start, start + 10):
                    writer.send({"n": n, "filler": bytes(20_000)})
        assert topic.stats().segments > 5
        assert ns(topic[:]) == list(range(40))

    def test_an_older_holder_is_fenced(self, numbers: Any, other: Any) -> None:
        older = numbers.writer(producer="importer", linger=0).__enter__()
        older.send({"n": 0})
        older.flush()
        with other.topic("numbers").writer(producer="importer", linger=0) as newer:
            assert newer.last_sequence == 0
            older.send({"n": 1})
            with pytest.raises(Fenced):
                older.flush()
            newer.send({"n": 1})
        with pytest.raises(Fenced):
            older.close()
        assert ns(numbers[:]) == [0, 1]

    @pytest.mark.parametrize("name", ["", "x" * 1025], ids=len)
    def test_names_that_are_refused(self, numbers: Any, name: str) -> None:
        with pytest.raises(UsageError), numbers.writer(producer=name):
            pytest.fail("it took a name that cannot be")

    def test_a_name_of_many_languages(self, numbers: Any) -> None:
        with numbers.writer(producer="ä" * 512, linger=0) as writer:
            writer.send({"n": 0})
        with numbers.writer(producer="ä" * 512, linger=0) as writer:
            assert writer.last_sequence == 0
