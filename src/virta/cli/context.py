"""`virta context`: logs with a name, so that `-l @prod` finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from virta import contexts
from virta.cli.complete import complete_contexts
from virta.cli.invocation import Invocation, output_option, output_options, quiet_option
from virta.cli.output import note, print_record, print_records

_COLUMNS = ("context", "environment", "rank", "address", "in_use")
# What is shown of these is only that they are there.
_SECRETS = ("password", "token", "secret", "key")


@click.group(no_args_is_help=True)
def context() -> None:
    """Name logs, and say in which environment each stands.

    \b
    Examples:
      virta context add prod virta://events.example.org:7400 --environment prod
      virta topic ls -l @prod
      virta context use prod
    """


@context.command()
@output_options("the names")
@click.pass_obj
def ls(invocation: Invocation) -> None:
    """List the contexts, the highest environment first.

    \b
    Examples:
      virta context ls
      virta context ls -q
      virta context ls -o json
    """
    used = contexts.in_use()
    records = [_record(each, used) for each in contexts.contexts()]
    print_records(invocation, records, key="context", names=_COLUMNS)
    if not records:
        note(invocation, "no contexts yet; `virta context add NAME ADDRESS` makes one")


def _record(each: contexts.Context, used: contexts.Context | None) -> dict[str, Any]:
    return {
        "context": each.name,
        "environment": each.environment,
        "rank": each.rank,
        "address": each.address,
        "in_use": used is not None and used.name == each.name,
    }


@context.command()
@click.argument("name", metavar="NAME")
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--environment",
    metavar="NAME",
    default="dev",
    show_default=True,
    help=f"{', '.join(contexts.RANKS)}, or one of your own.",
)
@click.option("--rank", type=int, metavar="N", help="How high it stands; known for the environments above.")
@click.option("--replace", is_flag=True, help="Also where a context of this name is there.")
@quiet_option("Say nothing.")
@click.pass_obj
def add(
    invocation: Invocation, name: str, address: str, environment: str, rank: int | None, replace: bool
) -> None:
    """Give a log a name.

    \b
    Examples:
      virta context add local ./events --environment local
      virta context add prod virta://events.example.org:7400 --environment prod
      virta context add audit /srv/audit --environment audit --rank 50
    """
    made = contexts.add(name, address, environment=environment, rank=rank, replace=replace)
    note(invocation, f"@{made.name} is {made.address}, environment {made.environment} (rank {made.rank})")


@context.command()
@click.argument("name", metavar="NAME", required=False, shell_complete=complete_contexts)
@click.option("--none", is_flag=True, help="Use none of them.")
@quiet_option("Say nothing.")
@click.pass_obj
def use(invocation: Invocation, name: str | None, none: bool) -> None:
    """Take a context where neither -l nor VIRTA_LOG nor VIRTA_CONTEXT says otherwise.

    \b
    Examples:
      virta context use dev
      virta context use --none
      VIRTA_CONTEXT=prod virta topic ls
    """
    if (name is None) == (not none):
        raise click.UsageError("name a context, or say --none")
    contexts.use(name)
    note(invocation, "no context is in use" if name is None else f"@{name} is in use")


@context.command()
@click.argument("name", metavar="NAME", required=False, shell_complete=complete_contexts)
@output_option("table", "json", "jsonl", "md")
@click.pass_obj
def show(invocation: Invocation, name: str | None) -> None:
    """Show a context, or the one that is in use; secrets are only named.

    \b
    Examples:
      virta context show
      virta context show prod
      virta context show prod -o json
    """
    used = contexts.in_use()
    if name is None and used is None:
        found = contexts.resolve()
        print_record(invocation, {"context": None, "address": found.address, "in_use": True})
        return
    assert name is not None or used is not None
    each = contexts.get(name) if name is not None else used
    assert each is not None
    print_record(invocation, {**_record(each, used), **_shown(each.credentials)})


def _shown(credentials: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: "(set)" if any(word in name for word in _SECRETS) and not name.endswith("_file") else value
        for name, value in credentials.items()
    }


@context.command()
@click.argument("name", metavar="NAME", shell_complete=complete_contexts)
@quiet_option("Say nothing.")
@click.pass_obj
def rm(invocation: Invocation, name: str) -> None:
    """Forget a context; the log itself stays as it is.

    \b
    Examples:
      virta context rm old
      virta context rm prod -q
      virta context rm staging; virta context ls
    """
    contexts.remove(name)
    note(invocation, f"@{name} is forgotten; the log is still there")
