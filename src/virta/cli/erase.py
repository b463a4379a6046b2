"""`virta topic erase`: rows that really go; and how a name is asked for before something is gone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, quiet_option
from virta.cli.keys import typed_keys
from virta.cli.output import note
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.text import count
from virta.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


def erase_options(function: Function) -> Function:
    """Which rows, and how it is asked."""
    options: tuple[Callable[[Any], Any], ...] = (
        quiet_option("Say nothing."),
        click.option("--dry-run", is_flag=True, help="Say how many rows would be erased, and erase nothing."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option(
            "--key",
            "keys",
            metavar="COLUMN=VALUE[,…]",
            multiple=True,
            help="Erase the rows with this key; once for each.",
        ),
        click.option("--where", metavar="EXPRESSION", help="Erase the rows for which this is true."),
    )
    for option in options:
        function = option(function)
    return function


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@erase_options
@click.pass_obj
def erase(
    invocation: Invocation, name: str, where: str | None, keys: tuple[str, ...], yes: bool, dry_run: bool
) -> None:
    """Erase rows for good, from every file of the log; asks for the topic's name first.

    The topic has to allow it: virta topic alter TOPIC --erasable. In an update topic a key goes
    with all its versions. The chain stays whole, and says that rows were erased, not which.
    Backups, exports and other topics are not touched.

    \b
    Examples:
      virta topic erase orders --where "user = 'ada'" --dry-run
      virta topic erase orders --where "user = 'ada'"
      virta topic erase users --key region=eu,id=7 --yes
    """
    with open_log(invocation) as log:
        found = log.topic(name)
        chosen = chosen_rows(found, where, keys)
        would = found.erase(**chosen, dry_run=True)
        what = f'{count(would.rows, "row")} of topic "{name}"'
        if dry_run:
            note(invocation, f"would erase {what}; nothing was erased (--dry-run)")
            return
        if not would.rows:
            note(invocation, f'no row of topic "{name}" is to be erased')
            return
        confirm(name, f"This erases {what} from every file, for good.", yes)
        with Progress(invocation, f"erasing from {name}") as progress:
            done = found.erase(**chosen, progress=lambda size: progress.advance(bytes=size))
        note(invocation, f'erased {count(done.rows, "row")} of topic "{name}"')


def chosen_rows(topic: Any, where: str | None, keys: tuple[str, ...]) -> dict[str, Any]:
    """Which rows: what `erase` is called with."""
    if (where is None) == (not keys):
        raise UsageError("say which rows: with --where, or with --key")
    return {"where": where} if where is not None else {"keys": typed_keys(topic, keys)}


def confirm(name: str, warning: str, yes: bool) -> None:
    """Have the name typed; a script says --yes."""
    if yes:
        return
    print(warning, file=sys.stderr)
    print("Type the topic's name to go on: ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline()
    if not typed:
        print(file=sys.stderr)
    if typed.rstrip("\r\n") != name:
        raise UsageError("the name was not typed; nothing was done", hint="type it, or say --yes")
