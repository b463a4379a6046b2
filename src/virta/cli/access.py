"""What `virta user`, `token` and `permission` share: the file they change, and how secrets are asked for.

Secrets come by a prompt, a file or the environment, never as an argument: arguments stand in the
shell's history and in the list of processes.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

import virta
from virta.cli.invocation import Decorator, Invocation
from virta.contexts import resolve
from virta.errors import UsageError

if TYPE_CHECKING:
    from virta.log import Log
    from virta.security.access import Access

NEW_PASSWORD = "VIRTA_NEW_PASSWORD"
# Shorter ones are found by trying them all.
LEAST_CHARACTERS = 8


def open_directory(invocation: Invocation) -> Log:
    """The log's directory, made if it is not there: users may be known before the first row."""
    from virta.security.address import is_broker_address

    if is_broker_address(resolve(invocation.log).address):
        raise UsageError(
            "users, tokens and permissions are changed where the log is",
            hint="on the broker's machine, with -l and the log's directory; the broker sees the change",
        )
    return virta.open(invocation.log)


def access_path(log: Log) -> Path:
    """Where a log's broker looks for users, tokens and permissions."""
    return log.path / "broker" / "access.toml"


def look(invocation: Invocation) -> Access:
    """What is known now."""
    from virta.security.access import Access
    from virta.security.access_file import load_access

    with open_directory(invocation) as log:
        return load_access(access_path(log)) or Access.empty()


def change(
    invocation: Invocation, act: Callable[[Access], Access], kind: str, **details: str | list[str] | None
) -> tuple[Access, Access]:
    """Change what is known, and note it in `__events`; as it was and as it is."""
    from virta.security.access_file import change_access
    from virta.types import Event

    before: list[Access] = []

    def noting(access: Access) -> Access:
        before.append(access)
        return act(access)

    with open_directory(invocation) as log:
        after = change_access(access_path(log), noting)
        if after != before[0]:
            log.record_event(Event(kind=kind, details=details))
    return before[0], after


# -- passwords -----------------------------------------------------------------------------------


def password_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_PASSWORD_OPTIONS):
        function = option(function)
    return function


_PASSWORD_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        help="Read the password from the first line of this file; - is stdin.",
    ),
    click.option("--generate", is_flag=True, help="Make a password up and print it, once."),
)


def new_password(password_file: Path | None, generate: bool, *, user: str) -> str:
    """The password to set: from a file, the environment or two equal answers at the prompt."""
    if generate:
        if password_file is not None:
            raise UsageError("--generate and --password-file cannot go together")
        return _made_up()
    password = _given(password_file) or _asked(user)
    if len(password) < LEAST_CHARACTERS:
        raise UsageError(
            f"the password has fewer than {LEAST_CHARACTERS} characters",
            hint="take a longer one, or --generate one",
        )
    return password


def _made_up() -> str:
    import secrets

    return secrets.token_urlsafe(18)


def _given(password_file: Path | None) -> str | None:
    from virta.security.credentials import read_secret

    if password_file is None:
        return os.environ.get(NEW_PASSWORD) or None
    if str(password_file) == "-":
        return sys.stdin.readline().rstrip("\r\n")
    return read_secret(password_file)


def _asked(user: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no terminal to ask for the password of {user!r}",
            hint=f"--password-file FILE, {NEW_PASSWORD}=…, or --generate",
        )
    first = getpass.getpass(f"Password for {user}: ")
    if getpass.getpass("The same again: ") != first:
        raise UsageError("the two passwords differ; nothing was changed")
    return first


def moment(us: int | None) -> str:
    """A time as people read it."""
    from virta.requests import format_moment

    return "" if us is None else format_moment(us)
