"""A group as a state machine: members, who owns which partition, and since which epoch. Pure.

 1. A heartbeat makes a member, or keeps it alive until its session ends.
 2. The target gives every member as many partitions as the others, give or take one, and
    leaves as many as possible where they are.
 3. A member is told to give up what the target gives to somebody else. A partition goes to
    its new owner only after the old one gave it up (its heartbeat no longer names it) or its
    session ended; nobody waits for all the others.
 4. Each grant has a number of its own, higher than any before: the assignment epoch. A commit
    carries it and counts only while that grant is in force, so a member that comes back late
    cannot move a position behind its successor's back.
 5. A member with an instance name that comes back takes its own partitions over at once, by
    new grants; the one before it is fenced. When it leaves, they wait for it until its
    session ends.

Time is given in seconds that only rise. The same state and request always give the same
answer, whatever process runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from virta.errors import Fenced, UsageError
from virta.topics.groups.model import HEARTBEATS_PER_SESSION, Assignment, Heartbeat

# Twice the partitions a topic can have: those beyond one for each partition only wait.
MEMBERS_LIMIT = 2000


@dataclass(slots=True)
class Member:
    instance: str | None
    session_seconds: float
    expires: float


@dataclass(frozen=True, slots=True)
class Grant:
    """That a member owns a partition."""

    member: str
    epoch: int


@dataclass(slots=True)
class GroupState:
    partitions: int
    epoch: int = 0  # rises when members come or go
    granted: int = 0  # the newest assignment epoch
    members: dict[str, Member] = field(default_factory=dict)
    owners: dict[int, Grant] = field(default_factory=dict)

    # -- what members say ---------------------------------------------------------------------

    def heartbeat(self, said: Heartbeat, now: float) -> Assignment:
        self.expire(now)
        if said.leaving:
            return self._leave(said, now)
        self._welcome(said, now)
        self._release(said)
        target = self.target()
        for partition, member in target.items():
            if member == said.member and partition not in self.owners:
                self._grant(partition, member)
        mine = {number: grant.epoch for number, grant in self.owners.items() if grant.member == said.member}
        return Assignment(
            member=said.member,
            epoch=self.epoch,
            partitions=mine,
            revoked=frozenset(number for number in mine if target[number] != said.member),
            heartbeat_seconds=said.session_seconds / HEARTBEATS_PER_SESSION,
        )

    def _welcome(self, said: Heartbeat, now: float) -> None:
        expires = now + said.session_seconds
        known = self.members.get(said.member)
        if known is not None:
            known.expires = expires
            known.session_seconds = said.session_seconds
            return
        before = self._holder_of(said.instance)
        if before is not None and not said.joining:
            raise Fenced(
                f"another reader took over the name {said.instance!r} in this group",
                hint="every reader that runs at the same time needs a name of its own",
            )
        if len(self.members) >= MEMBERS_LIMIT:
            raise UsageError(f"a group has at most {MEMBERS_LIMIT:,} members")
        self.members[said.member] = Member(said.instance, said.session_seconds, expires)
        self.epoch += 1
        if before is not None:
            del self.members[before]
            for partition in [number for number, grant in self.owners.items() if grant.member == before]:
                self._grant(partition, said.member)

    def _holder_of(self, instance: str | None) -> str | None:
        """The member that has this instance name."""
        if instance is None:
            return None
        return next((name for name, member in self.members.items() if member.instance == instance), None)

    def _release(self, said: Heartbeat) -> None:
        """What it no longer names it has given up, but for what it was granted under another epoch."""
        for partition, grant in list(self.owners.items()):
            if grant.member == said.member and said.owned.get(partition) != grant.epoch:
                del self.owners[partition]

    def _grant(self, partition: int, member: str) -> None:
        self.granted += 1
        self.owners[partition] = Grant(member, self.granted)

    def _leave(self, said: Heartbeat, now: float) -> Assignment:
        known = self.members.get(said.member)
        if known is not None and known.instance is not None:
            known.expires = now + known.session_seconds
        elif known is not None:
            self._remove(said.member)
        return Assignment(member=said.member, epoch=self.epoch, partitions={})

    def _remove(self, member: str) -> None:
        del self.members[member]
        self.epoch += 1
        for partition in [number for number, grant in self.owners.items() if grant.member == member]:
            del self.owners[partition]

    def expire(self, now: float) -> list[str]:
        """Take away members whose session is over; who they were."""
        late = [name for name, member in self.members.items() if member.expires <= now]
        for name in late:
            self._remove(name)
        return late

    def give_time(self, now: float) -> None:
        """Let every session last its full length from now on."""
        for member in self.members.values():
            member.expires = max(member.expires, now + member.session_seconds)

    def check(self, member: str, partition: int, epoch: int) -> None:
        """That a commit comes from who owns the partition now."""
        grant = self.owners.get(partition)
        if grant is None or grant.member != member or grant.epoch != epoch:
            raise Fenced(
                f"partition {partition} is no longer this reader's: the group gave it to another",
                hint="its rows since the last commit are read again by its new owner",
            )

    # -- who shall have what ----------------------------------------------------------------------

    def target(self) -> dict[int, str]:
        """Who shall own each partition: evenly, with as few moves as possible."""
        return sticky(range(self.partitions), self.members, {n: g.member for n, g in self.owners.items()})

    # -- as plain values ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return {
            "partitions": self.partitions,
            "epoch": self.epoch,
            "granted": self.granted,
            "members": {
                name: [member.instance, member.session_seconds, member.expires]
                for name, member in self.members.items()
            },
            "owners": {str(number): [grant.member, grant.epoch] for number, grant in self.owners.items()},
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> GroupState:
        return cls(
            partitions=found["partitions"],
            epoch=found["epoch"],
            granted=found["granted"],
            members={name: Member(*values) for name, values in found["members"].items()},
            owners={int(number): Grant(*values) for number, values in found["owners"].items()},
        )


def sticky(partitions: range, members: Mapping[str, Any], owners: Mapping[int, str]) -> dict[int, str]:
    """Partitions over members, as evenly as can be, each where it is if that is possible.

    Whoever has the most keeps the most, so a share that cannot be even stays where it is too.
    """
    if not members:
        return {}
    held = {name: [number for number in partitions if owners.get(number) == name] for name in members}
    ranked = sorted(members, key=lambda name: (-len(held[name]), name))
    least, more = divmod(len(partitions), len(ranked))
    room = {name: least + (place < more) for place, name in enumerate(ranked)}
    found: dict[int, str] = {}
    for name in ranked:
        for number in held[name][: room[name]]:
            found[number] = name
        room[name] -= min(room[name], len(held[name]))
    free = iter(number for number in partitions if number not in found)
    for name in ranked:
        for _ in range(room[name]):
            found[next(free)] = name
    return found
