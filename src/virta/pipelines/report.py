"""What a run did, as values: for people, for `__events`, for statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from virta.security.masking.plan import MaskedColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something a running flow has reached: planned, staged, recorded, committed or done."""

    flow: str
    what: str
    batch: int
    rows: int = 0


Watch: TypeAlias = Callable[[Step], None]


def unwatched(step: Step) -> None:
    """For runs that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """What one flow did in one run."""

    flow: str
    source: str
    sink: str
    batches: int
    read: int
    rows: int
    newest_batch: int  # its number
    finished_earlier: bool  # whether it began by finishing what an interrupted run had left
    position: Mapping[str, Any] | None
    source_details: Mapping[str, Any] = field(default_factory=dict)
    sink_head: Any = None
    masked: tuple[MaskedColumn, ...] = ()
    policy_hash: str | None = None
    key_fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a whole run did."""

    pipeline: str
    run: str
    began_us: int
    ended_us: int
    flows: tuple[FlowReport, ...]
    statement: str | None = None  # where the signed statement was written

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.flows)

    @property
    def read(self) -> int:
        return sum(each.read for each in self.flows)
