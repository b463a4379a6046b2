"""A command group that imports a command only when it is called.

The table holds a command's name, its place (`module:function`) and one line of
help, so the list of commands is printed without importing any of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from virta.cli.invocation import accept_shared_options


class Entry(NamedTuple):
    """One command of the table."""

    place: str
    help: str


Sections = Mapping[str, Mapping[str, Entry]]


def load(place: str) -> click.Command:
    """Import `module:function` and check that it is a command."""
    module, _, name = place.partition(":")
    command = getattr(importlib.import_module(module), name)
    if not isinstance(command, click.Command):
        raise TypeError(f"{place} is not a click command")
    return command


class LazyGroup(click.Group):
    """A group over sections of entries, in the order they are written."""

    def __init__(self, *args: Any, sections: Sections, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sections = sections
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}
        # Stand-ins, for click's "did you mean".
        self.commands = {name: click.Command(name, help=entry.help) for name, entry in self.entries.items()}
        self._loaded: dict[str, click.Command] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.entries:
            return None
        if cmd_name not in self._loaded:
            self._loaded[cmd_name] = accept_shared_options(load(self.entries[cmd_name].place))
        return self._loaded[cmd_name]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=entry.help)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        # Not the group's own completion: it would import every command for its line of help.
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl(_rows(section.items()), col_max=14)


def _rows(entries: Iterable[tuple[str, Entry]]) -> list[tuple[str, str]]:
    # One width for all sections, so that their second columns stand under each other.
    return [(name.ljust(12), entry.help) for name, entry in entries]
