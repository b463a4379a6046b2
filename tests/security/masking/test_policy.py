"""Policies over whole schemas: deny by default, the first rule that fits, nested columns, samples."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.errors import Denied, UsageError
from virta.security.masking import MaskingKey, MaskPolicy, sample

KEY = MaskingKey.of("a secret for these tests")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("email", pa.string()),
        pa.field("note", pa.string(), metadata={"virta.tags": "free-text, pii"}),
        ("address", pa.struct([("street", pa.string()), ("city", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("extra", pa.map_(pa.string(), pa.string())),
    ]
)
ROW = {
    "id": 7,
    "email": "ada@example.org",
    "note": "asked about Babbage",
    "address": {"street": "Main 5", "city": "London"},
    "tags": ["vip", "vip", "new"],
    "extra": [("a", "b")],
}


def batch(*rows: dict) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows) or [ROW], schema=SCHEMA)


def test_a_column_without_a_rule_stops_everything_and_all_are_listed() -> None:
    policy = MaskPolicy.of([{"columns": ["id", "address.city"], "mask": "keep"}])
    with pytest.raises(Denied) as caught:
        policy.plan("users", SCHEMA, KEY)
    assert caught.value.message.endswith("email, note, address.street, tags, extra")
    assert 'columns = ["email"]' in (caught.value.hint or "")


def test_the_first_rule_that_fits_decides() -> None:
    policy = MaskPolicy.of(
        [
            {"columns": "email", "topics": "audit-*", "mask": "keep"},
            {"tags": "pii", "mask": "redact"},
            {"columns": ["e*l"], "mask": "email"},
            {"columns": "extra", "mask": "drop"},
            {"columns": "address", "mask": "null"},
            {"columns": ["*"], "mask": "keep"},
        ]
    )
    plan = policy.plan("users", SCHEMA, KEY)
    assert {each.path: each.method for each in plan.columns} == {
        "id": "keep",
        "email": "email",
        "note": "redact",
        "address": "null",
        "tags": "keep",
        "extra": "drop",
    }
    assert plan.target.names == ["id", "email", "note", "address", "tags"]
    assert not plan.target.field("id").nullable
    made = plan.apply(batch()).to_pylist()[0]
    assert (made["id"], made["note"], made["address"], made["tags"]) == (7, "[redacted]", None, ROW["tags"])
    assert policy.plan("audit-7", SCHEMA, KEY).columns[1].method == "keep"


def test_fields_of_structs_and_values_of_lists() -> None:
    policy = MaskPolicy.of(
        [
            {"columns": ["address.street"], "mask": "drop"},
            {"columns": ["address.city", "tags"], "mask": "hash"},
            {"columns": ["*"], "mask": "keep"},
        ]
    )
    with_star = policy.plan("users", SCHEMA, KEY)
    assert {each.path: each.method for each in with_star.columns}["address"] == "keep"  # a whole goes first
    named = MaskPolicy.of(
        [
            {"columns": ["address.street"], "mask": "drop"},
            {"columns": ["address.city", "tags"], "mask": "hash"},
            {"columns": ["id", "email", "note", "extra"], "mask": "keep"},
        ]
    )
    plan = named.plan("users", SCHEMA, KEY)
    none = {**ROW, "address": None, "tags": None}
    nulls = {**ROW, "address": {"street": None, "city": None}, "tags": []}
    rows = batch(ROW, none, nulls, {**ROW, "tags": ["new", None]})
    made = plan.apply(rows)
    made.validate(full=True)
    first, second, third, fourth = made.to_pylist()
    assert list(first["address"]) == ["city"] and len(first["address"]["city"]) == 32
    assert first["tags"][0] == first["tags"][1] != first["tags"][2] == fourth["tags"][0]
    assert second["address"] is None and second["tags"] is None
    assert third["address"] == {"city": None} and third["tags"] == []
    assert fourth["tags"][1] is None
    assert plan.apply(rows.slice(1, 3)).to_pylist() == [second, third, fourth]


def test_a_key_is_asked_for_only_where_one_is_needed() -> None:
    MaskPolicy.of([{"columns": "*", "mask": "null"}]).plan("users", SCHEMA)
    with pytest.raises(UsageError, match="needs a masking key"):
        MaskPolicy.of([{"columns": "*", "mask": "hash"}]).plan("users", SCHEMA)


def test_nothing_left_is_no_copy() -> None:
    with pytest.raises(UsageError, match="every column"):
        MaskPolicy.of([{"columns": "*", "mask": "drop"}]).plan("users", SCHEMA)


def test_the_hash_of_a_policy_names_its_rules() -> None:
    rules = [{"columns": ["id"], "mask": "hash"}, {"columns": ["*"], "mask": "keep"}]
    assert MaskPolicy.of(rules).hash() == MaskPolicy.of([{"mask": "hash", "columns": "id"}, rules[1]]).hash()
    assert MaskPolicy.of(rules).hash() != MaskPolicy.of(rules[::-1]).hash()
    assert MaskPolicy.of(rules).hash() != MaskPolicy.of([{**rules[0], "domain": "x"}, rules[1]]).hash()


# -- sampling ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 500), min_size=1), st.floats(0.01, 1))
def test_a_sample_keeps_whole_entities_in_every_topic(ids: list[int], share: float) -> None:
    users = sample(pa.array(range(501), pa.int64()), share, KEY).to_pylist()
    orders = sample(pa.array(ids, pa.int32()), share, KEY).to_pylist()
    assert orders == [users[each] for each in ids]


def test_a_sample_is_about_its_share_and_smaller_ones_are_inside() -> None:
    values = pa.array([f"user {number}" for number in range(20_000)] + [None])
    tenth, half = (sample(values, share, KEY).to_pylist() for share in (0.1, 0.5))
    assert 1_700 < sum(tenth) < 2_300 and 9_500 < sum(half) < 10_500
    assert all(large for small, large in zip(tenth, half, strict=True) if small)
    assert not half[-1]
    assert sample(values, 1.0, KEY).to_pylist() == [True] * 20_000 + [False]
    with pytest.raises(UsageError, match="share"):
        sample(values, 0.0, KEY)
