"""`virta verify`, `block`, `doctor` and `steward`: what they find, print and end with."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Cli
from virta.storage.layout import LogPaths


def data_file(cli: Cli) -> Path:
    (found,) = LogPaths(root=cli.path).topic("orders").partition(0).root.glob("*.arrows")
    return found


def change_last_block(cli: Cli) -> None:
    """Flip one bit in the value of the last row's text."""
    file = data_file(cli)
    data = bytearray(file.read_bytes())
    data[data.rindex("zoë".encode())] ^= 1
    file.write_bytes(data)


def test_all_is_well(orders: Cli) -> None:
    assert orders.ok("verify", "-q").out == ""
    out = orders.ok("verify", "-o", "table").out
    with orders.open() as log:
        assert log.topic("orders").head in out
    assert out.startswith("ok       orders  3 blocks, 3 rows, ")
    said = json.loads(orders.ok("verify", "orders", "-o", "json").out)
    assert said["ok"] and said["topics"][0]["rows"] == 3


def test_a_changed_byte_is_named_with_its_place(orders: Cli) -> None:
    change_last_block(orders)
    assert orders("verify", "-q").code == 5
    done = orders("verify", "-o", "json")
    assert done.code == 5
    (topic,) = json.loads(done.out)["topics"]
    (problem,) = topic["problems"]
    assert (problem["file"], problem["offset"], problem["severity"]) == (str(data_file(orders)), 2, "damage")
    assert problem["position"] > 0
    assert topic["trustworthy_until"] == {"0": 2}
    out = orders("verify", "-o", "table").out
    assert "DAMAGED  orders" in out
    assert "rows before offset 2 are what was written" in out
    assert orders("read", "orders", "-o", "jsonl").code == 5
    assert orders.ok("read", "orders@:2", "--columns", "id").rows == [{"id": 1}, {"id": 2}]


def test_a_head_noted_earlier_finds_a_shortened_history(orders: Cli) -> None:
    with orders.open() as log:
        head = log.topic("orders").head
    orders.ok("verify", "orders", "--against", head)
    orders.ok("append", "orders", stdin='{"id": 4, "amount": 1.0}')
    orders.ok("verify", "orders", "--against", head)
    done = orders("verify", "orders", "--against", head, "--against", "ab" * 32, "-o", "table")
    assert done.code == 5
    assert "ab" * 32 in done.out
    assert orders("verify", "orders", "--against", "ab").code == 2
    assert orders("verify", "--against", head).code == 2


def test_verify_of_nothing(cli: Cli) -> None:
    cli.ok("topic", "create", "x", "-q")
    cli.ok("topic", "rm", "x", "--yes", "-q")
    assert cli.ok("verify", "-o", "table").out == "no topics to verify\n"
    assert cli("verify", "x").code == 3


# -- blocks -----------------------------------------------------------------------------------------


def test_blocks_are_listed_from_their_headers(orders: Cli) -> None:
    blocks = orders.ok("block", "ls", "orders").rows
    assert [(block["offset"], block["rows"], block["kind"]) for block in blocks] == [
        (0, 0, "control"),
        (0, 2, "rows"),
        (2, 1, "rows"),
    ]
    assert [block["offset"] for block in orders.ok("block", "ls", "orders@2:").rows] == [2]
    assert [block["offset"] for block in orders.ok("block", "ls", "orders@1").rows] == [0]
    assert len(orders.ok("block", "ls", "orders", "--limit", "1").rows) == 1
    assert orders.ok("block", "ls", "orders", "--limit", "1", "-q").out.strip() == blocks[-1]["hash"]


def test_one_block_is_shown(orders: Cli) -> None:
    last = orders.ok("block", "ls", "orders").rows[-1]
    for place in ("orders@2", "orders@-1", f"orders@#{last['hash']}", f"orders@#{last['hash'][:12]}"):
        shown = json.loads(orders.ok("block", "show", place, "-o", "json", "--verify").out)
        assert (shown["hash"], shown["rows"], shown["verified"]) == (last["hash"], 1, True)
    first = orders.ok("block", "ls", "orders").rows[0]
    assert "event" in json.loads(orders.ok("block", "show", f"orders@#{first['hash']}", "-o", "json").out)
    assert orders("block", "show", "orders@0:2").code == 2
    assert orders("block", "show", "orders@9").code == 3


def test_showing_a_changed_block_says_so(orders: Cli) -> None:
    change_last_block(orders)
    assert orders("block", "show", "orders@2", "--verify").code == 5


def test_an_exported_block_is_an_arrow_stream(orders: Cli, tmp_path: Path) -> None:
    file = tmp_path / "block.arrows"
    orders.ok("block", "export", "orders@0", "--out", file)
    with pa.OSFile(str(file)) as source:
        assert pa.ipc.open_stream(source).read_all().column("id").to_pylist() == [1, 2]
    orders.ok("block", "export", "orders@0", "--raw", "--out", tmp_path / "raw")
    with orders.open() as log:
        assert (tmp_path / "raw").read_bytes() == bytes(
            log.topic("orders").partition(0).fetch_batch(0, 1)[0].bytes
        )


# -- doctor and steward ---------------------------------------------------------------------------------


def test_the_doctor_looks_and_repairs(orders: Cli) -> None:
    said = json.loads(orders.ok("doctor", "-o", "json").out)
    assert said["ok"] and said["checked"]
    data_file(orders).with_suffix(".chain").unlink()
    orders.ok("doctor", "--repair", "orders")
    orders.ok("verify", "-q")
    assert orders.ok("read", "orders", "--count").out == "3\n"
    assert orders("doctor", "--repair", "nothing").code == 3


def test_the_steward_removes_what_retention_lets_go_of(orders: Cli) -> None:
    orders.ok("topic", "alter", "orders", "--retention-rows", "1", "--segment-bytes", "64KiB", "-q")
    orders.ok("gen", "orders", "--count", "10000", "--seed", "1", "-q")
    orders.ok("gen", "orders", "--count", "10", "--seed", "1", "-q")
    dry = orders.ok("steward", "--dry-run")
    assert "nothing was done" in dry.err
    assert orders.ok("read", "orders", "--count").out == "10013\n"
    done = orders.ok("steward", "--once")
    assert done.rows[0]["rows"] == dry.rows[0]["rows"] > 0
    assert orders.ok("read", "orders", "--count").out == f"{10013 - done.rows[0]['rows']}\n"
    assert orders.ok("steward", "--once").rows == []
    assert orders("read", "orders@0").code == 3
    assert orders("steward", "--once", "--interval", "1s").code == 2


@pytest.mark.parametrize("command", [["verify"], ["doctor"], ["steward", "--once"], ["block", "ls", "x"]])
def test_a_log_that_is_not_there(cli: Cli, command: list[str]) -> None:
    done = cli(*command)
    assert done.code == 3
    assert "there is no log in" in done.err
