"""Rows in and out unchanged: every type, every producer of Arrow data, every limit."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest

from virta.errors import SchemaMismatch, TooLarge
from virta.testing.conformance.base import Conformance, nothing_written, ns, up_to

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 11, 18, 10, 30, 0, 123456, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: float
    y: float


# A Python type, values that go in, and how they come out where that differs.
PYTHON_TYPES: list[tuple[Any, list[Any], list[Any] | None]] = [
    (int, [0, -(2**63), 2**63 - 1], None),
    (float, [0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324], None),
    (float, [1], [1.0]),
    (str, ["", "text", "ünï\0code 🛒"], None),
    (bool, [True, False], None),
    (bytes, [b"", b"\x00\xff"], None),
    (int | None, [None, 1], None),
    (datetime.datetime, [MOMENT, datetime.datetime(1, 1, 1, tzinfo=UTC)], None),
    (datetime.date, [datetime.date(2026, 11, 18)], None),
    (datetime.time, [datetime.time(23, 59, 59, 999999)], None),
    (datetime.timedelta, [datetime.timedelta(days=-1, microseconds=1)], None),
    (decimal.Decimal, [decimal.Decimal("1.100000000"), decimal.Decimal("-99999999999.000000001")], None),
    (uuid.UUID, [uuid.UUID(int=5)], None),
    (list[int], [[], [1, 2, 3]], None),
    (list[int | None] | None, [None, [None, 1]], None),
    (dict[str, float], [{}, {"a": 1.0, "b": 2.0}], None),
    ({"x": int, "y": list[str]}, [{"x": 1, "y": ["a"]}], None),
    (Point, [Point(1.0, 2.0)], [{"x": 1.0, "y": 2.0}]),
    (Literal["red", "blue"], ["red", "blue", "red"], None),
    (Colour, ["red", Colour.BLUE], ["red", "blue"]),
    (list[dict[str, list[int]]], [[{"a": [1], "b": []}]], None),
]

ARROW_ARRAYS: list[pa.Array] = [
    *(pa.array([0, 1, None, 100], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(pa.array([0, 1, None, 200], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    pa.array([2**64 - 1], pa.uint64()),
    pa.array([0.5, None, math.inf], pa.float32()),
    pa.array([0.5, None, -math.inf], pa.float64()),
    pa.array([True, None, False]),
    pa.array(["a", None, ""], pa.large_string()),
    pa.array([b"a", None, b""], pa.large_binary()),
    pa.array([b"1234", None], pa.binary(4)),
    *(pa.array([1, None, -1], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    *(pa.array([1, None, -1], pa.timestamp("us", zone)) for zone in ("UTC", "Europe/Berlin", "+02:00")),
    pa.array([1, None], pa.date32()),
    pa.array([86_400_000, None], pa.date64()),
    pa.array([1, None], pa.time32("s")),
    pa.array([1, None], pa.time64("ns")),
    pa.array([1, None], pa.duration("ns")),
    pa.array([decimal.Decimal("1.5"), None], pa.decimal128(5, 2)),
    pa.array([decimal.Decimal("1.5"), None], pa.decimal256(76, 10)),
    pa.array(["a", "b", None, "a"]).dictionary_encode(),
    pa.array([[1, None], None, []], pa.list_(pa.int32())),
    pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    pa.array([[["a"], []], None], pa.list_(pa.list_(pa.string()))),
    pa.array([{"a": 1, "b": None}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
]

BAD_ROWS: list[tuple[Any, str, int | None]] = [
    ({"n": "one", "name": "x"}, "n", 0),
    ({"n": 1.5, "name": "x"}, "n", 0),
    ({"n": True, "name": "x"}, "n", 0),
    ({"n": None, "name": "x"}, "n", 0),
    ({"n": 2**63, "name": "x"}, "n", 0),
    ({"n": 1, "name": 5}, "name", 0),
    ({"n": 1, "name": b"bytes"}, "name", 0),
    ({"n": 1, "name": "\ud800"}, "name", 0),
    ({"name": "x"}, "n", 0),
    ({"n": 1, "name": "x", "odd": 1}, "odd", 0),
    ([{"n": 1, "name": "x"}, {"n": None, "name": "x"}], "n", 1),
    ([{"n": 1, "name": "x"}] * 70 + [{"n": 1, "nam": "x"}], "nam", 70),
    (pa.table({"n": pa.array([1, None]), "name": ["a", "b"]}), "n", 1),
    (pa.table({"n": ["1"], "name": ["a"]}), "n", None),
    (pa.table({"n": [1], "name": ["a"], "odd": [1]}), "odd", None),
    (pa.table({"n": pa.array([1, 2**63], pa.uint64()), "name": ["a", "b"]}), "n", 1),
]


def pandas_frame(table: pa.Table) -> Any:
    return table.to_pandas()


def polars_frame(table: pa.Table) -> Any:
    import polars

    return polars.DataFrame(table)


def duckdb_relation(table: pa.Table) -> Any:
    import duckdb

    return duckdb.from_arrow(table)


def reader(table: pa.Table) -> Any:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


class OnlyAStream:
    """Something that is nothing but an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


PRODUCERS: list[Callable[[pa.Table], Any]] = [
    pa.Table.to_pylist,
    pa.table,
    reader,
    pandas_frame,
    polars_frame,
    duckdb_relation,
    OnlyAStream,
]


def same(one: Any, other: Any) -> bool:
    """Equality by which NaN is itself and 0.0 is not -0.0."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


class RowConformance(Conformance):
    @pytest.mark.parametrize(("kind", "values", "expected"), PYTHON_TYPES, ids=str)
    def test_python_types(self, log: Any, kind: Any, values: list[Any], expected: list[Any] | None) -> None:
        topic = log.create_topic("typed", {"value": kind})
        topic.append([{"value": value} for value in values])
        assert same([row["value"] for row in topic[:]], values if expected is None else expected)

    @pytest.mark.parametrize("array", ARROW_ARRAYS, ids=lambda array: str(array.type))
    def test_arrow_types(self, log: Any, array: pa.Array) -> None:
        given = pa.table({"value": array})
        topic = log.create_topic("typed", given.schema)
        topic.append(given)
        topic.append(given.slice(1))
        column = topic.to_arrow().column("value")
        assert column.type == array.type
        expected = [*array.to_pylist(), *array.slice(1).to_pylist()]
        assert column.to_pylist() == expected

    def test_metadata_of_a_schema_is_kept(self, log: Any) -> None:
        field = pa.field("n", pa.int64(), metadata={"unit": "EUR"})
        topic = log.create_topic("typed", pa.schema([field], metadata={"owner": "ada"}))
        found = topic.schema
        assert found.field("n").metadata[b"unit"] == b"EUR"
        assert found.metadata[b"owner"] == b"ada"

    def test_a_topic_without_a_schema(self, log: Any) -> None:
        topic = log.create_topic("plain")
        topic.append({"key": b"k", "value": b"v", "_headers": {"trace": b"1"}})
        topic.append([{"key": "text", "value": "text"}, {"value": None}, {"key": None}])
        assert [(row["key"], row["value"]) for row in topic[:]] == [
            (b"k", b"v"),
            (b"text", b"text"),
            (None, None),
            (None, None),
        ]
        assert topic[0]["_headers"] == {"trace": b"1"}

    def test_headers(self, log: Any) -> None:
        topic = log.create_topic("typed", {"n": int}, headers=True)
        topic.append({"n": 1, "_headers": {"trace": b"\x00", "b": b""}})
        topic.append({"n": 2})
        assert [row["_headers"] for row in topic[:]] == [{"trace": b"\x00", "b": b""}, None]
        without = log.create_topic("without", {"n": int})
        with pytest.raises(SchemaMismatch) as caught, nothing_written(without):
            without.append({"n": 1, "_headers": {"trace": b"1"}})
        assert caught.value.column == "_headers"

    def test_a_map_with_a_key_twice_keeps_both(self, log: Any) -> None:
        topic = log.create_topic("typed", {"value": dict[str, int]})
        topic.append({"value": [("a", 1), ("a", 2)]})
        assert topic[0]["value"] == [("a", 1), ("a", 2)]

    def test_nan_stays_nan(self, log: Any) -> None:
        topic = log.create_topic("typed", {"value": float})
        topic.append([{"value": math.nan}, {"value": 1.0}])
        assert same([row["value"] for row in topic[:]], [math.nan, 1.0])

    def test_time_zones_are_the_same_moment(self, log: Any) -> None:
        topic = log.create_topic("typed", {"at": datetime.datetime})
        elsewhere = MOMENT.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
        topic.append([{"at": MOMENT}, {"at": elsewhere}])
        assert [row["at"] for row in topic[:]] == [MOMENT, MOMENT]
        with pytest.raises(SchemaMismatch), nothing_written(topic):
            topic.append({"at": MOMENT.replace(tzinfo=None)})

    # -- producers of rows -----------------------------------------------------------------------

    @pytest.mark.parametrize("producer", PRODUCERS, ids=lambda each: each.__name__)
    def test_producers(self, log: Any, producer: Callable[[pa.Table], Any]) -> None:
        given = pa.table(
            {
                "n": pa.array([1, 2, 3], pa.int64()),
                "name": pa.array(["a", "b", "c"]),
                "at": pa.array([MOMENT] * 3, pa.timestamp("us", "UTC")),
            }
        )
        topic = log.create_topic("typed", given.schema)
        ack = topic.append(producer(given))
        assert (ack.first_offset, ack.last_offset) == (0, 2)
        assert topic.to_arrow().select(["n", "name", "at"]).to_pylist() == given.to_pylist()

    @pytest.mark.parametrize("producer", PRODUCERS[:-1], ids=lambda each: each.__name__)
    def test_zero_rows_write_nothing(self, numbers: Any, producer: Callable[[pa.Table], Any]) -> None:
        numbers.append(up_to(3))
        none = pa.table({"n": pa.array([], pa.int64())})
        with nothing_written(numbers):
            ack = numbers.append(producer(none))
        assert (ack.first_offset, ack.last_offset, ack.rows) == (3, 2, 0)
        assert ack.head == numbers.head

    def test_empty_batches_among_others(self, numbers: Any) -> None:
        batch = pa.record_batch({"n": pa.array([1, 2], pa.int64())})
        stream = pa.RecordBatchReader.from_batches(batch.schema, [batch.slice(0, 0), batch, batch.slice(2)])
        assert numbers.append(stream).rows == 2
        assert ns(numbers[:]) == [1, 2]

    def test_columns_in_another_order_and_left_out(self, log: Any) -> None:
        topic = log.create_topic("typed", {"a": int, "b": int | None})
        topic.append(pa.table({"b": [1], "a": [2]}))
        topic.append(pa.table({"a": [3]}))
        topic.append([{"b": 4, "a": 5}, {"a": 6}])
        assert [(row["a"], row["b"]) for row in topic[:]] == [(2, 1), (3, None), (5, 4), (6, None)]

    def test_rows_that_were_read_can_be_appended(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(3))
        copy = log.create_topic("copy", {"n": int})
        copy.append(numbers.to_arrow())
        copy.append([row.to_dict() for row in numbers[:]])
        assert ns(copy[:]) == [0, 1, 2, 0, 1, 2]

    def test_dictionaries_that_differ_from_block_to_block(self, log: Any) -> None:
        topic = log.create_topic("typed", pa.schema([("c", pa.dictionary(pa.int32(), pa.string()))]))
        for words in (["a", "b"], ["z", "a", None], ["b"] * 10):
            topic.append(pa.table({"c": pa.array(words).dictionary_encode()}))
        assert topic.to_arrow().column("c").to_pylist() == ["a", "b", "z", "a", None, *["b"] * 10]
        assert [row["c"] for row in topic[1:4]] == ["b", "z", "a"]

    # -- limits and errors ---------------------------------------------------------------------------

    @pytest.mark.parametrize(("rows", "column", "row"), BAD_ROWS, ids=lambda value: str(value)[:40])
    def test_rows_that_do_not_fit(self, log: Any, rows: Any, column: str, row: int | None) -> None:
        topic = log.create_topic("typed", {"n": int, "name": str | None})
        topic.append({"n": 0, "name": None})
        with pytest.raises(SchemaMismatch) as caught, nothing_written(topic):
            topic.append(rows)
        assert caught.value.column == column
        assert caught.value.row == row
        assert column in str(caught.value)

    @pytest.mark.parametrize("rows", [5, "text", [5], [["n", 1]], object(), {1, 2}], ids=str)
    def test_what_is_no_row_at_all(self, numbers: Any, rows: Any) -> None:
        with pytest.raises(SchemaMismatch), nothing_written(numbers):
            numbers.append(rows)

    def test_a_bad_row_in_the_last_batch_leaves_nothing(self, numbers: Any) -> None:
        good = pa.record_batch({"n": pa.array([1], pa.int64())})
        bad = pa.record_batch({"n": pa.array([None], pa.int64())})
        stream = pa.RecordBatchReader.from_batches(good.schema, [good] * 50 + [bad])
        with pytest.raises(SchemaMismatch) as caught, nothing_written(numbers):
            numbers.append(stream)
        assert caught.value.row == 50

    def test_values_of_ten_mebibytes(self, log: Any) -> None:
        topic = log.create_topic("large", {"n": int, "value": bytes}, row_limit_bytes="11MiB")
        values = [bytes([n]) * (10 << 20) for n in range(3)]
        topic.append([{"n": n, "value": value} for n, value in enumerate(values)])
        assert [row["value"] == values[row["n"]] for row in topic[:]] == [True] * 3
        assert topic[1]["value"] == values[1]

    def test_a_row_over_its_limit(self, log: Any) -> None:
        topic = log.create_topic("large", {"n": int, "value": bytes}, row_limit_bytes="64KiB")
        rows = [{"n": 0, "value": b"x"}, {"n": 1, "value": bytes(65 << 10)}]
        for given in (rows, pa.table({"n": [0, 1], "value": [row["value"] for row in rows]})):
            with pytest.raises(TooLarge) as caught, nothing_written(topic):
                topic.append(given)
            assert caught.value.row == 1
            assert caught.value.limit == 64 << 10
            assert (caught.value.size or 0) > 64 << 10
        topic.append({"n": 0, "value": bytes(63 << 10)})

    def test_a_small_row_over_a_smaller_limit(self, log: Any) -> None:
        topic = log.create_topic("small", {"one": str, "two": bytes}, row_limit_bytes="1KiB")
        with pytest.raises(TooLarge), nothing_written(topic):
            topic.append({"one": "x" * 600, "two": bytes(600)})
        topic.append({"one": "x" * 500, "two": bytes(500)})
        topic.append({"one": "x" * 900, "two": b""})

    def test_a_key_over_its_limit(self, log: Any) -> None:
        topic = log.create_topic("keyed", {"name": str, "n": int}, keys=["name"])
        with pytest.raises(TooLarge) as caught, nothing_written(topic):
            topic.append([{"name": "x" * 1024, "n": 1}, {"name": "x" * 1025, "n": 1}])
        assert (caught.value.column, caught.value.row) == ("name", 1)
        plain = log.create_topic("plain")
        with pytest.raises(TooLarge), nothing_written(plain):
            plain.append({"key": bytes(1025)})

    def test_many_rows_in_one_append(self, numbers: Any) -> None:
        numbers.append(pa.table({"n": pa.array(range(300_000), pa.int64())}))
        assert numbers.count() == 300_000
        assert numbers[299_999]["n"] == 299_999
        assert ns(numbers[150_000:150_003]) == [150_000, 150_001, 150_002]
