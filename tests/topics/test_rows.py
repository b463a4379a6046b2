"""Rows and Arrow data into batches: what goes in comes out, or is refused by column and row."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from virta.errors import SchemaMismatch, TooLarge, VirtaError
from virta.metadata.schemas import HEADERS, build_schema
from virta.topics.rows import RowConverter

UTC = datetime.UTC
MIB = 1024 * 1024

UNTYPED = RowConverter(build_schema(None))
ORDERS = RowConverter(build_schema({"id": int, "user": str, "amount": float}), keys=["id"])


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Part:
    a: str
    m: dict[str, bytes]


def one_column(wanted: object) -> RowConverter:
    return RowConverter(build_schema({"x": wanted}))


def stored(wanted: object, value: object) -> Any:
    return one_column(wanted).from_rows([{"x": value}]).column("x").to_pylist()[0]


# -- every type, any value ----------------------------------------------------------------

moments = st.datetimes(timezones=st.sampled_from([UTC, datetime.timezone(datetime.timedelta(hours=-7))]))

# Each type with values it must hold exactly.
PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint16(), st.integers(0, 65535)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.time32("ms"), st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    (pa.timestamp("us", tz="UTC"), moments),
    (pa.timestamp("us", tz="Europe/Helsinki"), moments.filter(lambda m: 1 < m.year < 9999)),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("s"), st.datetimes().map(lambda m: m.replace(microsecond=0))),
    (
        pa.duration("us"),
        st.timedeltas(datetime.timedelta(days=-(10**7)), datetime.timedelta(days=10**7)),
    ),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4, allow_nan=False)),
    (pa.uuid(), st.uuids()),
    (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=2)),
    (pa.dictionary(pa.int8(), pa.int64()), st.integers(0, 9)),
]


@st.composite
def fields(draw: st.DrawFn, depth: int = 2) -> tuple[pa.Field, st.SearchStrategy[Any]]:
    """A field and values for it."""
    shape = draw(st.sampled_from(["plain", "plain", "list", "map", "struct"])) if depth else "plain"
    if shape == "plain":
        kind, values = draw(st.sampled_from(PLAIN))
    elif shape == "struct":
        inner = draw(st.lists(fields(depth=depth - 1), min_size=1, max_size=3))
        named = [(field.with_name(f"f{at}"), each) for at, (field, each) in enumerate(inner)]
        kind = pa.struct([field for field, _ in named])
        values = st.fixed_dictionaries({field.name: each for field, each in named})
    else:
        item, values = draw(fields(depth=depth - 1))
        if shape == "list":
            make = draw(st.sampled_from([pa.list_, pa.large_list]))
            kind, values = make(item), st.lists(values, max_size=3)
        else:
            kind = pa.map_(pa.string(), item.with_name("value"))
            values = st.dictionaries(st.text(max_size=3), values, max_size=3)
    nullable = draw(st.booleans())
    field = pa.field("x", kind, nullable=nullable)
    return field, values | st.none() if nullable else values


def plain(value: Any) -> Any:
    """A value in the one form in which what went in and what came out compare."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        pairs = bool(value) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
        return {key: plain(inner) for key, inner in value} if pairs else [plain(v) for v in value]
    if isinstance(value, float):
        return (value, math.copysign(1, value))
    return value.bytes if isinstance(value, uuid.UUID) else value


def without_empties(value: Any) -> Any:
    """An empty map comes back as an empty list."""
    if isinstance(value, dict):
        return {key: without_empties(inner) for key, inner in value.items()} or []
    return [without_empties(inner) for inner in value] if isinstance(value, list) else value


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, list[dict[str, Any]]]:
    columns = {f"c{at}": each for at, each in enumerate(draw(st.lists(fields(), min_size=1, max_size=4)))}
    schema = build_schema(pa.schema([field.with_name(name) for name, (field, _) in columns.items()]))
    rows = st.fixed_dictionaries({name: values for name, (_, values) in columns.items()})
    return schema, draw(st.lists(rows, max_size=6))


@given(tables())
@settings(max_examples=300, deadline=None)
def test_rows_come_out_as_they_went_in(table: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = table
    batch = RowConverter(schema).from_rows(rows)
    batch.validate(full=True)
    assert batch.schema.equals(schema, check_metadata=True)
    assert without_empties(plain(batch.to_pylist())) == without_empties(plain(rows))


@given(tables(), st.randoms())
@settings(max_examples=200, deadline=None)
def test_arrow_data_comes_out_as_it_went_in(
    table: tuple[pa.Schema, list[dict[str, Any]]], random: Any
) -> None:
    """Also from slices, in another order of columns, and over the C interface."""
    schema, rows = table
    converter = RowConverter(schema)
    batch = converter.from_rows(rows)
    start = random.randint(0, len(rows))
    shuffled = batch.slice(start).select(random.sample(schema.names, len(schema.names)))
    for given_form in (shuffled, pa.Table.from_batches([shuffled]), Foreign(shuffled)):
        back = list(converter.from_arrow(given_form))
        assert [row for each in back for row in each.to_pylist()] == batch.slice(start).to_pylist()


class Foreign:
    """Arrow data that pyarrow cannot know to be its own."""

    def __init__(self, data: pa.RecordBatch | pa.Table | pa.RecordBatchReader) -> None:
        self.data = data

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        data = self.data
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        return data.__arrow_c_stream__(requested_schema)


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.characters(categories=["Cs"]),
    st.binary(max_size=3),
    st.datetimes(),
    moments,
    st.dates(),
    st.times(),
    st.times(timezones=st.just(UTC)),
    st.timedeltas(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.uuids(),
    st.integers(-100, 100).map(np.int8),
    st.floats(width=32).map(np.float32),
    st.just(np.bool_(True)),
    st.just(pd.NaT),
    st.just(pd.NA),
    st.just(pd.Timestamp(1, tz="UTC")),
    st.lists(st.integers() | st.text(max_size=2) | st.floats() | st.none(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers() | st.binary() | st.none(), max_size=2),
    st.sampled_from([Colour.RED, object(), int, np.array([1.5]), bytearray(b"x")]),
)


def same(given_value: Any, found: Any) -> bool:
    """Whether a stored value says what the given one said."""
    if isinstance(given_value, enum.Enum):
        given_value = given_value.value
    if isinstance(given_value, float | np.floating) and isinstance(found, float):
        close = math.isclose(given_value, found, rel_tol=1e-3, abs_tol=1e-4)
        return bool(close or (math.isnan(given_value) and math.isnan(found)))
    if isinstance(given_value, bytearray | np.bool_ | np.integer):
        return bool(given_value == found)
    if isinstance(given_value, str) and isinstance(found, bytes):
        return given_value.encode() == found
    if isinstance(given_value, bytes) and isinstance(found, uuid.UUID):
        return given_value == found.bytes
    if isinstance(given_value, dict | list):
        return without_empties(plain(given_value)) == without_empties(plain(found))
    exact = isinstance(given_value, bool) == isinstance(found, bool)
    days = isinstance(given_value, datetime.datetime) == isinstance(found, datetime.datetime)
    return exact and days and bool(given_value == found)


@given(fields(depth=1), st.lists(odd_values, min_size=1, max_size=4))
@settings(max_examples=800, deadline=None)
def test_any_value_is_stored_as_it_is_or_refused_by_name(
    column: tuple[pa.Field, Any], values: list[Any]
) -> None:
    schema = build_schema(pa.schema([column[0]]))
    try:
        batch = RowConverter(schema).from_rows([{"x": value} for value in values])
    except SchemaMismatch as error:
        assert error.column == "x"
        assert error.row is not None and error.row < len(values)
        assert f"row {error.row}" in error.message or "missing" in error.message
    else:
        batch.validate(full=True)
        found = batch.column("x").to_pylist()
        narrow = pa.types.is_nested(schema.field("x").type)
        assert narrow or all(map(same, values, found)), (values, found)


@pytest.mark.parametrize(
    ("wanted", "value", "words"),
    [
        (int, "1", "str '1'"),
        (int, 1.5, "float 1.5"),
        (int, 1.0, "float 1.0"),
        (int, True, "bool True"),
        (int, None, "not null"),
        (int, 2**63, "from -9223372036854775808"),
        (pa.uint8(), -1, "from 0 to 255"),
        (float, "1", "str '1'"),
        (float, True, "bool"),
        (float, 2**53 + 1, "not exact"),
        (pa.float32(), 1e300, "too large"),
        (float, 10**400, "too large"),
        (str, b"x", "decoded first"),
        (str, 1, "int 1"),
        (str, "\ud800", "Unicode"),
        (bytes, 1, "int 1"),
        (bool, 1, "int 1"),
        (datetime.datetime, datetime.datetime(2026, 1, 1), "timezone.utc"),
        (datetime.datetime, datetime.date(2026, 1, 1), "date"),
        (datetime.datetime, 5, "int 5"),
        (pa.timestamp("us"), datetime.datetime(2026, 1, 1, tzinfo=UTC), "has a time zone"),
        (pa.timestamp("s"), datetime.datetime(2026, 1, 1, 0, 0, 0, 5), "finer than s"),
        (pa.timestamp("ns"), datetime.datetime(9999, 1, 1), "out of range"),
        (datetime.datetime, pd.Timestamp(1, tz="UTC"), "finer than us"),
        (datetime.datetime, pd.NaT, "NaT"),
        (datetime.date, datetime.datetime(2026, 1, 1), "datetime"),
        (datetime.time, datetime.time(1, tzinfo=UTC), "time zone"),
        (pa.time32("ms"), datetime.time(1, 2, 3, 4), "finer"),
        (pa.duration("ms"), datetime.timedelta(microseconds=1), "finer"),
        (datetime.timedelta, datetime.timedelta.max, "out of range"),
        (decimal.Decimal, 1.5, "not exact"),
        (decimal.Decimal, decimal.Decimal("1e-10"), "fit exactly"),
        (decimal.Decimal, decimal.Decimal("NaN"), "fit exactly"),
        (uuid.UUID, "x" * 16, "str"),
        (list[int], [1.5], "float 1.5"),
        (list[int], [None], "not null"),
        (list[int], b"ab", "bytes"),
        (list[str], "ab", "str"),
        (list[str], [b"x"], "decoded"),
        ({"a": int}, {"a": 1, "b": 2}, "no field 'b'"),
        ({"a": int}, {}, "field 'a'"),
        ({"a": {"b": int}}, {"a": {"b": "1"}}, "field 'a' that has a field 'b'"),
        ({"a": int}, (1,), "tuple"),
        (dict[str, int], {1: 1}, "int 1"),
        (dict[str, int], {"a": True}, "bool"),
        (dict[str, int], {"a": None}, "not null"),
        (pa.map_(pa.string(), pa.int64()), [(None, 1)], "not null"),
        (Colour, 1, "int 1"),
        (pa.binary(2), b"abc", "2 but 3 bytes"),
        (pa.list_(pa.int64(), 2), [1], "1 elements"),
    ],
)
def test_nothing_is_rounded_cut_or_guessed(wanted: object, value: object, words: str) -> None:
    good = one_column(pa.field("x", build_schema({"x": wanted}).field("x").type))
    assert good.from_rows([{}, {"x": None}]).num_rows == 2
    rows = [{"x": value}] if value is None else [{"x": None}, {"x": None}, {"x": value}]
    converter = one_column(wanted) if value is None else good
    with pytest.raises(SchemaMismatch) as caught:
        converter.from_rows(rows)
    assert words in str(caught.value)
    assert (caught.value.column, caught.value.row) == ("x", len(rows) - 1)


@pytest.mark.parametrize(
    ("wanted", "value", "found"),
    [
        (int, np.int32(7), 7),
        (float, 3, 3.0),
        (float, 2**60, float(2**60)),
        (float, np.float32(0.5), 0.5),
        (pa.float32(), 0.1, pytest.approx(0.1)),
        (pa.float32(), math.inf, math.inf),
        (str, np.str_("x"), "x"),
        (bytes, "ä", "ä".encode()),
        (bytes, bytearray(b"x"), b"x"),
        (bytes, memoryview(b"abcdef")[::2], b"ace"),
        (bool, np.bool_(False), False),
        (Colour, Colour.RED, "red"),
        (Colour, "red", "red"),
        (list[int], (1, 2), [1, 2]),
        (list[int], np.array([1, 2]), [1, 2]),
        (dict[str, int], [("a", 1), ("a", 2)], [("a", 1), ("a", 2)]),
        (uuid.UUID, b"0" * 16, uuid.UUID(bytes=b"0" * 16)),
        (datetime.datetime, pd.Timestamp("2026-01-01", tz="UTC"), datetime.datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_other_forms_of_the_same_value_are_taken(wanted: object, value: object, found: object) -> None:
    assert stored(wanted, value) == found


# -- columns ------------------------------------------------------------------------------


class TestColumns:
    def test_the_order_of_names_is_free(self) -> None:
        rows = [{"amount": 1.0, "id": 1, "user": "a"}, {"user": "b", "amount": 2.0, "id": 2}]
        batch = ORDERS.from_rows(rows)
        assert batch.schema.names == ["id", "user", "amount"]
        assert batch.to_pylist() == rows

    def test_columns_that_may_be_null_may_be_left_out_row_by_row(self) -> None:
        batch = UNTYPED.from_rows([{"value": b"1"}, {"key": b"k"}, {}, {HEADERS: {"a": "b"}}])
        assert batch.to_pylist() == [
            {"key": None, "value": b"1", HEADERS: None},
            {"key": b"k", "value": None, HEADERS: None},
            {"key": None, "value": None, HEADERS: None},
            {"key": None, "value": None, HEADERS: [("a", b"b")]},
        ]

    def test_a_missing_column_is_named(self) -> None:
        whole = {"id": 1, "user": "a", "amount": 1.0}
        for rows in ([{"id": 1, "user": "a"}], [whole, {"id": 1, "user": "a"}]):
            with pytest.raises(SchemaMismatch, match="missing") as caught:
                ORDERS.from_rows(rows)
            assert (caught.value.column, caught.value.row) == ("amount", len(rows) - 1)

    def test_an_unknown_column_is_named_with_the_nearest_known(self) -> None:
        whole = {"id": 1, "user": "a", "amount": 1.0}
        for extra in ({"usr": "b"}, {"usr": None}):
            with pytest.raises(SchemaMismatch, match="did you mean 'user'") as caught:
                ORDERS.from_rows([whole, {**whole, **extra}])
            assert (caught.value.column, caught.value.row) == ("usr", 1)

    def test_one_name_too_few_and_one_too_many_do_not_cancel_out(self) -> None:
        with pytest.raises(SchemaMismatch):
            UNTYPED.from_rows([{"key": b"", "value": b""}, {"key": b""}, {"key": b"", "value": b"", "x": 1}])

    def test_headers_without_headers_are_refused(self) -> None:
        with pytest.raises(SchemaMismatch, match="without headers"):
            ORDERS.from_rows([{"id": 1, "user": "a", "amount": 1.0, HEADERS: {}}])

    def test_rows_that_were_read_can_be_appended(self) -> None:
        row = {"_offset": 7, "_timestamp": 9, "id": 1, "user": "a", "amount": 1.0}
        assert ORDERS.from_rows([row]).num_columns == 3

    def test_what_is_not_a_row_is_refused(self) -> None:
        for rows in ([5], [None], [{"id": 1, "user": "a", "amount": 1.0}, ("id", 1)]):
            with pytest.raises(SchemaMismatch, match="not a dict") as caught:
                ORDERS.from_rows(rows)  # type: ignore[arg-type]
            assert caught.value.row == len(rows) - 1

    def test_dataclasses_are_rows(self) -> None:
        @dataclasses.dataclass
        class Order:
            id: int
            user: str
            amount: float

        assert ORDERS.from_rows([Order(1, "a", 2.0)]).to_pylist() == [  # type: ignore[list-item]
            {"id": 1, "user": "a", "amount": 2.0}
        ]

    def test_no_rows_are_an_empty_batch(self) -> None:
        batch = ORDERS.from_rows([])
        assert batch.num_rows == 0
        assert batch.schema.equals(ORDERS.schema, check_metadata=True)

    def test_many_shapes_of_rows_do_not_pile_up(self) -> None:
        names = [f"c{at}" for at in range(200)]
        converter = RowConverter(build_schema(dict.fromkeys(names, int | None)))
        for name in names:
            assert converter.from_rows([{name: 1}]).column(name).to_pylist() == [1]
        assert len(converter._shapes) <= 64

    def test_more_labels_than_a_dictionary_can_count_are_refused(self) -> None:
        converter = one_column(pa.dictionary(pa.int8(), pa.string()))
        assert converter.from_rows([{"x": str(n)} for n in range(100)]).num_rows == 100
        with pytest.raises(SchemaMismatch, match="wider index"):
            converter.from_rows([{"x": str(n)} for n in range(200)])


# -- limits -------------------------------------------------------------------------------


class TestLimits:
    def test_a_value_of_exactly_the_limit_fits(self) -> None:
        largest = bytes(10 * MIB)
        batch = UNTYPED.from_rows([{"key": b"k" * 1024, "value": largest}])
        assert batch.column("value")[0].as_py() == largest

    def test_a_row_over_the_limit_is_named(self) -> None:
        rows = [{"value": b"x"}, {"value": bytes(10 * MIB)}, {"value": bytes(10 * MIB + 1)}]
        with pytest.raises(TooLarge) as caught:
            UNTYPED.from_rows(rows)
        error = caught.value
        assert (error.row, error.column, error.size, error.limit) == (2, "value", 10 * MIB + 1, 10 * MIB)

    def test_many_ordinary_rows_may_hold_more_together(self) -> None:
        assert UNTYPED.from_rows([{"value": bytes(MIB)}] * 12).num_rows == 12

    def test_a_key_over_the_limit_is_named(self) -> None:
        with pytest.raises(TooLarge, match="key") as caught:
            UNTYPED.from_rows([{"key": b""}, {"key": None}, {"key": b"k" * 1025}])
        assert (caught.value.row, caught.value.column) == (2, "key")
        several = RowConverter(build_schema({"a": str, "b": str}), keys=["a", "b"])
        assert several.from_rows([{"a": "x" * 512, "b": "y" * 512}]).num_rows == 1
        with pytest.raises(TooLarge):
            several.from_rows([{"a": "x" * 512, "b": "y" * 513}])

    def test_nested_values_count(self) -> None:
        converter = RowConverter(
            build_schema({"x": list[Part]}),
            row_limit_bytes=100,
        )
        small = {"x": [{"a": "a" * 50, "m": {"k": b"v"}}]}
        assert converter.from_rows([small] * 10).num_rows == 10
        with pytest.raises(TooLarge) as caught:
            converter.from_rows([small, {"x": [{"a": "a" * 50, "m": {"k": b"v" * 60}}]}])
        assert caught.value.row == 1

    def test_limits_hold_for_arrow_too_and_count_rows_over_batches(self) -> None:
        table = pa.concat_tables([pa.table({"value": [b"x"]}), pa.table({"value": [b"y", b"z" * 200]})])
        converter = RowConverter(build_schema(None), row_limit_bytes=100)
        with pytest.raises(TooLarge) as caught:
            list(converter.from_arrow(table))
        assert caught.value.row == 2

    def test_what_lies_under_a_null_does_not_count(self) -> None:
        value = pa.Array.from_buffers(
            pa.binary(),
            1,
            [pa.py_buffer(b"\0"), pa.py_buffer(np.array([0, 200], np.int32)), pa.py_buffer(bytes(200))],
        )
        converter = RowConverter(build_schema(None), row_limit_bytes=100)
        assert next(converter.from_arrow(pa.record_batch({"value": value}))).num_rows == 1

    def test_batches_are_cut_for_blocks(self) -> None:
        rows = [{"value": bytes(3 * MIB)}] * 12
        parts = UNTYPED.batches(rows)
        assert [part.num_rows for part in parts] == [5, 5, 2]
        assert UNTYPED.batches([]) == []
        assert UNTYPED.batches({"value": b"x"})[0].num_rows == 1


# -- Arrow --------------------------------------------------------------------------------


def refused(converter: RowConverter, data: Any) -> SchemaMismatch:
    with pytest.raises(SchemaMismatch) as caught:
        list(converter.from_arrow(data))
    return caught.value


class TestArrow:
    table = pa.table({"user": ["a", "b"], "amount": [1.0, 2.0], "id": [1, 2]})

    def test_columns_go_by_name(self) -> None:
        (batch,) = ORDERS.from_arrow(self.table)
        assert batch.schema.equals(ORDERS.schema, check_metadata=True)
        assert batch.to_pylist() == [
            {"id": 1, "user": "a", "amount": 1.0},
            {"id": 2, "user": "b", "amount": 2.0},
        ]

    def test_a_batch_that_fits_is_not_copied(self) -> None:
        batch = ORDERS.from_rows([{"id": 1, "user": "a", "amount": 1.0}])
        assert next(ORDERS.from_arrow(batch)) is batch

    def test_results_of_reads_can_be_appended(self) -> None:
        read = self.table.append_column("_offset", [[1, 2]]).append_column("_timestamp", [[1, 2]])
        assert next(ORDERS.from_arrow(read)).num_rows == 2
        none = pa.nulls(2, pa.map_(pa.string(), pa.binary()))
        assert next(ORDERS.from_arrow(read.append_column(HEADERS, none))).num_rows == 2
        some = pa.array([{"a": b"b"}, None], pa.map_(pa.string(), pa.binary()))
        assert "headers" in str(refused(ORDERS, read.append_column(HEADERS, some)))

    @pytest.mark.parametrize("pieces", [[], [0], [0, 2, 0], [1, 1]])
    def test_chunks_and_emptiness(self, pieces: list[int]) -> None:
        reader = pa.RecordBatchReader.from_batches(
            self.table.schema,
            [
                self.table.slice(0, rows).combine_chunks().to_batches()[0]
                if rows
                else pa.RecordBatch.from_pylist([], schema=self.table.schema)
                for rows in pieces
            ],
        )
        for data in (reader, Foreign(pa.Table.from_batches([], schema=self.table.schema))):
            rows = sum(batch.num_rows for batch in ORDERS.from_arrow(data))
            assert rows == (sum(pieces) if data is reader else 0)

    def test_people_bring_frames_of_every_kind(self) -> None:
        frames: list[Any] = [
            pd.DataFrame({"id": [1, 2], "user": ["a", "b"], "amount": [1.0, 2.0]}),
            pl.DataFrame({"id": [1, 2], "user": ["a", "b"], "amount": [1.0, 2.0]}),
            duckdb.sql(
                "select 1::bigint id, 'a' \"user\", 1.0::double amount union all values (2, 'b', 2.0)"
            ),
        ]
        for frame in frames:
            rows = [row for batch in ORDERS.from_arrow(frame) for row in batch.to_pylist()]
            assert (
                sorted(rows, key=lambda row: row["id"])
                == self.table.select(["id", "user", "amount"]).to_pylist()
            )

    def test_missing_and_extra_columns_are_refused(self) -> None:
        assert refused(ORDERS, self.table.drop_columns(["id"])).column == "id"
        extra = refused(ORDERS, self.table.append_column("usr", [["x", "y"]]))
        assert extra.column == "usr" and "did you mean" in str(extra)
        twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
        assert "twice" in str(refused(ORDERS, twice))
        assert next(UNTYPED.from_arrow(pa.table({"value": ["x"]}))).to_pylist() == [
            {"key": None, "value": b"x", HEADERS: None}
        ]

    def test_nulls_are_refused_by_row(self) -> None:
        nulls = pa.concat_tables([self.table, self.table.set_column(0, "user", pa.array(["a", None]))])
        error = refused(ORDERS, nulls)
        assert (error.column, error.row) == ("user", 3)
        hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
        assert refused(ORDERS, self.table.set_column(0, "user", hidden)).row == 1

    @pytest.mark.parametrize(
        ("wanted", "data"),
        [
            (list[int], [[1], [2, None]]),
            ({"a": int}, [{"a": 1}, {"a": None}]),
            (dict[str, int], [[("a", 1)], [("b", None)]]),
            (list[list[int]], [[[1]], [[1], None]]),
            (pa.list_(pa.field("item", pa.int64(), nullable=False), 1), [[1], [None]]),
        ],
    )
    def test_nulls_inside_are_found(self, wanted: object, data: list[Any]) -> None:
        """Arrow has "not null" in its types and does not look."""
        converter = one_column(wanted)
        kind = converter.schema.field("x").type
        fine = converter.from_rows([{"x": data[0]}])
        column = pa.array([data[0], *data], loose(kind))
        given_table = pa.table({"x": column.slice(1)})
        assert next(converter.from_arrow(given_table.slice(0, 1))).equals(fine)
        error = refused(converter, given_table)
        assert (error.column, error.row) == ("x", 1)

    def test_a_null_struct_may_hide_anything(self) -> None:
        converter = one_column(pa.struct([pa.field("a", pa.int64(), nullable=False)]))
        hidden = pa.StructArray.from_arrays([pa.array([1, None])], names=["a"], mask=pa.array([False, True]))
        assert next(converter.from_arrow(pa.table({"x": hidden}))).to_pylist() == [
            {"x": {"a": 1}},
            {"x": None},
        ]

    @pytest.mark.parametrize(
        ("given_type", "wanted", "value"),
        [
            (pa.int32(), pa.int64(), 1),
            (pa.int64(), pa.int32(), 1),
            (pa.int64(), pa.float64(), 1),
            (pa.float32(), pa.float64(), 0.5),
            (pa.string(), pa.large_string(), "a"),
            (pa.large_string(), pa.string(), "a"),
            (pa.string_view(), pa.string(), "a"),
            (pa.binary_view(), pa.large_binary(), b"a"),
            (pa.binary(), pa.binary(1), b"a"),
            (pa.binary(1), pa.binary(), b"a"),
            (pa.binary(16), pa.uuid(), uuid.UUID(int=1).bytes),
            (pa.large_binary(), pa.uuid(), uuid.UUID(int=1).bytes),
            (pa.uuid(), pa.binary(), uuid.UUID(int=1).bytes),
            (pa.date32(), pa.date64(), datetime.date(2026, 1, 1)),
            (
                pa.timestamp("ns", tz="UTC"),
                pa.timestamp("us", tz="UTC"),
                datetime.datetime(2026, 1, 1, tzinfo=UTC),
            ),
            (
                pa.timestamp("us", tz="Asia/Tokyo"),
                pa.timestamp("us", tz="UTC"),
                datetime.datetime(2026, 1, 1, tzinfo=UTC),
            ),
            (pa.decimal128(5, 2), pa.decimal128(38, 9), decimal.Decimal("1.25")),
            (pa.dictionary(pa.int8(), pa.string()), pa.string(), "a"),
            (pa.dictionary(pa.uint32(), pa.large_string()), pa.string(), "a"),
            (pa.string(), pa.dictionary(pa.int32(), pa.string()), "a"),
            (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string()), "a"),
            (pa.list_(pa.int32()), pa.large_list(pa.int64()), [1]),
            (pa.large_list(pa.string_view()), pa.list_(pa.string()), ["a"]),
            (pa.list_(pa.int32(), 1), pa.list_(pa.int64()), [1]),
            (
                pa.struct([("b", pa.int8()), ("a", pa.string())]),
                pa.struct([("a", pa.string()), ("b", pa.int64())]),
                {"a": "x", "b": 1},
            ),
            (pa.map_(pa.large_string(), pa.large_binary()), pa.map_(pa.string(), pa.binary()), [("a", b"b")]),
        ],
    )
    def test_other_layouts_of_the_same_values_are_taken(
        self, given_type: pa.DataType, wanted: pa.DataType, value: Any
    ) -> None:
        column = pa.array([value, value, None, value], given_type).slice(1)
        converter = one_column(wanted)
        (batch,) = converter.from_arrow(pa.table({"x": column}))
        batch.validate(full=True)
        assert batch.column("x").type == wanted
        expected = converter.from_rows([{"x": value}, {"x": None}, {"x": value}])
        assert batch.to_pylist() == expected.to_pylist()

    def test_no_values_fit_any_column(self) -> None:
        for wanted in (int, str, list[int], {"a": int}, dict[str, str], uuid.UUID, Colour):
            converter = one_column(pa.field("x", build_schema({"x": wanted}).field("x").type))
            assert next(converter.from_arrow(pa.table({"x": pa.nulls(2)}))).num_rows == 2

    @pytest.mark.parametrize(
        ("given_type", "wanted"),
        [
            (pa.string(), pa.int64()),
            (pa.int64(), pa.string()),
            (pa.bool_(), pa.int64()),
            (pa.float64(), pa.int64()),
            (pa.float64(), pa.float32()),
            (pa.int64(), pa.float16()),
            (pa.binary(), pa.string()),
            (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
            (pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
            (pa.date32(), pa.timestamp("us")),
            (pa.timestamp("us"), pa.date32()),
            (pa.float64(), pa.decimal128(38, 9)),
            (pa.decimal128(10, 2), pa.float64()),
            (pa.int64(), pa.timestamp("us")),
            (pa.duration("us"), pa.int64()),
            (pa.dictionary(pa.int8(), pa.int64()), pa.string()),
            (pa.list_(pa.string()), pa.list_(pa.int64())),
            (pa.list_view(pa.int64()), pa.list_(pa.int64())),
            (pa.struct([("a", pa.int64()), ("z", pa.int64())]), pa.struct([("a", pa.int64())])),
            (pa.map_(pa.string(), pa.string()), pa.struct([("a", pa.int64())])),
        ],
    )
    def test_other_types_are_refused_even_when_empty(
        self, given_type: pa.DataType, wanted: pa.DataType
    ) -> None:
        error = refused(one_column(wanted), pa.table({"x": pa.array([], given_type)}))
        assert error.column == "x"

    @pytest.mark.parametrize(
        ("column", "wanted"),
        [
            (pa.array([1, 2**40]), pa.int32()),
            (pa.array([1, -1]), pa.uint64()),
            (pa.array([1, 2**53 + 1]), pa.float64()),
            (pa.array([1000, 1001], pa.timestamp("ns")), pa.timestamp("us")),
            (pa.array([0, 2**62], pa.timestamp("us")), pa.timestamp("ns")),
            (pa.array([decimal.Decimal("1.50"), decimal.Decimal("1.55")]), pa.decimal128(38, 1)),
            (pa.array([b"a", b"ab"]), pa.binary(1)),
            (pa.array([[1], [1, 2]]), pa.list_(pa.int64(), 1)),
            (pa.array([[1], [2**40]]), pa.list_(pa.int32())),
            (pa.array([{"a": 1}, {"a": 2**40}]), pa.struct([("a", pa.int32())])),
        ],
    )
    def test_a_value_that_would_change_is_refused_by_row(self, column: pa.Array, wanted: pa.DataType) -> None:
        error = refused(one_column(wanted), pa.table({"x": column}))
        assert (error.column, error.row) == ("x", 1)

    def test_invalid_data_from_elsewhere_is_refused(self) -> None:
        bad_text = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xff")]
        )
        bad_index = pa.DictionaryArray.from_arrays(pa.array([5]), pa.array(["a"]), safe=False)
        for column in (bad_text, bad_index):
            table = pa.table({"x": column})
            assert "valid" in str(refused(one_column(str), Foreign(table)))
            with pytest.raises(SchemaMismatch, match="valid"):
                list(one_column(str).from_arrow(table, validate=True))

    def test_what_is_not_arrow_is_refused(self) -> None:
        for data in (5, "rows", object(), None):
            assert "neither rows nor Arrow" in str(refused(ORDERS, data))

    def test_an_array_of_structs_is_a_batch(self) -> None:
        class Exporter:
            def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
                return pa.record_batch({"value": [b"x"]}).__arrow_c_array__()

        assert next(UNTYPED.from_arrow(Exporter())).num_rows == 1


def loose(kind: pa.DataType) -> pa.DataType:
    """The type with null allowed everywhere inside."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, loose(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, loose(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(loose(kind.value_type), kind.list_size)
    return pa.list_(loose(kind.value_type)) if pa.types.is_list(kind) else kind


@given(tables(), tables())
@settings(max_examples=300, deadline=None)
def test_arrow_into_any_schema_is_the_same_or_refused(
    source: tuple[pa.Schema, list[dict[str, Any]]], target: tuple[pa.Schema, list[dict[str, Any]]]
) -> None:
    assume(source[1])
    batch = RowConverter(source[0]).from_rows(source[1])
    try:
        (result,) = RowConverter(target[0]).from_arrow(batch)
    except VirtaError as error:
        assert isinstance(error, SchemaMismatch)
        return
    result.validate(full=True)
    common = [name for name in target[0].names if name in source[0].names]
    for name in common:
        for before, after in zip(
            batch.column(name).to_pylist(), result.column(name).to_pylist(), strict=True
        ):
            assert comparable(before) == comparable(after)


def comparable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dict):
        found = {key: comparable(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [comparable(inner) for inner in value]
    return value


def test_columns_left_out_take_no_room_for_rows_that_are_not_there() -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("more", pa.map_(pa.string(), pa.binary()))]
    )
    (batch,) = RowConverter(schema).batches([{"id": 1}])
    assert len(batch.serialize()) < 1500
