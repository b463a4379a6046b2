"""Logs as Spark's Python workers hold them: opened once per process, found by address.

A worker serves many tasks one after another. What it has opened stays open for the next
one, up to a few logs; a forked child begins with none.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

from virta.errors import NotFound
from virta.memory.partition import Partition
from virta.open import open as open_log
from virta.spark.options import Place

# A worker reads one log, or copies between two; more are jobs of several users.
_KEPT = 4
_open: OrderedDict[tuple[int, str], Any] = OrderedDict()


def log_at(address: str) -> Any:
    """The log at this address, open."""
    key = (os.getpid(), address)
    found = _open.get(key)
    if found is None:
        for other in [other for other in _open if other[0] != key[0]]:
            del _open[other]  # a parent's, which a fork has closed
        _check_visible(address)
        found = _open[key] = open_log(address, create=False)
        while len(_open) > _KEPT:
            _open.popitem(last=False)[1].close()
    _open.move_to_end(key)
    return found


def topic_at(place: Place) -> Any:
    """The topic, open; NotFound when it is not there."""
    return log_at(place.log).topic(place.topic)


def files_of(partition: Any) -> Partition | None:
    """The partition's files, where this process sees them; None for one behind an address."""
    stored = partition.stored
    return stored if isinstance(stored, Partition) else None


def is_remote(address: str) -> bool:
    return "://" in address


def _check_visible(address: str) -> None:
    """A path that only the driver sees is the commonest mistake on a cluster."""
    if is_remote(address) or Path(address).exists():
        return
    raise NotFound(
        f"there is no log in {address} on {os.uname().nodename}",
        hint="driver and executors must see the same path; "
        "or serve the log and give its address: .option('log', 'virta://host:7400')",
    )
