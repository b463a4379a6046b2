"""A group from outside: where it stands, who reads, and putting it somewhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from virta.errors import HistoryChanged, NotFound, UsageError
from virta.topics.groups.coordinator import GroupCoordinator, check_group_name
from virta.topics.groups.letters import DeadLetters
from virta.topics.groups.model import (
    GroupDescription,
    GroupKey,
    Lag,
    MemberDescription,
    PartitionStanding,
    ResetPlan,
)
from virta.topics.read import Moment
from virta.types import Token

if TYPE_CHECKING:
    from virta.topics.partition import Partition
    from virta.topics.topic import Topic

# Where a group may be put: "oldest", "newest", a moment, an offset, or each partition somewhere.
Target = Moment | Token | Mapping[int, "int | Token"]


class Group:
    """One group on one topic."""

    def __init__(self, topic: Topic, key: GroupKey, coordinator: GroupCoordinator) -> None:
        check_group_name(key.group)
        self._topic = topic
        self._key = key
        self._coordinator = coordinator

    @property
    def name(self) -> str:
        return self._key.group

    @property
    def topic(self) -> str:
        return self._key.topic

    # -- looking --------------------------------------------------------------------------------

    def describe(self) -> GroupDescription:
        """Members, positions and lag; NotFound when nobody has read or committed under this name."""
        state, now = self._coordinator.state(self._key)
        committed = {n: at.token for n, at in self._coordinator.positions(self._key).items()}
        if not state.members and not committed:
            raise NotFound(
                f"topic {self.topic!r} has no group {self.name!r}",
                hint="a group is there once a reader has joined it",
            )
        parts = []
        for partition in self._topic.partitions:
            token = committed.get(partition.number)
            grant = state.owners.get(partition.number)
            parts.append(
                PartitionStanding(
                    partition=partition.number,
                    offset=None if token is None else token.offset,
                    token=token,
                    next_offset=partition.next_offset,
                    lag=self._lag(partition, token),
                    owner=None if grant is None else grant.member,
                    epoch=0 if grant is None else grant.epoch,
                )
            )
        members = tuple(
            MemberDescription(
                member=name,
                instance=member.instance,
                partitions=tuple(sorted(n for n, grant in state.owners.items() if grant.member == name)),
                expires_in_seconds=max(0.0, member.expires - now),
            )
            for name, member in sorted(state.members.items())
        )
        return GroupDescription(
            group=self.name, topic=self.topic, epoch=state.epoch, members=members, partitions=tuple(parts)
        )

    def _lag(self, partition: Partition, token: Token | None) -> Lag:
        """How far the committed position is behind."""
        at = partition.first_token if token is None else token
        rows = max(0, partition.next_offset - max(at.offset, partition.start_offset))
        if not rows:
            return Lag(rows=0, seconds=0.0)
        try:
            blocks, _ = partition.poll(at, max_bytes=1)
        except HistoryChanged:  # retention was faster
            blocks, _ = partition.poll(partition.first_token, max_bytes=1)
        now_us = self._topic._now_us()
        stamps = [block.header.min_timestamp for block in blocks]
        return Lag(rows=rows, seconds=max(0.0, (now_us - min(stamps, default=now_us)) / 1e6))

    def dead_letters(self) -> DeadLetters:
        """Rows that failed too often: `all()`, `resend()`, `discard()`."""
        return DeadLetters(self._topic, self.name, self._coordinator.open_topic)

    # -- changing ---------------------------------------------------------------------------------

    def plan_reset(self, to: Target) -> list[ResetPlan]:
        """What `reset` would do: rows that are read again, and rows that are passed over."""
        committed = {n: at.token for n, at in self._coordinator.positions(self._key).items()}
        plans = []
        for partition in self._topic.partitions:
            token = self._target(partition, to)
            if token is not None:
                known = committed.get(partition.number)
                before = None if known is None else known.offset
                plans.append(
                    ResetPlan(partition=partition.number, before=before, after=token.offset, token=token)
                )
        return plans

    def reset(self, to: Target, *, dry_run: bool = False) -> list[ResetPlan]:
        """Put the group somewhere else, while nobody reads: "oldest", "newest", a moment, an offset.

        With several partitions offsets are given by partition: `{0: 100, 3: 250}`; others stay.
        """
        plans = self.plan_reset(to)
        if not dry_run:
            self._coordinator.set_positions(self._key, {plan.partition: plan.token for plan in plans})
        return plans

    def remove(self) -> None:
        """Forget the group; refused while somebody reads."""
        self.describe()
        self._coordinator.remove(self._key)

    def _target(self, partition: Partition, to: Target) -> Token | None:
        if isinstance(to, Mapping):
            place = to.get(partition.number)
            return None if place is None else _token(partition, place)
        if isinstance(to, Token):
            return _token(partition, to) if to.partition == partition.number else None
        if to == "oldest":
            return partition.first_token
        if to == "newest":
            return partition.last_token
        if isinstance(to, int) and not isinstance(to, bool):
            if len(self._topic.partitions) != 1:
                raise UsageError(
                    "an offset is a matter of one partition",
                    hint="give {partition: offset}, a moment, 'oldest' or 'newest'",
                )
            return _token(partition, to)
        return partition.token_since(to)

    def __repr__(self) -> str:
        return f"Group({self.name!r} on {self.topic!r})"


def _token(partition: Partition, place: int | Token) -> Token:
    if isinstance(place, Token):
        partition.poll(place, max_bytes=1)  # it must stand on this history
        return place
    return partition.token(place)
