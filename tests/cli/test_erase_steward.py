"""`virta topic erase`, `virta steward` that rewrites, and what `virta verify` says afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def filled(cli: Cli) -> Cli:
    with cli.open() as log:
        orders = log.create_topic("orders", {"id": int, "user": str}, keys=["id"])
        for number in range(60):
            orders.append({"id": number, "user": f"user{number % 5}"})
        users = log.create_topic(
            "users",
            {"region": str, "id": int, "name": str},
            kind="update",
            keys=["region", "id"],
            row_deletion=True,
        )
        for number in range(60):
            users.append({"region": "eu", "id": number % 10, "name": f"name{number}"})
    return cli


def test_erase_by_condition(filled: Cli) -> None:
    refused = filled("topic", "erase", "orders", "--where", "user = 'user3'", "--yes")
    assert refused.code == 6 and "does not allow" in refused.err
    filled.ok("topic", "alter", "orders", "--erasable")
    dry = filled.ok("topic", "erase", "orders", "--where", "user = 'user3'", "--dry-run")
    assert "would erase 12 rows" in dry.err
    unsure = filled("topic", "erase", "orders", "--where", "user = 'user3'", stdin="order\n")
    assert unsure.code == 2 and "nothing was done" in unsure.err
    done = filled.ok("topic", "erase", "orders", "--where", "user = 'user3'", stdin="orders\n")
    assert "erased 12 rows" in done.err
    assert len(filled.ok("read", "orders", "-o", "jsonl").rows) == 48
    said = filled.ok("verify", "orders", "-o", "table").out
    assert "erased  offsets 0 to 59, 12 rows less" in said and "ok" in said
    (report,) = json.loads(filled.ok("verify", "orders", "-o", "json").out)["topics"]
    assert report["receipts"][0]["rows_removed"] == 12
    assert "no row" in filled.ok("topic", "erase", "orders", "--where", "user = 'user3'", "--yes").err


def test_erase_by_key(filled: Cli) -> None:
    filled.ok("topic", "erase", "users", "--key", "region=eu,id=7", "--key", "region=eu,id=8", "--yes")
    rows = filled.ok("read", "users", "-o", "jsonl").rows
    assert {row["id"] for row in rows} == set(range(10)) - {7, 8}
    for wrong in ("id=7", "region=eu,id=x", "what=1", "region=eu,id=7,name=z"):
        assert filled("topic", "erase", "users", "--key", wrong, "--yes").code == 2, wrong
    assert filled("topic", "erase", "users", "--yes").code == 2


def test_steward_compacts_and_joins(filled: Cli) -> None:
    dry = filled.ok("steward", "--once", "--dry-run", "--force", "-o", "json")
    assert "nothing was done" in dry.err
    done = filled.ok("steward", "--once", "--force", "--topic", "users", "-o", "jsonl")
    (record,) = done.rows
    assert (record["reason"], record["rows"], record["to_offset"]) == ("compacted", 50, 60)
    assert len(filled.ok("read", "users", "-o", "jsonl").rows) == 10
    assert "compacted  offsets 0 to 59, 50 rows less" in filled.ok("verify", "users", "-o", "table").out
    shown = json.loads(filled.ok("block", "ls", "users", "-o", "json").out)
    assert "rewritten" in [block["kind"] for block in shown]
    one = json.loads(filled.ok("block", "show", "users@55", "-o", "json").out)
    assert one["stands_for_blocks"] == 60 and one["producer"] is None


def test_the_name_is_typed(filled: Cli, terminal: Callable[..., tuple[str, int]]) -> None:
    said, code = terminal(
        "topic", "erase", "users", "--key", "region=eu,id=3", keys="users\n", after="go on: "
    )
    assert code == 0 and "erased 6 rows" in said
