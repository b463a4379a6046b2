"""`virta token`: API tokens, with which programs log in for a user."""

from __future__ import annotations

import time
from pathlib import Path

import click

from virta.cli.access import change, look, moment
from virta.cli.invocation import Invocation, output_options, quiet_option
from virta.cli.output import note, print_records
from virta.cli.text import count
from virta.errors import UsageError
from virta.requests import parse_duration

_COLUMNS = ("token", "user", "created", "expires", "expired", "only", "note")


@click.group(no_args_is_help=True)
def token() -> None:
    """List, create or revoke API tokens.

    A token logs a program in for a user, and may be allowed less than that user.

    \b
    Examples:
      virta token create importer --expires 90d
      virta token ls
      virta token rm 3f9c1a7b2d04
    """


@token.command()
@click.argument("user", metavar="USER")
@click.option("--expires", metavar="TIME", help="How long it is good for, such as 90d.  [default: for ever]")
@click.option(
    "--only", metavar="VERBS:TOPICS", multiple=True, help="Allow this only, such as consume:orders*"
)
@click.option("--note", "remark", metavar="TEXT", default="", help="What it is for; shown in lists.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file, for its owner only, instead of printing it.",
)
@quiet_option("Print nothing but the token.")
@click.pass_obj
def create(
    invocation: Invocation,
    user: str,
    expires: str | None,
    only: tuple[str, ...],
    remark: str,
    token_file: Path | None,
) -> None:
    """Create a token for a user and print it, once: only its hash is kept.

    \b
    Examples:
      virta token create importer --expires 90d
      virta token create importer --only produce:orders* --note "nightly import"
      virta token create importer --token-file importer.token
    """
    from virta.security.permissions import parse_grant
    from virta.security.private_files import write_private
    from virta.security.tokens import new_token

    seconds = parse_duration(expires) if expires is not None else None
    if seconds is not None and seconds <= 0:
        raise UsageError("a token is good for more than no time")
    if len(remark) > 200 or not (remark.isprintable() or not remark):
        raise UsageError("a note is at most 200 printable characters")
    now_us = time.time_ns() // 1000
    text, made = new_token(
        user,
        now_us=now_us,
        expires_us=None if seconds is None else now_us + int(seconds * 1e6),
        note=remark,
        only=tuple(parse_grant(each) for each in only) or None,
    )
    if token_file is not None and token_file.exists():
        raise UsageError(f"{token_file} is there already", hint="remove it, or choose another name")
    change(
        invocation,
        lambda access: access.with_token(made),
        "token created",
        user=user,
        token_id=made.id,
        expires=moment(made.expires_us) or None,
        only=list(only),
    )
    if token_file is None:
        click.echo(text)
    else:
        write_private(token_file, text + "\n")
    end = f"good until {moment(made.expires_us)}" if made.expires_us else "good until it is revoked"
    note(invocation, f"token {made.id} for user {user}, {end}; use it as VIRTA_TOKEN or VIRTA_TOKEN_FILE")


@token.command()
@click.argument("user", metavar="[USER]", required=False)
@output_options("the ids")
@click.pass_obj
def ls(invocation: Invocation, user: str | None) -> None:
    """List the tokens, of all users or of one; never the tokens themselves.

    \b
    Examples:
      virta token ls
      virta token ls importer
      virta token ls -o json
    """
    access = look(invocation)
    if user is not None:
        access.user(user)
    now_us = time.time_ns() // 1000
    records = [
        {
            "token": each.id,
            "user": each.user,
            "created": moment(each.created_us),
            "expires": moment(each.expires_us) or None,
            "expired": each.has_expired(now_us),
            "only": None if each.only is None else " ".join(map(str, each.only)),
            "note": each.note,
        }
        for each in sorted(access.tokens.values(), key=lambda each: (each.user, each.created_us))
        if user in (None, each.user)
    ]
    print_records(invocation, records, key="token", names=_COLUMNS)
    if not records:
        note(invocation, "no tokens; `virta token create USER` makes one")


@token.command()
@click.argument("token_id", metavar="[TOKEN]", required=False)
@click.option("--expired", is_flag=True, help="All that have expired.")
@quiet_option("Say nothing.")
@click.pass_obj
def rm(invocation: Invocation, token_id: str | None, expired: bool) -> None:
    """Revoke a token by its id; connections made with it are refused from then on.

    \b
    Examples:
      virta token rm 3f9c1a7b2d04
      virta token rm --expired
      virta token rm -q 3f9c1a7b2d04
    """
    if (token_id is None) is not expired:
        raise UsageError("say which token by its id, or --expired", hint="virta token ls")
    if token_id is not None:
        if token_id.startswith("virta_"):
            raise UsageError(
                "name a token by its id",
                hint="virta token ls; and revoke this one: it stands in your history now",
            )
        wanted: str = token_id
        change(invocation, lambda access: access.without_token(wanted), "token revoked", token_id=wanted)
        note(invocation, f"revoked token {wanted}")
        return
    now_us = time.time_ns() // 1000
    before, after = change(
        invocation, lambda access: access.without_expired(now_us), "tokens that expired removed"
    )
    note(invocation, f"removed {count(len(before.tokens) - len(after.tokens), 'expired token')}")
