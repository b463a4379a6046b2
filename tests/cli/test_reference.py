"""Help and reference: every command says what it does, shows three examples, and costs no Arrow."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from virta.cli.invocation import Invocation
from virta.cli.main import virta
from virta.cli.reference import reference

ROOT = Path(__file__).parents[2]


def commands() -> Iterator[tuple[str, click.Command]]:
    with click.Context(virta, info_name="virta", obj=Invocation()) as context:
        for name in virta.list_commands(context):
            command = virta.get_command(context, name)
            assert command is not None
            yield name, command
            if isinstance(command, click.Group):
                for child, inner in command.commands.items():
                    yield f"{name} {child}", inner


COMMANDS = dict(commands())


def test_the_page_is_what_the_commands_say() -> None:
    written = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m virta.cli.reference > docs/commands.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sentence_and_three_examples_then_flags(name: str) -> None:
    text = inspect.cleandoc(COMMANDS[name].help or "")
    words, mark, examples = text.partition("\b\nExamples:\n")
    assert mark, "no examples"
    first = " ".join(words.split("\n\n")[0].split())
    assert first.endswith((".", "damage.")) and len(first) < 120
    lines = [line.strip() for line in examples.strip().splitlines()]
    assert len(lines) == 3
    assert all("virta" in line for line in lines)
    parameters = COMMANDS[name].params
    flags = {flag for each in parameters for flag in (*each.opts, *each.secondary_opts)}
    if not isinstance(COMMANDS[name], click.Group):
        for line in lines:
            own = [part for part in re.split(r"[|;]", line) if f"virta {name}" in part]
            for part in own:
                assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", part)) <= flags, part


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_explained(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


def test_help_costs_no_arrow() -> None:
    """All commands in one process: what one of them imports stays."""
    program = (
        "import contextlib, io, sys\n"
        "from virta.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    assert not any(main([*name.split(), '--help']) for name in {list(COMMANDS)!r})\n"
        "print(sorted({'pyarrow', 'numpy', 'rich', 'blake3', 'duckdb', 'asyncio'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
