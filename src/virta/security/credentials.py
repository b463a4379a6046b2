"""How a connection finds its credentials: who it is, and whom it trusts.

Looked for in this order; the first that knows decides, for the login as a whole and for each
matter of trust by itself:

    1. what the caller gives           virta.open(…, user=, password=, token=, fingerprint=, …)
    2. the address                     virtas://ada@host?fingerprint=…
    3. the environment                 VIRTA_USER, VIRTA_PASSWORD or VIRTA_PASSWORD_FILE, VIRTA_TOKEN or
                                       VIRTA_TOKEN_FILE, VIRTA_FINGERPRINT, VIRTA_CA_FILE,
                                       VIRTA_CERTIFICATE_FILE, VIRTA_KEY_FILE
    4. a named connection (context)    the same words as fields
    5. ~/.config/virta/credentials.toml, a table per host:port, kept by `virta login`; mode 0600

A user that was named (in an address, say) is looked up with the same name only: the password of
another one is not tried.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from virta.errors import NotFound, UsageError
from virta.security.address import Address
from virta.security.binding import parse_fingerprint
from virta.security.principal import check_user_name
from virta.security.private_files import read_private, write_private
from virta.security.tokens import PREFIX, split_token

# What a source may say.
FIELDS = (
    "user",
    "password",
    "password_file",
    "token",
    "token_file",
    "fingerprint",
    "ca_file",
    "certificate_file",
    "key_file",
)
_LOGIN = frozenset(FIELDS[:5])
# A password or token in a file: far longer than any, far shorter than a mistake that fills memory.
_SECRET_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which broker is the right one, and the certificate to show it."""

    fingerprint: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a connection logs in with: a name and a secret, or nothing."""

    # A user's name, or `token:<id>`.
    name: str | None = None
    secret: str | None = field(default=None, repr=False)
    trust: Trust = field(default_factory=Trust)
    # In words, for errors: "the environment".
    source: str = "nowhere"


def find_credentials(
    address: Address,
    *,
    given: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Credentials:
    """What the connection to an address uses; UsageError when what is found cannot be used."""
    environment = os.environ if environment is None else environment
    sources = list(_sources(address, given or {}, context or {}, environment))
    name, secret, source = _login(sources)
    return Credentials(name=name, secret=secret, source=source, trust=_trust(sources))


def _sources(
    address: Address, given: Mapping[str, Any], context: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "the arguments", _checked("the arguments", given)
    yield (
        "the address",
        {"user": address.user, "fingerprint": address.fingerprint, "ca_file": address.ca_file},
    )
    yield "the environment", {name: environment.get(f"VIRTA_{name.upper()}") or None for name in FIELDS}
    yield "the context", _checked("the context", context)
    kept = kept_credentials(credentials_path(environment))
    yield "the kept credentials", _checked("the kept credentials", kept.get(address.name, {}))


def _checked(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if name not in FIELDS:
            raise UsageError(f"{source} of a connection know no {name!r}", hint=f"known: {', '.join(FIELDS)}")
        if value is not None and not isinstance(value, str | os.PathLike):
            raise UsageError(f"{source}: {name} is a text")
    return {name: None if value is None else os.fspath(value) for name, value in values.items()}


def _login(sources: list[tuple[str, dict[str, Any]]]) -> tuple[str | None, str | None, str]:
    wanted = next((check_user_name(values["user"]) for _, values in sources if values.get("user")), None)
    for source, values in sources:
        if values.get("user") not in (None, wanted):
            continue
        password, token = _secret(source, values, "password"), _secret(source, values, "token")
        if password is not None and token is not None:
            raise UsageError(f"{source} give a password and a token", hint="give one of them")
        if token is not None:
            identity, secret = split_token(token)
            return f"{PREFIX}{identity}", secret, source
        if password is not None:
            if wanted is None:
                raise UsageError(f"{source} give a password and nothing says whose", hint="VIRTA_USER=…")
            return wanted, password, source
    if wanted is not None:
        raise UsageError(
            f"there is no password for user {wanted!r}",
            hint="VIRTA_PASSWORD_FILE=… or VIRTA_PASSWORD=…, or keep it with: virta login",
        )
    return None, None, "nowhere"


def _secret(source: str, values: Mapping[str, Any], name: str) -> str | None:
    plain, file = values.get(name), values.get(f"{name}_file")
    if plain is not None and file is not None:
        raise UsageError(f"{source} give both a {name} and a {name}_file", hint="give one of them")
    if file is not None:
        return read_secret(Path(file).expanduser(), name)
    if plain is not None and not plain:
        raise UsageError(f"{source} give an empty {name}")
    return plain


def read_secret(path: Path, what: str = "password") -> str:
    """The first line of a file. Others may be able to read it: secrets of containers are mounted so."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_SECRET_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"the file of the {what} is not there: {path}") from None
    except OSError as error:
        raise UsageError(f"the file of the {what} cannot be read: {path}: {error.strerror}") from None
    try:
        line = data.decode("utf-8").partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        line = ""
    if not line or len(data) > _SECRET_BYTES:
        raise UsageError(f"{path} holds no {what} in its first line")
    return line


def _trust(sources: list[tuple[str, dict[str, Any]]]) -> Trust:
    def first(name: str) -> str | None:
        return next((values[name] for _, values in sources if values.get(name) is not None), None)

    fingerprint = first("fingerprint")
    return Trust(
        fingerprint=parse_fingerprint(fingerprint) if fingerprint else None,
        ca_file=first("ca_file"),
        certificate_file=first("certificate_file"),
        key_file=first("key_file"),
    )


# -- kept between runs ---------------------------------------------------------------------------


def config_directory(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CONFIG_HOME/virta`."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "virta"


def credentials_path(environment: Mapping[str, str] | None = None) -> Path:
    return config_directory(environment) / "credentials.toml"


def kept_credentials(path: Path) -> dict[str, dict[str, Any]]:
    """What is kept, by `host:port`. A file that others can read is refused."""
    text = read_private(path)
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise UsageError(
            f"{path} is not readable as TOML", hint="mend it, or remove it and log in again"
        ) from None
    if not all(isinstance(value, dict) for value in document.values()):
        raise UsageError(f"{path} holds something else than tables named host:port")
    return document


def keep_credentials(path: Path, name: str, values: Mapping[str, str | None]) -> None:
    """Keep what a connection to `host:port` uses; no values: forget it."""
    kept = kept_credentials(path)
    known = {
        key: value for key, value in _checked("the kept credentials", values).items() if value is not None
    }
    if known:
        kept[name] = known
    else:
        kept.pop(name, None)
    write_private(path, tomli_w.dumps(kept))
