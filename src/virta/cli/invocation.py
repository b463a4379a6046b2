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
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import click

COLORS = ("auto", "always", "never")
OUTPUTS = ("table", "json", "jsonl", "csv", "tsv", "md", "parquet", "arrow")

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The options all commands share. `log` left open means what `virta.open()` means by it."""

    log: str | None = None
    color: str = "auto"
    output: str | None = None
    columns: tuple[str, ...] | None = None
    header: bool = True
    quiet: bool = False
    out: Path | None = None

    def wants_color(self, stream: TextIO | None = None) -> bool:
        stream = stream or sys.stdout
        if self.color != "auto":
            return self.color == "always"
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain

    @property
    def wants_json(self) -> bool:
        """Whether a machine reads along, so that errors are JSON too."""
        return self.output in ("json", "jsonl")


def _fill(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Put an option into the invocation; one that was not given changes nothing."""
    if value is not None and parameter.name is not None:
        setattr(context.ensure_object(Invocation), parameter.name, value)


def _fill_columns(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if not names:
            raise click.BadParameter("name at least one column", context, parameter)
        context.ensure_object(Invocation).columns = names


def _shared(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_fill, is_eager=True, **settings)


def shared_options() -> list[click.Option]:
    """The options of the group and of every command under it."""
    return [
        _shared(
            "-l",
            "--log",
            metavar="ADDRESS",
            help="The log: a directory, or @context.  [env: VIRTA_LOG, VIRTA_CONTEXT]",
        ),
        _shared("--color", type=click.Choice(COLORS), help="Colours: auto (on a terminal), always, never."),
    ]


def _filling(*names: str, **settings: Any) -> Decorator:
    settings.setdefault("callback", _fill)
    return click.option(*names, expose_value=False, is_eager=True, **settings)


def output_option(*forms: str, text: str | None = None) -> Decorator:
    """The `-o` of commands that print records; all forms, unless some are named."""
    return _filling(
        "-o",
        "--output",
        metavar="FORM",
        type=click.Choice(forms or OUTPUTS),
        help=text or f"{', '.join(forms or OUTPUTS)}; without it a table on a terminal, jsonl in a pipe.",
    )


def _complete_columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from virta.cli.complete import complete_columns  # it knows invocations itself

    return complete_columns(context, parameter, incomplete)


def quiet_option(text: str) -> Decorator:
    return _filling("-q", "--quiet", is_flag=True, default=None, help=text)


def output_options(ids: str, *forms: str) -> Decorator:
    """Everything about the output of a command that prints rows or records."""
    options = (
        output_option(*forms),
        _filling(
            "--columns",
            metavar="A,B,…",
            callback=_fill_columns,
            shell_complete=_complete_columns,
            help="Only these columns, in this order.",
        ),
        _filling("--no-header", "header", flag_value=False, default=None, help="No line of column names."),
        quiet_option(f"Print only {ids}, one per line."),
        _filling(
            "--out",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write to this file; its ending decides the form.",
        ),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def accept_shared_options(command: click.Command) -> click.Command:
    """Let a command, and all commands under it, take the shared options too."""
    taken = {name for parameter in command.params for name in parameter.opts}
    command.params += [option for option in shared_options() if taken.isdisjoint(option.opts)]
    if isinstance(command, click.Group):
        for child in command.commands.values():
            accept_shared_options(child)
    return command
