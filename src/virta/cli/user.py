"""`virta user`: who may log in at the broker of a log."""

from __future__ import annotations

import time
from pathlib import Path

import click

from virta.cli.access import change, look, moment, new_password, password_options
from virta.cli.invocation import Invocation, output_options, quiet_option
from virta.cli.output import note, print_records
from virta.cli.text import count
from virta.errors import UsageError

_COLUMNS = ("user", "login", "disabled", "permissions", "tokens", "created")


@click.group(no_args_is_help=True)
def user() -> None:
    """List, add, change or remove the users of a log's broker.

    With the first user the broker asks everybody for a login. A running broker sees changes at once.

    \b
    Examples:
      virta user add ada
      virta user ls
      virta user passwd ada
    """


@user.command()
@output_options("the names")
@click.pass_obj
def ls(invocation: Invocation) -> None:
    """List the users.

    \b
    Examples:
      virta user ls
      virta user ls -q
      virta user ls -o json
    """
    access = look(invocation)
    records = [
        {
            "user": name,
            "login": "password" if each.verifier else "certificate or token",
            "disabled": each.disabled,
            "permissions": sum(rule.who == name for rule in access.permissions),
            "tokens": sum(token.user == name for token in access.tokens.values()),
            "created_us": each.created_us,
        }
        for name, each in sorted(access.users.items())
    ]
    for record in records:
        record["created"] = moment(int(record.pop("created_us")))
    print_records(invocation, records, key="user", names=_COLUMNS)
    if not records:
        note(invocation, "no users yet; `virta user add NAME` adds one")


@user.command()
@click.argument("name", metavar="USER")
@password_options
@click.option("--no-password", is_flag=True, help="Logs in by client certificate or token only.")
@click.option(
    "--allow", metavar="VERBS:TOPICS", multiple=True, help="Allow something at once: consume:orders*"
)
@quiet_option("Print nothing but a made-up password.")
@click.pass_obj
def add(
    invocation: Invocation,
    name: str,
    password_file: Path | None,
    generate: bool,
    no_password: bool,
    allow: tuple[str, ...],
) -> None:
    """Add a user; asks for the password.

    The password comes by the prompt, from a file or from VIRTA_NEW_PASSWORD, never as an argument. A
    new user may do nothing until a permission allows it.

    \b
    Examples:
      virta user add ada
      virta user add importer --generate --allow produce:orders*
      virta user add gate --no-password
    """
    from virta.security.access import Access, User
    from virta.security.permissions import Permission, parse_grant
    from virta.security.principal import check_user_name
    from virta.security.scram import make_verifier

    if no_password and (generate or password_file):
        raise UsageError("--no-password cannot go with a password")
    check_user_name(name)
    grants = [parse_grant(each) for each in allow]
    password = None if no_password else new_password(password_file, generate, user=name)
    made = User(
        name=name,
        created_us=time.time_ns() // 1000,
        verifier=None if password is None else make_verifier(password),
    )

    def act(access: Access) -> Access:
        access = access.with_user(made)
        for grant in grants:
            access = access.with_permission(Permission(who=name, grant=grant))
        return access

    before, _ = change(invocation, act, "user added", user=name, permissions=[str(each) for each in grants])
    if generate:
        click.echo(password)
    note(invocation, f"user {name}: {count(len(grants), 'permission')}")
    if not before.is_set_up:
        note(invocation, "from now on the broker of this log asks everybody for a login")
    if not grants:
        note(invocation, f"allow something: virta permission add {name} consume 'orders*'")


@user.command()
@click.argument("name", metavar="USER")
@password_options
@quiet_option("Print nothing but a made-up password.")
@click.pass_obj
def passwd(invocation: Invocation, name: str, password_file: Path | None, generate: bool) -> None:
    """Set a user's password; connections that are open stay.

    \b
    Examples:
      virta user passwd ada
      virta user passwd ada --generate
      virta user passwd ada --password-file /run/secrets/ada
    """
    from virta.security.scram import make_verifier

    look(invocation).user(name)  # nobody is asked for the password of a user who is not there
    password = new_password(password_file, generate, user=name)
    verifier = make_verifier(password)
    change(
        invocation,
        lambda access: access.with_changed_user(name, verifier=verifier),
        "password set",
        user=name,
    )
    if generate:
        click.echo(password)
    note(invocation, f"user {name} has a new password")


@user.command()
@click.argument("name", metavar="USER")
@quiet_option("Say nothing.")
@click.pass_obj
def rm(invocation: Invocation, name: str) -> None:
    """Remove a user, with tokens and permissions; open connections are refused from then on.

    \b
    Examples:
      virta user rm ada
      virta user rm -q ada
      virta -l ./events user rm ada
    """
    before, _ = change(invocation, lambda access: access.without_user(name), "user removed", user=name)
    tokens = sum(token.user == name for token in before.tokens.values())
    note(invocation, f"removed user {name} and {count(tokens, 'token')}")


@user.command()
@click.argument("name", metavar="USER")
@quiet_option("Say nothing.")
@click.pass_obj
def disable(invocation: Invocation, name: str) -> None:
    """Keep a user from doing anything, and what is known of them.

    \b
    Examples:
      virta user disable ada
      virta user disable -q ada
      virta -l ./events user disable ada
    """
    change(
        invocation, lambda access: access.with_changed_user(name, disabled=True), "user disabled", user=name
    )
    note(invocation, f"user {name} may do nothing until: virta user enable {name}")


@user.command()
@click.argument("name", metavar="USER")
@quiet_option("Say nothing.")
@click.pass_obj
def enable(invocation: Invocation, name: str) -> None:
    """Let a disabled user in again.

    \b
    Examples:
      virta user enable ada
      virta user enable -q ada
      virta -l ./events user enable ada
    """
    change(
        invocation, lambda access: access.with_changed_user(name, disabled=False), "user enabled", user=name
    )
    note(invocation, f"user {name} may log in again")
