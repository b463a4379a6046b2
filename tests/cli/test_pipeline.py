"""`virta pipeline`: from a file to a report, and what it says when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import virta
from tests.cli.conftest import Cli
from virta import contexts

PIPELINE = """
name = "down"
engine = "local"

[demote]
from = "@prod"
to = "@dev"
topics = ["users"]
key = { env = "VIRTA_MASKING_KEY" }
sign = { file = "sign.pem" }

[[demote.mask]]
columns = ["email"]
mask = "email"

[[demote.mask]]
columns = ["id"]
mask = "hash"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("VIRTA_MASKING_KEY", "a secret that stays in production")
    contexts.add("prod", str(tmp_path / "prod"), environment="prod")
    contexts.add("dev", str(tmp_path / "dev"), environment="dev")
    with virta.open("@prod") as log:
        users = log.create_topic("users", {"id": int, "email": str}, keys=["id"])
        users.append([{"id": number, "email": f"ada.{number}@corp.org"} for number in range(50)])
    (tmp_path / "down.toml").write_text(PIPELINE)
    (tmp_path / "sign.pub").write_text(cli.ok("pipeline", "key", "--signing", tmp_path / "sign.pem").out)
    return tmp_path


def test_checked_previewed_run_and_proved(cli: Cli, place: Path) -> None:
    file = place / "down.toml"
    checked = cli.ok("pipeline", "check", file, "-o", "jsonl").rows
    assert [(row["column"], row["mask"]) for row in checked] == [("id", "hash"), ("email", "email")]
    shown = cli.ok("pipeline", "preview", file, "--rows", "2", "-o", "jsonl").rows
    assert [row["before"] for row in shown if row["column"] == "email"] == [
        "ada.0@corp.org",
        "ada.1@corp.org",
    ]
    assert not any("corp" in str(row["after"]) for row in shown)
    assert cli("topic", "show", "users", "-l", "@dev").code == 3
    done = cli.ok("pipeline", "run", file, "-o", "jsonl")
    assert done.rows[0]["rows"] == 50 and "statement in" in done.err
    assert cli.ok("pipeline", "run", file, "-o", "jsonl").rows[0]["rows"] == 0
    assert cli.ok("pipeline", "show", file, "-o", "jsonl").rows[0]["rows"] == 50
    assert "corp" not in cli.ok("read", "users", "-l", "@dev").out
    statement = place / ".virta-down" / "statement.json"
    proof = ("pipeline", "statement", statement, "--public-key", place / "sign.pub", "-o", "json")
    whole = (*proof, "--pipeline", file, "--source", "@prod", "--target", "@dev")
    assert json.loads(cli.ok(*whole).out)["ok"]
    text = statement.read_text()  # of the run that copied; the one without news made none
    statement.write_text(text.replace('"rows": 50', '"rows": 7'))
    assert cli(*proof).code == 5


def test_what_is_wrong_is_one_line_and_a_cure(cli: Cli, place: Path) -> None:
    file = place / "down.toml"
    file.write_text(PIPELINE.replace('["email"]', '["mail"]'))
    wrong = cli("pipeline", "check", file)
    assert wrong.code == 6 and 'columns of "users": email' in wrong.err and "try:" in wrong.err
    file.write_text(PIPELINE.replace("@prod", "@dve", 1))
    assert 'did you mean "dev"' in cli("pipeline", "run", file).err
    file.write_text(
        PIPELINE.replace('from = "@prod"', 'from = "@dev"').replace('to = "@dev"', 'to = "@prod"')
    )
    assert cli("pipeline", "run", file).code == 6
    file.write_text("name = ")
    assert cli("pipeline", "run", file).code == 2
    assert cli("pipeline", "run", place / "none.toml").code == 3
    assert cli("pipeline", "run", place / "down.toml", "--flow", "x").code == 2


def test_keys_are_made_once_and_for_one(cli: Cli, tmp_path: Path) -> None:
    key = tmp_path / "masking.key"
    assert "masking key" in cli.ok("pipeline", "key", key).err
    assert key.stat().st_mode & 0o077 == 0
    assert cli("pipeline", "key", key).code == 2


@pytest.mark.slow
def test_a_whole_topic_on_spark(cli: Cli, tmp_path: Path, spark: object) -> None:
    """`spark` runs already, and is taken."""
    with virta.open(tmp_path / "whole") as log:
        options = {"kind": "update", "keys": ["id"], "segment_bytes": "64 KiB", "row_deletion": True}
        users = log.create_topic("users", {"id": int, "email": str}, **options)
        for turn in range(20):
            rows = [{"id": number, "email": f"{turn}.{number}@corp.org"} for number in range(200)]
            users.append(rows)
    at = ("-l", tmp_path / "whole")
    report = json.loads(cli.ok("pipeline", "verify", "users", *at, "-o", "json").out)
    assert report["ok"] and report["topics"][0]["rows"] == 4000
    (done,) = cli.ok("pipeline", "compact", "users", "--force", *at, "-o", "jsonl").rows
    assert (done["reason"], done["rows"]) == ("compacted", 3800)
    assert "would erase 1 row" in cli.ok("pipeline", "erase", "users", "--key", "id=7", "--dry-run", *at).err
    assert "erased 10 rows" in cli.ok("pipeline", "erase", "users", "--where", "id < 10", "--yes", *at).err
    assert cli("pipeline", "compact", "users", "--conf", "nothing", *at).code == 2
    with virta.open(tmp_path / "whole") as log:
        assert log.topic("users").table().to_arrow().num_rows == 190
        assert log.topic("users").verify().ok
    data = sorted((tmp_path / "whole" / "topics" / "users" / "p0000").glob("*.arrows"))[0]
    damaged = bytearray(data.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    data.write_bytes(damaged)
    assert cli("pipeline", "verify", "users", *at).code == 5
