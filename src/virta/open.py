"""Opening a log: the one door for every kind of address."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from virta.contexts import resolve
from virta.errors import UsageError
from virta.log import Log
from virta.security.address import is_broker_address
from virta.settings import Settings

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
    or `@name`, a context.
    """
    place = resolve(address).address
    if not place:
        raise UsageError("an empty address names no log")
    if is_broker_address(place):
        return _open_remote(place, settings, components)
    if "://" in place:
        scheme = place.split("://", 1)[0]
        raise UsageError(
            f"addresses of the kind {scheme}:// are not known here",
            hint="give the path of a directory, or virta://host:port for a broker",
        )
    return Log(place, create=create, settings=settings, **components)


def _open_remote(place: str, settings: Settings | None, components: dict[str, Any]) -> Log:
    try:
        from virta.client.log import RemoteLog

        return RemoteLog(place, settings=settings, **components)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("google"):
            raise
        raise UsageError(
            "talking to a broker needs the package protobuf, which is not installed",
            hint="pip install 'virta[remote]'",
        ) from error


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
