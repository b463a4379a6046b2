"""Topics of several partitions on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import virta
from tests.cli.conftest import Cli

ROWS = "".join(json.dumps({"user": f"user {n % 10}", "n": n}) + "\n" for n in range(100))


@pytest.fixture
def spread(cli: Cli) -> Cli:
    cli.ok("topic", "create", "spread", "user:str", "n:int", "--keys", "user", "--partitions", "4")
    done = cli.ok("append", "spread", "-", stdin=ROWS)
    assert "100 rows" in done.err and "partitions" in done.err
    return cli


def test_show_and_ls(spread: Cli) -> None:
    shown = json.loads(spread.ok("topic", "show", "spread", "-o", "json").out)
    assert shown["partitions"] == 4 and len(shown["heads"]) == 4
    assert sum(shown["next_offsets"].values()) == 100
    assert "heads" in spread.ok("topic", "show", "spread").out
    assert "100" in spread.ok("topic", "ls").out


def test_read_and_tail(spread: Cli) -> None:
    assert spread.ok("read", "spread", "--count").out == "100\n"
    assert len(spread.ok("read", "spread@-2:").rows) == 8
    assert len(spread.ok("read", "spread@-15m:").rows) == 100
    assert spread("read", "spread@0:10").code == 2
    assert len(spread.ok("read", "spread@0:3", "-p", "1").rows) == 3
    assert spread("read", "spread@0:3", "-p", "9").code == 3
    assert len(spread.ok("tail", "spread@-1:", "--stop-when-idle", "0.01s").rows) == 4
    assert spread.ok("tail", "spread@end", "--stop-when-idle", "0.01s").rows == []


def test_blocks_are_found_wherever_they_are(spread: Cli) -> None:
    with spread.open() as log:
        heads = log.topic("spread").heads
    for number, head in heads.items():
        assert f'"partition": {number}' in spread.ok("block", "show", f"spread@#{head}", "-o", "json").out
        assert len(spread.ok("read", f"spread@#{head}").rows) > 0
    assert spread("block", "ls", "spread").code == 2
    assert spread.ok("block", "ls", "spread", "-p", "2", "-q").out.strip().endswith(heads[2])


def test_append_to_one(spread: Cli) -> None:
    told = spread.ok("append", "spread", "-", "-p", "3", "-o", "json", stdin=ROWS).out
    assert json.loads(told)["partition"] == 3
    assert spread("append", "spread", "-", "--if-offset", "0", stdin=ROWS).code == 2


def test_verify_lock_export_and_backup(spread: Cli, tmp_path: Path) -> None:
    assert "ok" in spread.ok("verify", "spread").out + spread.ok("verify", "spread").err
    spread.ok("export", "spread", "--out", tmp_path / "all.parquet")
    spread.ok("export", "spread", "--out", tmp_path / "folder", "--rows-per-file", "30")
    names = [path.name for path in (tmp_path / "folder").iterdir()]
    assert {name[:10] for name in names} == {f"part-{number:04d}-" for number in range(4)}
    spread.ok("topic", "create", "copy", "user:str", "n:int")
    spread.ok("import", "copy", tmp_path / "folder")
    assert spread.ok("read", "copy", "--count").out == "100\n"
    spread.ok("backup", tmp_path / "backup")
    with virta.open(tmp_path / "backup") as log, spread.open() as source:
        assert log.topic("spread").heads == source.topic("spread").heads
    assert "100 rows" in spread.ok("topic", "lock", "spread", "--yes").err
