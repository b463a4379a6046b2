"""`virta backup` and `virta restore`: what they copy, say and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import virta
from tests.cli.conftest import Cli


def test_backup_and_restore(orders: Cli, tmp_path: Path) -> None:
    planned = orders.ok("backup", tmp_path / "copy", "--dry-run")
    assert planned.out == "" and "would copy" in planned.err and not (tmp_path / "copy").exists()
    done = orders.ok("backup", tmp_path / "copy")
    assert done.out == "" and "orders: copied 1 segment" in done.err
    assert "orders: up to date" in orders.ok("backup", tmp_path / "copy").err
    assert orders.ok("backup", tmp_path / "copy", "-q").err == ""
    back = orders.ok("restore", tmp_path / "copy", tmp_path / "back")
    assert "verified 5 blocks, 4 rows: ok" in back.err  # one of them in __events
    assert orders.ok("read", "orders", "-l", tmp_path / "back").rows == orders.ok("read", "orders").rows


def test_restore_into_the_log_that_is_meant(orders: Cli, tmp_path: Path) -> None:
    orders.ok("backup", tmp_path / "copy", "--topic", "orders")
    assert orders("restore", tmp_path / "copy").code == 7  # the log is there
    orders.ok("restore", tmp_path / "copy", "-l", tmp_path / "new")
    assert len(orders.ok("read", "orders", "-l", tmp_path / "new").rows) == 3


def test_for_machines(orders: Cli, tmp_path: Path) -> None:
    report = json.loads(orders.ok("backup", tmp_path / "copy", "-o", "json").out)
    with orders.open() as log:
        assert report["topics"][0]["heads"] == {"0": log.topic("orders").head}
    assert report["topics"][0]["rows"] == 3 and report["bytes"] > 0


def test_refusals(orders: Cli, tmp_path: Path) -> None:
    with virta.open(tmp_path / "other") as other:
        other.create_topic("orders", {"id": int})
    assert orders("backup", tmp_path / "other").code == 2
    assert orders("backup", tmp_path / "copy", "--topic", "ordres").code == 3
    assert orders("restore", tmp_path / "nowhere", tmp_path / "back").code == 3
    orders.ok("backup", tmp_path / "copy")
    data = next((tmp_path / "copy").glob("topics/orders/p0000/*.arrows"))
    content = bytearray(data.read_bytes())
    content[-100] ^= 1
    data.write_bytes(content)
    assert orders("restore", tmp_path / "copy", tmp_path / "back").code == 5
