"""Opening a log: the one door for every kind of address."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virta.contexts import resolve
from virta.errors import UsageError
from virta.log import Log
from virta.security.address import is_broker_address, parse_address
from virta.security.credentials import FIELDS, find_credentials
from virta.settings import Settings

CAPSULE_ENDING = ".capsule"

if TYPE_CHECKING:
    from virta.aio import AsyncLog, Opening


def open(
    address: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    settings: Settings | None = None,
    **components: Any,
) -> Log:
    """Open a log: a directory, made if it is not there (unless `create` is False), `virta://host:port`,
    `@name`, a context, or a bug capsule, `bug.capsule`: a copy of it that goes when it is closed.

    For a broker: `user` with `password` or `password_file`, or `token` or `token_file`; `ca_file` or
    `fingerprint`, `certificate_file` with `key_file`. Better kept in the environment or by `virta login`.
    """
    found = resolve(address)
    place = found.address
    if not place:
        raise UsageError("an empty address names no log")
    if is_broker_address(place):
        context = found.context.credentials if found.context is not None else {}
        return _open_remote(place, settings, context, components)
    _refuse_credentials(components)
    if "://" in place:
        scheme = place.split("://", 1)[0]
        raise UsageError(
            f"addresses of the kind {scheme}:// are not known here",
            hint="give the path of a directory, or virta://host:port for a broker",
        )
    if place.endswith(CAPSULE_ENDING) and Path(place).expanduser().is_file():
        from virta.exchange.capsule import open_capsule  # zip files are not for everybody's start

        return open_capsule(place, settings=settings)
    return Log(place, create=create, settings=settings, **components)


def _open_remote(
    place: str, settings: Settings | None, context: Mapping[str, Any], components: dict[str, Any]
) -> Log:
    given = {name: components.pop(name) for name in FIELDS if name in components}
    where = parse_address(place)
    credentials = components.pop("credentials", None) or find_credentials(
        where, given=given, context={name: value for name, value in context.items() if name in FIELDS}
    )
    try:
        from virta.client.log import RemoteLog

        return RemoteLog(where, settings=settings, credentials=credentials, **components)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("google"):
            raise
        raise UsageError(
            "talking to a broker needs the package protobuf, which is not installed",
            hint="pip install 'virta[remote]'",
        ) from error


def _refuse_credentials(components: dict[str, Any]) -> None:
    for name in FIELDS:
        if name in components:
            raise UsageError(
                f"{name}= is for brokers, and this log is a directory", hint="virta://host:port is a broker"
            )


def aopen(
    address: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    settings: Settings | None = None,
    **components: Any,
) -> Opening[AsyncLog]:
    """As `open`, for asyncio: `async with virta.aopen("./events") as log:`, or await it and close it."""
    from virta.aio import AsyncLog, Opening  # asyncio costs programs without it 25 ms

    return Opening(
        lambda: AsyncLog.start(lambda: open(address, create=create, settings=settings, **components))
    )
