"""`virta login` and `logout`: how to log in to a broker, kept for this user of this machine."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virta
from virta.cli.invocation import Invocation, quiet_option
from virta.cli.output import note
from virta.errors import Denied, NotFound, UsageError

if TYPE_CHECKING:
    from virta.security.address import Address


@click.command()
@click.argument("address", metavar="[ADDRESS]", required=False)
@click.option("--user", metavar="NAME", help="Who you are.  [default: the one in the address]")
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Read the password from the first line of this file; - is stdin.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Log in with the API token in this file instead; - is stdin.",
)
@click.option(
    "--fingerprint", metavar="HASH", help="Trust the certificate that `virta serve` printed this of."
)
@quiet_option("Say nothing.")
@click.pass_obj
def login(
    invocation: Invocation,
    /,
    address: str | None,
    user: str | None,
    password_file: Path | None,
    token_file: Path | None,
    fingerprint: str | None,
) -> None:
    """Log in to a broker, and keep how, so that its address is enough from now on.

    What is kept is tried first. It stays in ~/.config/virta/credentials.toml, which nobody else
    may read. A password is asked for, or read from a file; it is never an argument.

    \b
    Examples:
      virta login virtas://ada@events.example.org:7400
      virta login virtas://events.example.org:7400 --token-file importer.token
      virta login virta://127.0.0.1:7400 --user ada --password-file - < password
    """
    from virta.security.credentials import credentials_path, keep_credentials

    if password_file is not None and token_file is not None:
        raise UsageError("--password-file and --token-file cannot go together")
    where = _broker(invocation, address)
    values: dict[str, str | None] = {"fingerprint": fingerprint or where.fingerprint}
    if where.tls and values["fingerprint"] is None and where.ca_file is None:
        values["fingerprint"] = _accepted(invocation, where)
    if token_file is not None:
        values["token"] = _secret(token_file, "token")
    else:
        name = user or where.user
        if name is None:
            raise UsageError("nothing says who you are", hint="--user NAME, or virtas://NAME@host:port")
        values |= {"user": name, "password": _password(password_file, name)}
    given: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    with virta.open(_plain(where), **given) as log:
        log.topics()
    keep_credentials(credentials_path(), where.name, values)
    note(invocation, f"logged in to {where.name}; kept in {credentials_path()}")


@click.command()
@click.argument("address", metavar="[ADDRESS]", required=False)
@quiet_option("Say nothing.")
@click.pass_obj
def logout(invocation: Invocation, address: str | None) -> None:
    """Forget how to log in to a broker.

    \b
    Examples:
      virta logout virtas://events.example.org:7400
      virta logout @prod
      virta -l virta://127.0.0.1:7400 logout
    """
    from virta.security.credentials import credentials_path, keep_credentials, kept_credentials

    where, path = _broker(invocation, address), credentials_path()
    if where.name not in kept_credentials(path):
        raise NotFound(f"nothing is kept for {where.name}", hint=f"kept logins are in {path}")
    keep_credentials(path, where.name, {})
    note(invocation, f"forgot how to log in to {where.name}")


def _broker(invocation: Invocation, address: str | None) -> Address:
    """The broker that is meant: the argument, or what every other command would talk to."""
    from virta.contexts import resolve
    from virta.security.address import is_broker_address, parse_address

    place = resolve(address or invocation.log).address
    if not is_broker_address(place):
        raise UsageError(
            f"{place} is a directory: nobody logs in there", hint="virta login virtas://host:7400 --user NAME"
        )
    return parse_address(place)


def _plain(where: Address) -> str:
    scheme = "virtas" if where.tls else "virta"
    authorities = f"?ca_file={where.ca_file}" if where.ca_file else ""
    return f"{scheme}://{where.name}{authorities}"


def _accepted(invocation: Invocation, where: Address) -> str | None:
    """The fingerprint of a certificate that no authority signed, if whoever sits here says it is the one."""
    from virta.client.certificate import certificate_of
    from virta.security.binding import fingerprint

    try:
        certificate_of(where, trusted=True)
        return None  # signed by an authority this machine knows
    except Denied as error:
        found = fingerprint(certificate_of(where, trusted=False))
        if not sys.stdin.isatty():
            raise Denied(
                str(error),
                hint=f"compare {found} with what `virta serve` prints, then: --fingerprint {found}",
            ) from None
    note(invocation, f"the certificate of {where.name} is signed by nobody this machine knows")
    note(invocation, f"  fingerprint {found}")
    if not click.confirm("Is this what `virta serve` prints there?", err=True):
        raise Denied("the certificate was not accepted; nothing was kept")
    return found


def _password(file: Path | None, name: str) -> str:
    if file is not None:
        return _secret(file, "password")
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no terminal to ask for the password of {name!r}", hint="--password-file FILE"
        )
    return getpass.getpass(f"Password for {name}: ")


def _secret(file: Path, what: str) -> str:
    from virta.security.credentials import read_secret

    if str(file) == "-":
        return sys.stdin.readline().rstrip("\r\n")
    return read_secret(file, what)
