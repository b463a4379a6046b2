"""`virta console`: the log in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virta.cli.invocation import Invocation
from virta.cli.output import note
from virta.cli.ranges import open_log
from virta.errors import UsageError

if TYPE_CHECKING:
    from virta.console.access import Access


@click.command()
@click.argument("log_address", metavar="[LOG]", required=False)
@click.option(
    "--listen",
    default="127.0.0.1:7401",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one.",
)
@click.option("--open", "opening", is_flag=True, help="Open it in the browser.")
@click.option("--read-only", is_flag=True, help="Look only, change nothing.")
@click.option(
    "--host-name", "hosts", multiple=True, metavar="NAME", help="A name it may be opened under; repeatable."
)
@click.pass_obj
def console(
    invocation: Invocation,
    log_address: str | None,
    listen: str,
    opening: bool,
    read_only: bool,
    hosts: tuple[str, ...],
) -> None:
    """Look at a log in the browser, live; try it, filter it, verify it.

    On loopback it may do what you may do. Reached from elsewhere it only reads, unless somebody signs
    in: with the users of the log's broker (virta user add), and what they may do there.

    \b
    Examples:
      virta console ./events --open
      virta console --listen 127.0.0.1:0 --read-only
      virta console @production
    """
    from virta.console import OpenAccess, ReadOnly, application  # the extra `console`
    from virta.console.guard import is_loopback
    from virta.console.serve import listening, parse_listen, serve

    if log_address is not None and invocation.log is not None and log_address != invocation.log:
        raise UsageError("the log is named twice, and differently", hint="virta console ./events")
    invocation.log = log_address or invocation.log
    host, port = parse_listen(listen)
    local = is_loopback(host)
    with open_log(invocation, create=False) as log, listening(host, port) as place:
        access = ReadOnly() if read_only else OpenAccess() if local else _of_users(invocation, log)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{place.getsockname()[1]}/"
        note(
            invocation,
            f"console of {_name(log)}: {address}{' (read-only)' if isinstance(access, ReadOnly) else ''}",
        )
        if opening:
            webbrowser_open(address)
        serve(application(log, access=access, hosts=hosts), place)


def _of_users(invocation: Invocation, log: Any) -> Access:
    """Off loopback: the users that the log's broker knows; where there are none, all only look."""
    from virta.broker.operation.operation import ACCESS_FILE, DIRECTORY
    from virta.clock import SystemClock
    from virta.console import ReadOnly
    from virta.console.users import UserAccess
    from virta.security.access_file import AccessFile
    from virta.security.guard import Guard

    path = log.path
    if not isinstance(path, Path) or not (path / DIRECTORY / ACCESS_FILE).exists():
        return ReadOnly()
    users = AccessFile(path / DIRECTORY / ACCESS_FILE, complain=lambda error: note(invocation, str(error)))
    return UserAccess(Guard(access=users.current, clock=SystemClock()), log, local=False)


def _name(log: object) -> str:
    return str(getattr(log, "path", None) or getattr(log, "address", "this log"))


def webbrowser_open(address: str) -> None:
    import webbrowser  # looks for browsers when it is imported

    webbrowser.open(address)
