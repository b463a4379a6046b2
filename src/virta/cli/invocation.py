"""What every command is told: the address of the log, the colours, the output form.

One `Invocation` is made per run and travels as click's context object
(`@click.pass_obj`). The options that fill it are accepted before and after the
name of a command: `virta -l ./events read orders` is `virta read orders -l ./events`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

import click

COLORS = ("auto", "always", "never")
OUTPUTS = ("table", "json", "jsonl", "csv", "parquet", "arrow")


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The options all commands share. `log` left open means what `virta.open()` means by it."""

    log: str | None = None
    color: str = "auto"
    output: str | None = None

    def wants_color(self, stream: TextIO = sys.stdout) -> bool:
        if self.color != "auto":
            return self.color == "always"
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain

    @property
    def wants_json(self) -> bool:
        """Whether a machine reads along, so that errors are JSON too."""
        return self.output in ("json", "jsonl")


def _fill(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Put an option into the invocation; one that was not given changes nothing."""
    if value is not None and parameter.name is not None:
        setattr(context.ensure_object(Invocation), parameter.name, value)


def _shared(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_fill, is_eager=True, **settings)


def shared_options() -> list[click.Option]:
    """The options of the group and of every command under it."""
    return [
        _shared("-l", "--log", metavar="ADDRESS", help="The log: a directory.  [env: VIRTA_LOG]"),
        _shared("--color", type=click.Choice(COLORS), help="Colours: auto (on a terminal), always, never."),
    ]


def output_option(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The `-o` of commands that print rows or records; all forms, unless some are named."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms or OUTPUTS),
        expose_value=False,
        callback=_fill,
        is_eager=True,
        help="Form of the output; by default a table on a terminal, jsonl in a pipe.",
    )


def accept_shared_options(command: click.Command) -> click.Command:
    """Let a command, and all commands under it, take the shared options too."""
    taken = {name for parameter in command.params for name in parameter.opts}
    command.params += [option for option in shared_options() if taken.isdisjoint(option.opts)]
    if isinstance(command, click.Group):
        for child in command.commands.values():
            accept_shared_options(child)
    return command
