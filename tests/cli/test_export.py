"""`virta export` and `virta import`: what they write, take back, say and refuse."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli


def values(cli: Cli, topic: str) -> list[tuple[object, ...]]:
    return [(row["id"], row["user"], row["amount"]) for row in cli.ok("read", topic, "-o", "jsonl").rows]


def test_out_and_in(orders: Cli, tmp_path: Path) -> None:
    done = orders.ok("export", "orders", "--out", tmp_path / "rows.parquet")
    assert done.out == "" and "3 rows in" in done.err
    back = orders.ok("import", "copy", tmp_path / "rows.parquet", "--create")
    assert 'imported 3 rows from 1 file into "copy"' in back.err
    assert "imported 0 rows" in orders.ok("import", "copy", tmp_path / "rows.parquet").err
    assert values(orders, "copy") == values(orders, "orders")


def test_a_range_into_a_folder(orders: Cli, tmp_path: Path) -> None:
    words = ("--out", tmp_path / "out", "--format", "jsonl", "--rows-per-file", "1", "-o", "json")
    report = json.loads(orders.ok("export", "orders@1:", *words, "--where", "amount > 5").out)
    assert (report["rows"], report["files"]) == (1, 1)
    lines = (tmp_path / "out" / "part-00000000000000000002.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [3]
    assert orders("export", "orders@1:", *words).code == 7


def test_partitioned(orders: Cli, tmp_path: Path) -> None:
    orders.ok("export", "orders", "--out", tmp_path / "out", "--partition-by", "day")
    assert all(each.name.startswith("day=2") for each in (tmp_path / "out").iterdir())
    orders.ok("import", "copy", tmp_path / "out", "--create")
    assert values(orders, "copy") == values(orders, "orders")


def test_columns(orders: Cli, tmp_path: Path) -> None:
    orders.ok("export", "orders", "--out", tmp_path / "rows.csv", "--columns", "id, user")
    assert (tmp_path / "rows.csv").read_text() == "id,user\n1,ada\n2,\n3,zoë\n"


def test_refusals(orders: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    assert orders("import", "orders", tmp_path / "nothing.csv").code == 3
    assert orders("import", "ordres", tmp_path / "rows.csv").code == 3
    assert orders("import", "fresh", tmp_path / "rows.csv", "--create").code == 2
    refused = orders("import", "orders", tmp_path / "rows.csv")
    assert refused.code == 2 and "rows.csv" in refused.err
    assert orders("export", "orders", "--out", tmp_path).code == 2
