"""The words of consumer groups as values: what members say and are told, what is shown of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virta.types import Token

DEFAULT_SESSION_SECONDS = 10.0
# A member speaks up three times in a session, so that one lost heartbeat does not end it.
HEARTBEATS_PER_SESSION = 3


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupKey:
    """A group is one group on one topic; a topic made again is another."""

    group: str
    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a member says: who it is, and which partitions it holds, each with its epoch."""

    member: str
    owned: Mapping[int, int] = field(default_factory=dict)
    instance: str | None = None  # a name that stays over restarts: its partitions wait for it
    session_seconds: float = DEFAULT_SESSION_SECONDS
    joining: bool = False  # its first: only a newcomer takes over an instance's partitions
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member is told.

    `partitions` are its own, each with the epoch that its commits carry. Of those it holds,
    it commits and gives up (by a heartbeat without them) the ones in `revoked`; what it holds
    and is in neither was given to another meanwhile: it may not commit that any more.
    """

    member: str
    epoch: int
    partitions: Mapping[int, int]
    revoked: frozenset[int] = frozenset()
    generation: int = 0  # another one than before: something may have changed for somebody
    heartbeat_seconds: float = DEFAULT_SESSION_SECONDS / HEARTBEATS_PER_SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """How far a member came in a partition, and the epoch by which it holds it."""

    token: Token
    epoch: int
    attempts: int = 0  # how often the row at the token has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a group stands in a partition."""

    token: Token
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A row that failed too often, and why it did the last time."""

    partition: int
    epoch: int
    offset: int
    attempts: int
    error_type: str
    error: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far behind the newest row: rows still to come, and the age of the oldest of them."""

    rows: int
    seconds: float

    def __bool__(self) -> bool:
        return self.rows > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member: str
    instance: str | None
    partitions: tuple[int, ...]
    expires_in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStanding:
    """Where a group stands in one partition; no offset where nothing was committed yet."""

    partition: int
    offset: int | None
    token: Token | None
    next_offset: int
    lag: Lag
    owner: str | None
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    topic: str
    epoch: int
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionStanding, ...]

    @property
    def lag(self) -> Lag:
        return Lag(
            rows=sum(part.lag.rows for part in self.partitions),
            seconds=max((part.lag.seconds for part in self.partitions), default=0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """What setting a group to another place means in one partition."""

    partition: int
    before: int | None
    after: int
    token: Token

    @property
    def again(self) -> int:
        """Rows that would be read again."""
        return max(0, (self.before or 0) - self.after) if self.before is not None else 0

    @property
    def skipped(self) -> int:
        """Rows that would never be read."""
        return max(0, self.after - self.before) if self.before is not None else 0
