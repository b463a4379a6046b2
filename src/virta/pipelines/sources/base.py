"""Where rows come from: a source plans what is new, in pieces that any worker can read.

Everything about a plan is JSON: it travels to workers and into the journal. A source is
made again on each worker from its settings; it opens things when it first needs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

Position: TypeAlias = Mapping[str, Any]
Split: TypeAlias = Mapping[str, Any]
# Columns that say where a row was, in the batches of sources that know it.
PARTITION = "_partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one batch reads, and where the source stands after it."""

    splits: tuple[Split, ...]
    position: Position
    rows: int | None = None  # where it is known without reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a source says of itself: the name that policies know it by, and how its rows are known."""

    name: str
    description: str
    keys: tuple[str, ...] = ()
    kind: str = "append"
    partitions: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)


class Source(ABC):
    """One source of rows."""

    known_as = "rows"  # the name that policies know its rows by

    @abstractmethod
    def origin(self) -> Origin: ...

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The user's columns as they are now."""

    @abstractmethod
    def plan(self, position: Position | None, most_rows: int) -> Plan | None:
        """What is new after the position, about so many rows at most; None where nothing is."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split: the user's columns, and before them what is known of each row."""

    def pin(self) -> None:  # noqa: B027 (what never ends by itself says where it ends now)
        """What comes after this moment is for the next run."""

    def close(self) -> None:  # noqa: B027 (most have nothing to let go of)
        """Let go of what was opened."""
