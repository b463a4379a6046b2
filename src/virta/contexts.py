"""Contexts: logs with a name, each in an environment with a rank.

    $XDG_CONFIG_HOME/virta/config.toml          (readable to its owner alone)

    context = "dev"                             # the one in use

    [contexts.prod]
    address = "virta://events.example.org:7400"
    environment = "prod"
    rank = 40
    user = "ada"                                # how to log in; other keys are kept as they are

`@prod` is accepted wherever an address is. A rank says how high an environment stands:
copies that mask rows only go from a higher to a lower one.

Where a log is when nobody says: `$VIRTA_LOG`, else the context of `$VIRTA_CONTEXT`, else
the context in use, else the user's own data directory.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from virta.errors import AlreadyExists, NotFound, UsageError
from virta.settings import data_address

MARK = "@"
# Room between them for environments of one's own.
RANKS: Mapping[str, int] = MappingProxyType({"local": 0, "dev": 10, "test": 20, "staging": 30, "prod": 40})
_OTHER_NAMES = {
    "development": "dev",
    "qa": "test",
    "testing": "test",
    "stage": "staging",
    "production": "prod",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_FIELDS = ("address", "environment", "rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A named connection. `credentials` is whatever else its table holds."""

    name: str
    address: str
    environment: str
    rank: int
    credentials: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a log is, and the context that said so."""

    address: str
    context: Context | None = None


def config_path() -> Path:
    """The user's own configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "virta" / "config.toml"


def rank_of(environment: str) -> int | None:
    """The rank of a well-known environment."""
    lower = environment.lower()
    return RANKS.get(_OTHER_NAMES.get(lower, lower))


# -- from an address to a place -----------------------------------------------------------------


def resolve(address: str | os.PathLike[str] | None = None) -> Place:
    """The place an address names; without one, the place of this user."""
    if address is None:
        return _usual()
    text = os.fspath(address)
    if not text.startswith(MARK):
        return Place(address=text)
    found = get(text.removeprefix(MARK))
    return Place(address=found.address, context=found)


def _usual() -> Place:
    if named := os.environ.get("VIRTA_LOG"):
        return resolve(named)
    if named := os.environ.get("VIRTA_CONTEXT"):
        return resolve(MARK + named.removeprefix(MARK))
    used = in_use()
    return Place(address=data_address()) if used is None else Place(address=used.address, context=used)


def default_address() -> str:
    """Where the log is when nobody says."""
    return _usual().address


# -- reading ----------------------------------------------------------------------------------


def contexts() -> list[Context]:
    """All of them, by rank, the highest first."""
    table = _load().get("contexts", {})
    found = [_context(name, value) for name, value in table.items()]
    return sorted(found, key=lambda each: (-each.rank, each.name))


def get(name: str) -> Context:
    """The context of this name; NotFound, with a suggestion, when it is not there."""
    table = _load().get("contexts", {})
    if name not in table:
        near = get_close_matches(name, table, n=1)
        hint = f'did you mean "{near[0]}"?' if near else "virta context add NAME ADDRESS --environment dev"
        raise NotFound(f'there is no context "{name}"', hint=hint)
    return _context(name, table[name])


def in_use() -> Context | None:
    """The context that `use` chose."""
    document = _load()
    name = document.get("context")
    table = document.get("contexts", {})
    if not isinstance(name, str) or name not in table:
        return None
    return _context(name, table[name])


def _context(name: str, table: Any) -> Context:
    if not isinstance(table, dict) or not isinstance(table.get("address"), str):
        raise UsageError(f"the context {name} in {config_path()} has no address")
    environment = table.get("environment", "dev")
    if not isinstance(environment, str):
        raise UsageError(f"the environment of the context {name} in {config_path()} is a name")
    rank = table.get("rank", rank_of(environment))
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise UsageError(
            f"the context {name} in {config_path()} has no rank", hint="write rank = 25 into its table"
        )
    rest = {key: value for key, value in table.items() if key not in _FIELDS}
    return Context(name=name, address=table["address"], environment=environment, rank=rank, credentials=rest)


def _load() -> dict[str, Any]:
    path = config_path()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not readable as TOML: {error}", hint="correct it, or move it away"
        ) from None
    if not isinstance(document.get("contexts", {}), dict):
        raise UsageError(f"{path}: contexts is not a table", hint="write [contexts.NAME]")
    return document


# -- changing ----------------------------------------------------------------------------------


def add(
    name: str,
    address: str,
    *,
    environment: str = "dev",
    rank: int | None = None,
    credentials: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Context:
    """Write a context down. A directory is kept as a whole path, so that it means the same everywhere."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a context", hint="letters, digits, dot, dash and underscore; at most 64"
        )
    if not address or address.startswith(MARK):
        raise UsageError(f"{address!r} is no address", hint="a directory, or virta://host:7400")
    found = rank if rank is not None else rank_of(environment)
    if found is None:
        known = ", ".join(f"{each} {value}" for each, value in RANKS.items())
        raise UsageError(
            f"the rank of the environment {environment!r} is not known",
            hint=f"say how high it stands: --rank N ({known})",
        )
    document = _load()
    table = document.setdefault("contexts", {})
    if name in table and not replace:
        raise AlreadyExists(f'there is a context "{name}" already', hint="replace it with --replace")
    place = address if "://" in address else str(Path(address).expanduser().absolute())
    table[name] = {"address": place, "environment": environment, "rank": found, **(credentials or {})}
    _save(document)
    return get(name)


def use(name: str | None) -> None:
    """Take this one where nobody says otherwise; None takes none."""
    document = _load()
    document.pop("context", None)
    if name is not None:
        document = {"context": get(name).name, **document}
    _save(document)


def remove(name: str) -> None:
    get(name)
    document = _load()
    del document["contexts"][name]
    if document.get("context") == name:
        del document["context"]
    _save(document)


def _save(document: dict[str, Any]) -> None:
    """Replaced whole, and never readable to others, not even for a moment: it may hold secrets."""
    import tomli_w  # only for writing; reading an address should cost nothing

    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    unfinished.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            tomli_w.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
