"""Virta: an event log to embed like SQLite, in one directory of Arrow files.

    import virta

    with virta.open("./events") as log:
        orders = log.create_topic("orders", {"id": int, "user": str}, if_missing=True)
        orders.append({"id": 1, "user": "ada"})

This file only re-exports, and does it lazily: a name is imported when it is
first asked for, so that `virta --help` does not pay for Arrow.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virta.errors import AlreadyExists as AlreadyExists
    from virta.errors import Closed as Closed
    from virta.errors import Conflict as Conflict
    from virta.errors import Corrupt as Corrupt
    from virta.errors import DamageError as DamageError
    from virta.errors import Denied as Denied
    from virta.errors import Fenced as Fenced
    from virta.errors import HistoryChanged as HistoryChanged
    from virta.errors import Locked as Locked
    from virta.errors import NoSpace as NoSpace
    from virta.errors import NotFound as NotFound
    from virta.errors import SchemaMismatch as SchemaMismatch
    from virta.errors import StorageFailed as StorageFailed
    from virta.errors import Timeout as Timeout
    from virta.errors import TooLarge as TooLarge
    from virta.errors import UnavailableError as UnavailableError
    from virta.errors import Unreachable as Unreachable
    from virta.errors import UsageError as UsageError
    from virta.errors import VirtaError as VirtaError
    from virta.open import aopen as aopen
    from virta.open import open as open
    from virta.settings import Settings as Settings
    from virta.steward.steward import Steward as Steward
    from virta.topics.groups.letters import DeadLetter as DeadLetter
    from virta.topics.groups.retry import Retry as Retry
    from virta.types import Ack as Ack
    from virta.types import ArrowStream as ArrowStream
    from virta.types import Compression as Compression
    from virta.types import Durability as Durability
    from virta.types import Erasure as Erasure
    from virta.types import Event as Event
    from virta.types import Kind as Kind
    from virta.types import Problem as Problem
    from virta.types import Receipt as Receipt
    from virta.types import Stats as Stats
    from virta.types import Token as Token
    from virta.types import TopicConfig as TopicConfig
    from virta.types import VerifyReport as VerifyReport

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "AlreadyExists",
    "ArrowStream",
    "Closed",
    "Compression",
    "Conflict",
    "Corrupt",
    "DamageError",
    "DeadLetter",
    "Denied",
    "Durability",
    "Erasure",
    "Event",
    "Fenced",
    "HistoryChanged",
    "Kind",
    "Locked",
    "NoSpace",
    "NotFound",
    "Problem",
    "Receipt",
    "Retry",
    "SchemaMismatch",
    "Settings",
    "Stats",
    "Steward",
    "StorageFailed",
    "Timeout",
    "Token",
    "TooLarge",
    "TopicConfig",
    "UnavailableError",
    "Unreachable",
    "UsageError",
    "VerifyReport",
    "VirtaError",
    "__version__",
    "aopen",
    "open",
]

_OPENERS = ("aopen", "open")
_ELSEWHERE = {
    "DeadLetter": "virta.topics.groups.letters",
    "Retry": "virta.topics.groups.retry",
    "Settings": "virta.settings",
    "Steward": "virta.steward.steward",
}
_VALUES = (
    "Ack",
    "ArrowStream",
    "Compression",
    "Durability",
    "Erasure",
    "Event",
    "Kind",
    "Problem",
    "Receipt",
    "Stats",
    "Token",
    "TopicConfig",
    "VerifyReport",
)


def _home(name: str) -> str:
    """The module a public name lives in; what is none of the others is an error."""
    if name in _OPENERS:
        return "virta.open"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    return "virta.types" if name in _VALUES else "virta.errors"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'virta' has no attribute {name!r}")
    value = getattr(importlib.import_module(_home(name)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `virta.open` a function.

    The import system binds every submodule in its package, so `import virta.open`
    anywhere would put the module of that name where users expect the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name == "open" and isinstance(value, ModuleType):
            value = value.open
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
