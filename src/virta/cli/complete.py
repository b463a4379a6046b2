"""What the shell offers behind TAB: topics from the log's directory, columns from a topic's schema.

Topics come without Arrow, so that TAB answers at once. A completion that fails offers
nothing: the command itself will say what is wrong.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from virta.cli.invocation import Invocation
from virta.errors import VirtaError
from virta.storage.layout import TOPIC_FILE, LogPaths

if TYPE_CHECKING:
    from collections.abc import Iterator


def complete_topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of topics."""
    try:
        return sorted(name for name in _topics(_root(context)) if name.startswith(incomplete))
    except (OSError, ValueError, VirtaError):
        return []


def complete_columns(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the topic's columns, the last of a list with commas."""
    done, _comma, begun = incomplete.rpartition(",")
    try:
        names = _columns(context)
    except Exception:
        return []  # whatever it is, TAB is no place to say it
    return [f"{done},{name}" if done else name for name in names if name.startswith(begun)]


def complete_contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Names of contexts."""
    from virta.contexts import contexts

    try:
        return sorted(each.name for each in contexts() if each.name.startswith(incomplete))
    except (OSError, VirtaError):
        return []


def _root(context: click.Context) -> Path:
    from virta.contexts import resolve

    return Path(resolve(_invocation(context).log).address).expanduser()


def _invocation(context: click.Context) -> Invocation:
    return context.ensure_object(Invocation)


def _topics(root: Path) -> Iterator[str]:
    for directory in LogPaths(root=root).topics.iterdir():
        if directory.name.startswith("."):
            continue
        document = tomllib.loads((directory / TOPIC_FILE).read_text(encoding="utf-8"))
        name = document.get("name")
        if isinstance(name, str) and not name.startswith("__"):
            yield name


def _columns(context: click.Context) -> list[str]:
    from virta.cli.ranges import find, open_log

    if not context.args:
        return []
    named = context.args[0]  # click leaves arguments here while an option still wants its value
    with open_log(_invocation(context)) as log:
        topic, _ = find(log, named)
        return ["_offset", "_timestamp", *topic.schema.names]
