"""`virta topic`: made, listed, shown, changed, locked and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_create_makes_the_log_and_says_so(cli: Cli) -> None:
    done = cli.ok("topic", "create", "orders", "id:int", "user:str?")
    assert done.err == f'topic "orders": 2 columns, in {cli.path}\n'
    with cli.open() as log:
        assert log.topic("orders").schema.names == ["id", "user"]


def test_looking_never_makes_a_log(cli: Cli) -> None:
    for command in (["topic", "ls"], ["read", "x"], ["tail", "x"], ["verify"], ["gen", "x"], ["append", "x"]):
        assert cli(*command).code == 3
    assert not cli.path.exists()


def test_options_become_the_configuration(cli: Cli) -> None:
    cli.ok(
        *("topic", "create", "orders", "id:int", "--keys", "id", "--durability", "disk"),
        *("--retention-age", "7d", "--retention-rows", "100", "--segment-bytes", "1MiB", "--headers"),
        *("--compression", "zstd", "--not-deletable"),
    )
    shown = json.loads(cli.ok("topic", "show", "orders", "-o", "json").out)
    assert (shown["keys"], shown["durability"], shown["compression"]) == (["id"], "disk", "zstd")
    assert (shown["retention_age_seconds"], shown["retention_rows"]) == (7 * 86400, 100)
    assert (shown["segment_bytes"], shown["topic_deletion"]) == (1 << 20, False)
    assert shown["schema"] == {"id": "int", "_headers": "map<str,bytes?>?"}
    assert cli("topic", "rm", "orders", "--yes").code == 6


def test_what_is_shown_makes_the_same_topic(cli: Cli, tmp_path: Path) -> None:
    words = ["id:uuid", "tags:str[]?", "place:{lat:float,lon:float?}", "price:decimal(10,2)?", "kind:label"]
    cli.ok("topic", "create", "a", *words, "--headers")
    (tmp_path / "a.json").write_text(cli.ok("topic", "show", "a", "-o", "json").out)
    cli.ok("topic", "create", "b", "--schema", tmp_path / "a.json")
    with cli.open() as log:
        assert log.topic("a").schema.equals(log.topic("b").schema)


def test_a_topic_of_the_columns_of_a_file(orders: Cli, tmp_path: Path) -> None:
    orders.ok("read", "orders", "-o", "parquet", "--out", tmp_path / "rows.parquet")
    orders.ok("topic", "create", "copy", "--schema-from", tmp_path / "rows.parquet")
    orders.ok("append", "copy", tmp_path / "rows.parquet")
    assert orders.ok("read", "copy", "--count").out == "3\n"


def test_if_missing_and_a_name_that_is_taken(orders: Cli) -> None:
    columns = ["id:int", "user:str?", "amount:float"]
    assert orders("topic", "create", "orders", *columns).code == 7
    orders.ok("topic", "create", "orders", *columns, "--if-missing")
    assert orders("topic", "create", "orders", "other:int", "--if-missing").code == 2


def test_columns_are_given_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"id": "int"}')
    assert cli("topic", "create", "x", "id:int", "--schema", tmp_path / "s.json").code == 2


def test_a_dry_run_makes_nothing_but_checks(cli: Cli) -> None:
    done = cli.ok("topic", "create", "orders", "id:int", "--keys", "id", "--dry-run")
    assert json.loads(done.out)["schema"] == {"id": "int"}
    assert cli("topic", "create", "orders", "id:int", "--keys", "x", "--dry-run").code == 2
    assert not cli.path.exists()


def test_ls_for_machines_and_for_scripts(orders: Cli) -> None:
    orders.ok("topic", "create", "empty")
    assert orders.ok("topic", "ls", "-q").out == "empty\norders\n"
    (_, row) = orders.ok("topic", "ls").rows
    assert (row["topic"], row["rows"], row["next_offset"], row["locked"]) == ("orders", 3, 3, False)
    assert orders.ok("topic", "ls", "-o", "tsv", "--no-header", "--columns", "topic,rows").out == (
        "empty\t0\norders\t3\n"
    )
    assert orders("topic", "ls", "--columns", "nonsense").code == 3


def test_alter_says_what_changes(orders: Cli) -> None:
    done = orders.ok("topic", "alter", "orders", "--retention-rows", "5", "coupon:str?", "--dry-run")
    assert done.err == (
        "retention_rows: none → 5\ncolumn coupon: none → str?\nnothing was changed (--dry-run)\n"
    )
    done = orders.ok("topic", "alter", "orders", "--retention-rows", "5", "coupon:str?")
    assert 'topic "orders" is at version 2 now' in done.err
    assert orders.ok("read", "orders@0", "--columns", "id,coupon").rows == [{"id": 1, "coupon": None}]
    done = orders.ok("topic", "alter", "orders", "--retention-rows", "none")
    assert "retention_rows: 5 → none" in done.err
    assert "nothing changes" in orders.ok("topic", "alter", "orders", "--durability", "os").err


def test_alter_refuses_what_stored_rows_would_not_fit(orders: Cli) -> None:
    for words in (
        ["coupon:str"],
        ["id:str"],
        ["--retention-age", "yesterday"],
        ["--retention-rows", "x"],
        [],
    ):
        assert orders("topic", "alter", "orders", *words).code == 2


@pytest.mark.parametrize("typed", ["", "order\n", "yes\n"])
def test_removal_asks_for_the_name(orders: Cli, typed: str) -> None:
    done = orders("topic", "rm", "orders", stdin=typed)
    assert done.code == 2
    assert "3 rows" in done.err
    assert orders.ok("topic", "ls", "-q").out == "orders\n"


def test_removal(orders: Cli) -> None:
    assert "nothing was removed" in orders.ok("topic", "rm", "orders", "--dry-run").err
    orders.ok("topic", "rm", "orders", stdin="orders\n")
    assert orders.ok("topic", "ls", "-q").out == ""
    assert orders("topic", "rm", "orders", "--yes").code == 3


def test_a_locked_topic_takes_no_rows(orders: Cli) -> None:
    assert "nothing was locked" in orders.ok("topic", "lock", "orders", "--dry-run").err
    assert orders("topic", "lock", "orders", stdin="no\n").code == 2
    orders.ok("topic", "lock", "orders", "--yes")
    assert "locked already" in orders.ok("topic", "lock", "orders", "--yes").err
    assert orders("append", "orders", "-", stdin='{"id": 1, "amount": 1.0}').code == 6


@pytest.mark.parametrize("name", ["ä/ö", "a b", "-", "..", "x@y", "日本", "#1", "A:b", "'\"$HOME", "x@1:2"])
def test_odd_names_work_everywhere(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", "--", name, "n:int")
    cli.ok("append", "--", name, "-", stdin='{"n": 1}')
    assert cli.ok("topic", "ls", "-q").out == f"{name}\n"
    assert cli.ok("read", "--columns", "n", "--", f"{name}@0").rows == [{"n": 1}]
    cli.ok("verify", "--", name)
    cli.ok("topic", "rm", "--yes", "--", name)


def test_a_wrong_name_gets_the_command_that_was_meant(orders: Cli) -> None:
    done = orders("read", "ordres@-2:", "-o", "csv")
    assert done.code == 3
    assert "'ordres' not found — did you mean 'orders'?" in done.err
    assert done.err.endswith("try:   virta read orders@-2: -o csv\n")
    done = orders("read", "ordres", "-o", "json")
    assert json.loads(done.err)["error"]["code"] == "not_found"
