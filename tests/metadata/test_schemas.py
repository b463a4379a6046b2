"""What users may ask for as a schema, how it is stored, and how it may change."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import typing
import uuid

import pyarrow as pa
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from virta.errors import Corrupt, SchemaMismatch
from virta.metadata.schemas import (
    HEADERS,
    UNTYPED,
    build_schema,
    check_keys,
    evolve,
    field_id,
    is_untyped,
    schema_digest,
    schema_from_bytes,
    schema_to_bytes,
    stored_schema,
    unify,
    user_schema,
    widens,
    with_name,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@dataclasses.dataclass
class Point:
    x: float
    y: float | None


class Address(typing.TypedDict):
    street: str
    floor: typing.NotRequired[int]


UserId = typing.NewType("UserId", int)


def typed(wanted: object) -> pa.Field:
    return build_schema({"column": wanted}).field("column")


class TestPythonTypes:
    @pytest.mark.parametrize(
        ("wanted", "kind"),
        [
            (int, pa.int64()),
            (float, pa.float64()),
            (str, pa.string()),
            (bool, pa.bool_()),
            (bytes, pa.binary()),
            (datetime.datetime, pa.timestamp("us", tz="UTC")),
            (datetime.date, pa.date32()),
            (datetime.time, pa.time64("us")),
            (datetime.timedelta, pa.duration("us")),
            (decimal.Decimal, pa.decimal128(38, 9)),
            (uuid.UUID, pa.uuid()),
            (Level, pa.int64()),
            (Colour, pa.dictionary(pa.int32(), pa.string())),
            (typing.Literal["a", "b"], pa.dictionary(pa.int32(), pa.string())),
            (typing.Literal[1, 2], pa.int64()),
            (UserId, pa.int64()),
            (typing.Annotated[str, "a name"], pa.string()),
        ],
    )
    def test_plain_types_are_not_null(self, wanted: object, kind: pa.DataType) -> None:
        field = typed(wanted)
        assert field.type == kind
        assert not field.nullable

    @pytest.mark.parametrize("wanted", [int | None, None | int, typing.Annotated[int | None, "x"]])
    def test_or_none_may_be_null(self, wanted: object) -> None:
        assert typed(wanted).type == pa.int64()
        assert typed(wanted).nullable

    def test_literal_with_none_may_be_null(self) -> None:
        assert typed(typing.Literal["a", None]).nullable

    def test_lists_and_dicts_say_what_is_in_them(self) -> None:
        assert typed(list[str]).type == pa.list_(pa.field("item", pa.string(), nullable=False))
        assert typed(list[str | None]).type == pa.list_(pa.string())
        assert typed(tuple[int, ...]).type.value_type == pa.int64()
        assert typed(dict[str, int | None]).type == pa.map_(pa.string(), pa.int64())

    def test_nested_dicts_dataclasses_and_typed_dicts_are_structs(self) -> None:
        expected = pa.struct([pa.field("x", pa.float64(), nullable=False), ("y", pa.float64())])
        assert typed({"x": float, "y": float | None}).type == expected
        assert typed(Point).type == expected
        assert typed(list[Point]).type.value_type == expected
        assert typed(Address).type == pa.struct(
            [pa.field("street", pa.string(), nullable=False), ("floor", pa.int64())]
        )

    def test_a_class_is_a_schema(self) -> None:
        assert build_schema(Point).names == ["x", "y"]
        assert build_schema(Address).field("floor").nullable

    def test_arrow_types_and_fields_are_taken_as_they_are(self) -> None:
        schema = build_schema(
            {"a": pa.int8(), "b": pa.field("other", pa.int16(), nullable=False, metadata={"u": "m"})}
        )
        assert schema.field("a").type == pa.int8()
        assert schema.field("a").nullable
        assert not schema.field("b").nullable
        assert schema.field("b").metadata[b"u"] == b"m"

    def test_inside_other_types_layouts_are_plain(self) -> None:
        assert typed({"c": Colour | None, "u": uuid.UUID | None}).type == pa.struct(
            [("c", pa.string()), ("u", pa.binary(16))]
        )
        assert typed(list[Colour | None]).type == pa.list_(pa.string())

    def test_layouts_that_share_bytes_are_stored_as_their_plain_twins(self) -> None:
        assert typed(pa.string_view()).type == pa.string()
        assert typed(pa.list_(pa.binary_view())).type == pa.list_(pa.binary())
        assert typed(pa.dictionary(pa.int8(), pa.string_view())).type.value_type == pa.string()

    @pytest.mark.parametrize(
        "wanted",
        [
            object,
            typing.Any,
            list,
            dict,
            "int",
            int | str,
            complex,
            Mixed,
            typing.Literal[1, "a"],
            tuple[int, str],
            dict[str | None, int],
            {},
            pa.null(),
            pa.list_view(pa.int64()),
            pa.run_end_encoded(pa.int32(), pa.int64()),
            pa.dense_union([pa.field("a", pa.int64())]),
            pa.month_day_nano_interval(),
            pa.list_(pa.null()),
            pa.struct([]),
            pa.struct([("a", pa.int64()), ("a", pa.int64())]),
        ],
    )
    def test_other_types_are_refused_by_name(self, wanted: object) -> None:
        with pytest.raises(SchemaMismatch, match="column"):
            typed(wanted)

    def test_endless_nesting_is_refused(self) -> None:
        wanted: object = int
        arrow = pa.int64()
        for _ in range(100):
            wanted, arrow = list[wanted], pa.list_(arrow)  # type: ignore[valid-type]
        for deep in (wanted, arrow):
            with pytest.raises(SchemaMismatch, match="deeper"):
                typed(deep)


class TestBuilding:
    def test_no_schema_is_key_value_and_headers(self) -> None:
        schema = build_schema(None)
        assert schema.names == ["key", "value", HEADERS]
        assert schema.field("key").type == schema.field("value").type == pa.binary()
        assert schema.field(HEADERS).type == pa.map_(pa.string(), pa.binary())
        assert all(field.nullable for field in schema)
        assert is_untyped(schema)
        assert not is_untyped(build_schema({"key": bytes}))

    def test_headers_come_last(self) -> None:
        assert build_schema({"a": int}, headers=True).names == ["a", HEADERS]

    @pytest.mark.parametrize(
        "spec",
        [
            {"_offset": int},
            {"_mine": int},
            {"": int},
            {},
            [],
            pa.schema([]),
            pa.schema([("a", pa.int64()), ("a", pa.int64())]),
            pa.schema([(HEADERS, pa.int64())]),
            {"a" * 2000: int},
            {"a\0b": int},
            {1: int},
            42,
            int,
            [("a", pa.int64())],
        ],
    )
    def test_wrong_schemas_are_refused(self, spec: object) -> None:
        with pytest.raises(SchemaMismatch):
            build_schema(spec)  # type: ignore[arg-type]

    def test_case_tells_columns_apart(self) -> None:
        assert build_schema({"a": int, "A": int}).names == ["a", "A"]

    def test_metadata_stays(self) -> None:
        given_schema = pa.schema(
            [pa.field("a", pa.int64(), metadata={"unit": "m"})], metadata={"owner": "ada"}
        )
        stored = stored_schema(build_schema(given_schema))
        assert stored.metadata == {b"owner": b"ada"}
        assert stored.field("a").metadata[b"unit"] == b"m"

    def test_anything_that_exports_a_schema_will_do(self) -> None:
        class Exporter:
            def __arrow_c_schema__(self) -> object:
                return pa.schema([("a", pa.string_view())]).__arrow_c_schema__()

        assert build_schema(Exporter()).field("a").type == pa.string()  # type: ignore[arg-type]

    def test_keys_are_columns_of_anything_but_maps(self) -> None:
        spec = {"id": int, "tags": list[str], "at": {"x": int}, "m": dict[str, int]}
        spec["ms"] = list[dict[str, int]]
        build_schema(spec, keys=["id", "tags", "at"])
        for key in ("m", "ms"):
            with pytest.raises(SchemaMismatch, match="cannot be a key"):
                build_schema(spec, keys=[key])
        with pytest.raises(SchemaMismatch, match="did you mean 'tags'"):
            build_schema(spec, keys=["tagz"])
        with pytest.raises(SchemaMismatch, match="twice"):
            build_schema(spec, keys=["id", "id"])
        with pytest.raises(SchemaMismatch):
            check_keys(UNTYPED, [HEADERS])


class TestStored:
    def test_position_and_time_come_first(self) -> None:
        user = build_schema({"a": int, "b": str | None}, headers=True)
        stored = stored_schema(user)
        assert stored.names == ["_offset", "_timestamp", "a", "b", HEADERS]
        assert stored.field("_offset") == pa.field("_offset", pa.int64(), nullable=False)
        assert stored.field("_timestamp") == pa.field(
            "_timestamp", pa.timestamp("us", tz="UTC"), nullable=False
        )
        assert user_schema(stored).equals(user, check_metadata=True)

    def test_columns_are_numbered_and_numbers_stay(self) -> None:
        user = build_schema({"a": int, "b": int})
        assert [field_id(field) for field in user] == [1, 2]
        again = build_schema(user.set(0, user.field(0).with_name("z")))
        assert [field_id(field) for field in again] == [1, 2]

    def test_doubtful_numbers_are_given_anew(self) -> None:
        field = pa.field("a", pa.int64(), metadata={"virta.id": "7"})
        assert [field_id(f) for f in build_schema([field, field.with_name("b")])] == [1, 2]
        assert [field_id(f) for f in build_schema([field, pa.field("b", pa.int8())])] == [7, 8]
        odd = pa.field("a", pa.int64(), metadata={"virta.id": "-1 drop table"})
        assert field_id(build_schema([odd]).field(0)) == 1

    def test_bytes_and_back(self) -> None:
        stored = stored_schema(build_schema({"a": int, "b": Colour, "c": uuid.UUID}, headers=True))
        data = schema_to_bytes(stored)
        assert schema_from_bytes(data).equals(stored, check_metadata=True)
        assert schema_digest(stored) == schema_digest(data) == blake3(data).digest()
        assert schema_to_bytes(schema_from_bytes(data)) == data

    @given(st.binary(max_size=200))
    def test_random_bytes_are_damage(self, data: bytes) -> None:
        with pytest.raises(Corrupt):
            schema_from_bytes(data)

    @given(st.data())
    def test_broken_schemas_are_damage_or_schemas(self, data: st.DataObject) -> None:
        good = schema_to_bytes(stored_schema(build_schema({"a": int, "b": list[str]})))
        at = data.draw(st.integers(0, len(good) - 1))
        byte = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(good)))
        for broken in (good[:at] + bytes([byte]) + good[at + 1 :], good[:cut]):
            with contextlib.suppress(Corrupt):
                assert isinstance(schema_from_bytes(broken), pa.Schema)


class TestEvolution:
    old = build_schema({"id": int, "name": pa.string(), "size": pa.int32()})

    def test_nothing_new_is_nothing_new(self) -> None:
        assert evolve(self.old, self.old).equals(self.old, check_metadata=True)

    def test_new_columns_come_last_with_new_numbers(self) -> None:
        new = build_schema({"note": str | None, "id": int, "name": pa.string(), "size": pa.int32()})
        fresh = pa.schema([field.remove_metadata() for field in new])
        result = evolve(self.old, fresh)
        assert result.names == ["id", "name", "size", "note"]
        assert [field_id(field) for field in result] == [1, 2, 3, 4]

    def test_headers_stay_last(self) -> None:
        with_headers = build_schema({"a": int}, headers=True)
        wanted = pa.schema([("a", pa.int64()), ("b", pa.int64()), with_headers.field(HEADERS)])
        assert evolve(with_headers, wanted).names == ["a", "b", HEADERS]
        assert evolve(self.old, self.old.append(with_headers.field(HEADERS))).names[-1] == HEADERS
        assert evolve(with_headers, {"a": int}).names == ["a", HEADERS]

    def test_types_may_grow_and_null_may_be_allowed(self) -> None:
        new = pa.schema([("id", pa.int64()), ("name", pa.large_string()), ("size", pa.int64())])
        result = evolve(self.old, new)
        assert result.types == [pa.int64(), pa.large_string(), pa.int64()]
        assert result.field("id").nullable

    def test_rename_by_number_or_by_word(self) -> None:
        by_number = evolve(self.old, with_name(self.old, "name", "title"))
        bare = pa.schema([field.remove_metadata() for field in by_number])
        by_word = evolve(self.old, bare, renames={"name": "title"})
        assert by_number.names == by_word.names == ["id", "title", "size"]
        assert [field_id(field) for field in by_word] == [1, 2, 3]
        with pytest.raises(SchemaMismatch, match="nme"):
            evolve(self.old, bare, renames={"nme": "title", "name": "title"})

    def test_names_go_before_numbers(self) -> None:
        """A schema numbered elsewhere must not make one column of another."""
        elsewhere = build_schema({"size": pa.int32(), "new": pa.int8(), "name": pa.string(), "id": int})
        result = evolve(self.old, elsewhere)
        assert [(field.name, field_id(field)) for field in result] == [
            ("id", 1),
            ("name", 2),
            ("size", 3),
            ("new", 4),
        ]

    def test_a_dict_may_be_given(self) -> None:
        spec = {"note": str | None, "size": pa.int32(), "name": str | None, "id": int}
        assert evolve(self.old, spec, headers=True).names == ["id", "name", "size", "note", HEADERS]

    def test_two_columns_cannot_become_one(self) -> None:
        with pytest.raises(SchemaMismatch, match="two columns"):
            evolve(self.old, {"size": pa.int64(), "name": str | None}, renames={"id": "size"})

    @pytest.mark.parametrize(
        "fields",
        [
            [("id", pa.int64()), ("name", pa.string())],
            [("id", pa.int32()), ("name", pa.string()), ("size", pa.int32())],
            [("id", pa.int64()), ("name", pa.binary()), ("size", pa.int32())],
            [("id", pa.int64()), ("name", pa.string()), ("size", pa.float64())],
            [("id", pa.int64()), ("name", pa.string()), ("size", pa.uint64())],
            [
                ("id", pa.int64()),
                ("name", pa.string()),
                ("size", pa.int32()),
                pa.field("new", pa.int64(), nullable=False),
            ],
            [
                ("id", pa.int64()),
                pa.field("name", pa.string(), nullable=False),
                ("size", pa.int32()),
            ],
            [("id", pa.int64()), ("name", pa.string()), ("size", pa.int32()), ("_x", pa.int8())],
            [("id", pa.int64()), ("title", pa.string()), ("size", pa.int32())],
        ],
    )
    def test_all_else_is_refused_and_says_why(self, fields: list[object]) -> None:
        with pytest.raises(SchemaMismatch, match="column") as caught:
            evolve(self.old, pa.schema(fields))
        assert caught.value.column

    @pytest.mark.parametrize(
        ("old", "new", "allowed"),
        [
            (pa.uint32(), pa.int64(), True),
            (pa.uint64(), pa.int64(), False),
            (pa.int8(), pa.uint16(), False),
            (pa.float32(), pa.float64(), True),
            (pa.int32(), pa.float64(), False),
            (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
            (pa.decimal128(10, 2), pa.decimal128(10, 4), False),
            (pa.timestamp("ms"), pa.timestamp("us"), False),
            (pa.timestamp("us", tz="UTC"), pa.timestamp("us"), False),
            (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
            (pa.large_list(pa.int32()), pa.list_(pa.int32()), False),
            (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16()), True),
            (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.int8())]), True),
            (pa.struct([("a", pa.int8()), ("b", pa.int8())]), pa.struct([("a", pa.int8())]), False),
            (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), False),
            (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string()), True),
            (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
            (pa.string(), pa.dictionary(pa.int8(), pa.string()), False),
            (pa.binary(16), pa.binary(17), False),
        ],
    )
    def test_what_counts_as_wider(self, old: pa.DataType, new: pa.DataType, allowed: bool) -> None:
        assert widens(old, new) is allowed
        if allowed:
            values = pa.nulls(3, old)
            assert values.cast(new).null_count == 3


class TestUnify:
    def test_old_rows_in_a_newer_schema(self) -> None:
        first = build_schema({"id": pa.int32(), "name": str})
        renamed = with_name(evolve(first, first), "name", "title")
        second = evolve(
            first, renamed.set(0, renamed.field(0).with_type(pa.int64())).append(pa.field("n", pa.int8()))
        )
        old = stored_schema(first)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([5, 6], pa.int64()),
                pa.array([0, 1], pa.timestamp("us", tz="UTC")),
                pa.array([1, 2], pa.int32()),
                pa.array(["a", "b"]),
            ],
            schema=old,
        )
        new = unify(batch, stored_schema(second))
        assert new.schema.equals(stored_schema(second), check_metadata=True)
        assert new.drop_columns(["_timestamp"]).to_pylist() == [
            {"_offset": 5, "id": 1, "title": "a", "n": None},
            {"_offset": 6, "id": 2, "title": "b", "n": None},
        ]
        assert unify(new, stored_schema(second)) is new

    def test_headers_come_by_name(self) -> None:
        with_headers = build_schema({"a": int}, headers=True)
        batch = pa.RecordBatch.from_pylist([{"a": 1, HEADERS: [("k", b"v")]}], schema=with_headers)
        wider = evolve(with_headers, with_headers.append(pa.field("b", pa.int8())))
        assert unify(batch, wider).to_pylist() == [{"a": 1, "b": None, HEADERS: [("k", b"v")]}]

    def test_a_dictionary_column_may_become_plain(self) -> None:
        first = build_schema({"c": Colour})
        batch = pa.RecordBatch.from_pylist([{"c": "red"}, {"c": "blue"}], schema=first)
        second = evolve(first, pa.schema([pa.field("c", pa.string(), nullable=False)]))
        assert unify(batch, second).column("c").to_pylist() == ["red", "blue"]

    def test_what_cannot_be_is_a_mismatch(self) -> None:
        batch = pa.RecordBatch.from_pylist([{"a": 1}])
        with pytest.raises(SchemaMismatch):
            unify(batch, build_schema({"b": int}))
        with pytest.raises(SchemaMismatch):
            unify(batch, pa.schema([("a", pa.list_(pa.int64()))]))
