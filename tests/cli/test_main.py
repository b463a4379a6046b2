"""How a run of `virta` ends: exit codes, what people and machines read, and quiet endings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from virta import errors
from virta.cli import main as front
from virta.cli.invocation import Invocation, output_option

Callback = Callable[..., object]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callback], None]]:
    """Puts a callback in the place of `virta read`."""

    def become(callback: Callback) -> None:
        command = click.command("read")(output_option()(click.pass_obj(callback)))
        monkeypatch.setattr("virta.cli.lazy.load", lambda place: command)

    front.virta._loaded.pop("read", None)
    yield become
    front.virta._loaded.pop("read", None)


def failing(error: BaseException) -> Callback:
    def callback(invocation: Invocation) -> None:
        raise error

    return callback


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.VirtaError("?"), 1),
        (errors.NoSpace("full"), 1),
        (errors.StorageFailed("the disk said no"), 1),
        (errors.UsageError("no"), 2),
        (errors.SchemaMismatch("wrong column"), 2),
        (errors.NotFound("no topic"), 3),
        (errors.Unreachable("nobody there"), 4),
        (errors.Timeout("late"), 4),
        (errors.Corrupt("bad block"), 5),
        (errors.HistoryChanged("cut"), 5),
        (errors.Denied("no"), 6),
        (errors.Locked("locked"), 6),
        (errors.Conflict(expected=3, actual=4), 7),
        (errors.AlreadyExists("there"), 7),
        (errors.Fenced("newer holder"), 7),
        (FileNotFoundError(2, "No such file or directory", "rows.jsonl"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("no"), 2),
    ],
)
def test_each_error_has_its_exit_code(read: Any, error: BaseException, code: int) -> None:
    read(failing(error))
    assert front.main(["read"]) == code


def test_people_read_the_error_and_what_to_try(read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    read(failing(errors.NotFound('topic "ordres" not found', hint='did you mean "orders"?')))
    front.main(["read"])
    out, err = capsys.readouterr()
    assert out == ""
    assert err == 'error: topic "ordres" not found\ntry:   did you mean "orders"?\n'


def test_damage_says_where(read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    read(failing(errors.Corrupt("digest differs", topic="orders", position=512, hint="virta verify orders")))
    front.main(["read"])
    assert capsys.readouterr().err == (
        "error: digest differs [topic orders, position 512]\ntry:   virta verify orders\n"
    )


def test_machines_read_json(read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    read(failing(errors.Denied("no", hint="ask")))
    assert front.main(["read", "-o", "json"]) == 6
    said = json.loads(capsys.readouterr().err)
    assert said == {"error": {"code": "denied", "message": "no", "hint": "ask"}}


def test_a_missing_extra_is_named(read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    read(failing(ModuleNotFoundError("No module named 'duckdb'", name="duckdb")))
    assert front.main(["read"]) == 1
    assert "pip install 'virta[sql]'" in capsys.readouterr().err


def test_our_own_mistakes_are_not_hidden(read: Any) -> None:
    read(failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        front.main(["read"])


@pytest.mark.parametrize("arguments", [["-l", "./here", "read"], ["read", "-l", "./here"]])
def test_the_log_is_named_before_or_after_the_command(read: Any, arguments: list[str]) -> None:
    seen: list[Invocation] = []
    read(seen.append)
    assert front.main(arguments) == 0
    assert seen[0].log == "./here"


def test_an_option_after_the_command_wins_and_an_absent_one_changes_nothing(read: Any) -> None:
    seen: list[Invocation] = []
    read(seen.append)
    front.main(["--color", "always", "-l", "a", "read", "-l", "b"])
    assert (seen[0].log, seen[0].color) == ("b", "always")


def test_an_unknown_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["raed"]) == 2
    err = capsys.readouterr().err
    assert "read" in err
    assert "try:   virta --help" in err


def test_no_command_prints_the_help_in_order_of_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main([]) == 0
    out = capsys.readouterr().out
    titles = [out.index(f"{title}:") for title in front.SECTIONS]
    assert titles == sorted(titles)


def test_color_follows_the_terminal_the_environment_and_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Invocation().wants_color(sys.stderr)
    assert not Invocation(color="never").wants_color(sys.stderr)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Invocation().wants_color(sys.stderr)
    assert Invocation(color="always").wants_color(sys.stderr)


def test_a_reader_that_leaves_early_ends_it_quietly() -> None:
    command = [sys.executable, "-m", "virta", "--help"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_complete_without_importing_a_command() -> None:
    environment = os.environ | {
        "_VIRTA_COMPLETE": "bash_complete",
        "COMP_WORDS": "virta t",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "virta"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = [
        f"plain,{name}" for section in front.SECTIONS.values() for name in section if name.startswith("t")
    ]
    assert len(expected) > 3 and done.stdout.split() == expected
    assert "virta.cli.tail" not in done.stderr
