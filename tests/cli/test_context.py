"""`virta context`, and `@name` wherever an address is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_named_listed_used_shown_and_forgotten(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no contexts yet" in cli.ok("context", "ls").err
    assert "environment dev (rank 10)" in cli.ok("context", "add", "dev", tmp_path / "one").err
    cli.ok("context", "add", "audit", "virta://host:7400", "--environment", "audit", "--rank", "50")
    listed = cli.ok("context", "ls", "-o", "jsonl").rows
    assert [(each["context"], each["rank"], each["in_use"]) for each in listed] == [
        ("audit", 50, False),
        ("dev", 10, False),
    ]
    cli.ok("topic", "create", "orders", "id:int", "-l", "@dev")
    assert cli.ok("-l", "@dev", "topic", "ls", "-q").out == "orders\n"
    cli.ok("context", "use", "dev")
    assert cli.ok("context", "show", "-o", "jsonl").rows[0]["address"] == str(tmp_path / "one")
    monkeypatch.delenv("VIRTA_LOG")
    assert cli.ok("topic", "ls", "-q").out == "orders\n"
    cli.ok("context", "use", "--none")
    cli.ok("context", "rm", "dev")
    assert cli.ok("context", "ls", "-q").out == "audit\n"
    assert cli.ok("context", "show", "-o", "jsonl").rows[0]["context"] is None


def test_secrets_are_only_named(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "config" / "virta"
    place.mkdir(parents=True)
    (place / "config.toml").write_text(
        '[contexts.prod]\naddress = "/x"\nenvironment = "prod"\npassword = "hush"\ntoken_file = "/run/x"\n'
    )
    shown = cli.ok("context", "show", "prod", "-o", "json").out
    assert "hush" not in shown and "(set)" in shown and "/run/x" in shown


def test_mistakes_say_what_to_do(cli: Cli) -> None:
    cli.ok("context", "add", "prod", "/x", "--environment", "prod")
    wrong = cli("topic", "ls", "-l", "@prdo")
    assert wrong.code == 3 and 'did you mean "prod"?' in wrong.err and "virta topic ls -l @prod" in wrong.err
    assert cli("context", "add", "prod", "/y").code == 7
    assert cli("context", "add", "x", "/y", "--environment", "moon").code == 2
    assert cli("context", "use").code == 2
