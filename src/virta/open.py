"""Opening a log: the one door for every kind of address."""

from __future__ import annotations

import os
from typing import Any

from virta.errors import UsageError
from virta.log import Log
from virta.settings import Settings, default_address


def open(
    address: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    settings: Settings | None = None,
    **components: Any,
) -> Log:
    """Open a log: a directory, made if it is not there (unless `create` is False)."""
    place = default_address() if address is None else os.fspath(address)
    if not place:
        raise UsageError("an empty address names no log")
    if "://" in place:
        scheme = place.split("://", 1)[0]
        raise UsageError(
            f"addresses of the kind {scheme}:// are not known here",
            hint="give the path of a directory; serving a log over the network comes with a later release",
        )
    return Log(place, create=create, settings=settings, **components)
