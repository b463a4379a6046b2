"""Reading: ranges by offset, token and moment; filters, columns, limits and counts."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from virta.errors import HistoryChanged, NotFound, UsageError
from virta.testing.conformance.base import Conformance, ns, up_to
from virta.types import Token


class ReadConformance(Conformance):
    @pytest.fixture
    def hundred(self, log: Any) -> Any:
        """A hundred rows in blocks of ten, over several segments."""
        topic = log.create_topic("hundred", {"n": int, "even": bool, "filler": bytes}, segment_bytes="64KiB")
        for start in range(0, 100, 10):
            topic.append(
                [{"n": n, "even": n % 2 == 0, "filler": bytes(2000)} for n in range(start, start + 10)]
            )
        assert topic.stats().segments > 2
        return topic

    @pytest.mark.parametrize(
        ("start", "end"),
        [
            (None, None), (0, 100), (10, 20), (5, 95), (9, 11), (50, 50), (60, 50), (0, 0), (99, 100),
            (-10, None), (-1, None), (None, -95), (-20, -10), (-1000, 3), (90, 1000), (100, None),
            (1000, None), (1000, 2000), (None, 1), (-100, None),
        ],
    )  # fmt: skip
    def test_slices(self, hundred: Any, start: int | None, end: int | None) -> None:
        expected = list(range(100))[start:end]
        assert ns(hundred[start:end]) == expected
        assert hundred[start:end].count() == len(expected)
        assert hundred[start:end].to_arrow().column("n").to_pylist() == expected
        assert [row.offset for row in hundred[start:end]] == expected

    def test_a_slice_has_no_step(self, hundred: Any) -> None:
        with pytest.raises(UsageError):
            hundred[::2]

    def test_single_rows(self, hundred: Any) -> None:
        assert [hundred[at]["n"] for at in (0, 9, 10, 99, -1, -100)] == [0, 9, 10, 99, 99, 0]
        for at in (100, -101, 10**6):
            with pytest.raises(NotFound):
                hundred[at]

    def test_rows(self, log: Any) -> None:
        topic = log.create_topic("typed", {"n": int, "name": str | None})
        topic.append([{"n": 1, "name": "a"}, {"n": 2}])
        one, two = topic[:]
        assert (one.offset, two.offset) == (0, 1)
        assert one["name"] == "a"
        assert list(one) == ["n", "name"]
        assert dict(two) == two.to_dict() == {"n": 2, "name": None}
        assert len(one) == 2
        assert "n" in one
        assert "odd" not in one
        with pytest.raises(KeyError, match="name"):
            one["nam"]
        assert isinstance(one.timestamp, datetime.datetime)

    def test_tokens_as_bounds(self, hundred: Any) -> None:
        start, end = hundred.token(15), hundred.token(32)
        assert ns(hundred[start:end]) == list(range(15, 32))
        assert ns(hundred[start:20]) == list(range(15, 20))
        assert ns(hundred[-90:start]) == list(range(10, 15))
        wrong = Token(partition=0, offset=15, hash=bytes(32))
        with pytest.raises(HistoryChanged):
            list(hundred[wrong:])

    def test_moments_as_bounds(self, hundred: Any) -> None:
        stamps = [row.timestamp for row in hundred[:]]
        middle = stamps[50]
        first = stamps.index(middle)
        assert ns(hundred[middle:]) == list(range(first, 100))
        assert ns(hundred[:middle]) == list(range(first))
        assert ns(hundred.since(middle)) == list(range(first, 100))
        assert ns(hundred.until(middle)) == list(range(first))
        assert ns(hundred.since(stamps[20]).until(middle)) == list(range(stamps.index(stamps[20]), first))
        assert ns(hundred[60:].since(middle)) == list(range(max(60, first), 100))
        assert hundred.since(middle).count() == 100 - first
        assert hundred.until(middle).count() == first

    def test_moments_as_people_write_them(self, hundred: Any) -> None:
        assert hundred.since("-15m").count() == 100
        assert hundred.until("-15m").count() == 0
        assert hundred.until("now").count() == 100
        assert hundred.since("2020-01-01").until("2020-01-02T10:00Z").count() == 0
        assert hundred.since(datetime.timedelta(hours=1)).count() == 100
        assert hundred.since(datetime.date(2020, 1, 1)).count() == 100
        assert hundred.since(0).count() == 100
        assert ns(hundred["-15m":])[:2] == [0, 1]
        with pytest.raises(UsageError):
            hundred.since("soon")
        with pytest.raises(UsageError):
            hundred.until("yesterday-ish")

    def test_filters(self, hundred: Any) -> None:
        assert ns(hundred.where("n >= 95")) == [95, 96, 97, 98, 99]
        assert ns(hundred.where("n >= 90").where("even")) == [90, 92, 94, 96, 98]
        assert ns(hundred[10:30].where("n % 10 = 5")) == [15, 25]
        assert hundred.where("n < 0").count() == 0
        assert hundred.where("not even").count() == 50
        assert ns(hundred.where("n > 50").columns("n").limit(2)) == [51, 52]

    @pytest.mark.parametrize("expression", ["", "n >", "odd = 1", "n = 'text'", "drop table", "n; n"])
    def test_filters_that_mean_nothing(self, hundred: Any, expression: str) -> None:
        with pytest.raises(UsageError):
            hundred.where(expression)

    def test_columns(self, hundred: Any) -> None:
        table = hundred[:5].columns("even", "n").to_arrow()
        assert table.column_names == ["even", "n"]
        assert [row.to_dict() for row in hundred[:2].columns("even")] == [{"even": True}, {"even": False}]
        assert [row.offset for row in hundred[3:5].columns("even")] == [3, 4]
        assert hundred[:5].columns("_offset", "n").to_arrow().to_pylist()[4] == {"_offset": 4, "n": 4}
        # filters see all columns, whatever is chosen in the end
        assert [row.to_dict() for row in hundred.columns("even").where("n = 3")] == [{"even": False}]
        with pytest.raises(NotFound, match="even"):
            hundred.columns("evn")
        with pytest.raises(UsageError):
            hundred.columns()

    def test_limits(self, hundred: Any) -> None:
        assert ns(hundred.limit(3)) == [0, 1, 2]
        assert ns(hundred[95:].limit(10)) == [95, 96, 97, 98, 99]
        assert ns(hundred.limit(0)) == []
        assert hundred.limit(15).count() == 15
        assert hundred[95:].limit(15).count() == 5
        assert hundred.limit(15).to_arrow().num_rows == 15
        with pytest.raises(UsageError):
            hundred.limit(-1)

    def test_the_first(self, hundred: Any, numbers: Any) -> None:
        assert hundred[42:].first()["n"] == 42
        assert hundred.where("n > 77").first()["n"] == 78
        assert numbers[:].first() is None

    def test_what_is_narrowed_stays_as_it_was(self, hundred: Any) -> None:
        wide = hundred[10:20]
        wide.limit(1).columns("n").where("n = 15")
        assert ns(wide) == ns(wide) == list(range(10, 20))

    def test_a_selection_sees_what_came_meanwhile(self, numbers: Any) -> None:
        everything = numbers[:]
        assert everything.count() == 0
        numbers.append(up_to(3))
        assert everything.count() == 3
        assert ns(everything) == [0, 1, 2]

    def test_an_empty_topic(self, numbers: Any) -> None:
        assert ns(numbers[:]) == ns(numbers[-5:]) == ns(numbers.since("-1h")) == []
        table = numbers.to_arrow()
        assert table.num_rows == 0
        assert table.column_names == ["_offset", "_timestamp", "n"]
        assert numbers.count() == 0
        assert (numbers.start_offset, numbers.next_offset) == (0, 0)

    def test_as_arrow(self, hundred: Any) -> None:
        table = hundred.to_arrow()
        assert table.schema.field("_offset").type == pa.int64()
        assert table.schema.field("_timestamp").type == pa.timestamp("us", "UTC")
        assert table.schema == hundred[:].schema
        assert table.column("_offset").to_pylist() == list(range(100))
        selection = hundred[10:30]
        for _ in range(2):
            assert selection.to_reader().read_all().column("n").to_pylist() == list(range(10, 30))
        assert sum(batch.num_rows for batch in selection.batches()) == 20
        assert selection.to_pylist()[0]["n"] == 10

    def test_small_blocks_come_joined(self, numbers: Any) -> None:
        for n in range(300):
            numbers.append({"n": n})
        assert len(list(numbers[:].batches())) == 1

    def test_rows_at_every_durability_are_read_by_all(self, log: Any, other: Any) -> None:
        for durability in ("memory", "os", "disk"):
            topic = log.create_topic(durability, {"n": int}, durability=durability)
            for start in range(0, 50, 10):
                topic.append(up_to(start + 10, start))
                self.let_others_see(topic, durability)
                for reader in (topic, other.topic(durability)):
                    assert ns(reader[:]) == list(range(start + 10))
                    assert reader.next_offset == start + 10
                    assert reader.head == topic.head
