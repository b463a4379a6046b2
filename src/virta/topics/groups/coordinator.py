"""What keeps a group together: the state machine, its store, the positions in `__offsets`, a clock.

Embedded, each process has one over the directory's store; a broker has one for all its
clients. Every call holds the group for as long as it takes, so commits and moves of
partitions are in one order, and a member whose partition moved is told so (`Fenced`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from virta.clock import Clock
from virta.errors import Conflict, UsageError
from virta.storage.layout import NAME_LIMIT_BYTES
from virta.topics.groups.model import Assignment, Commit, GroupKey, Heartbeat
from virta.topics.groups.offsets import Known, Offsets
from virta.topics.groups.state import GroupState
from virta.topics.groups.store import Document, GroupStore, Slot
from virta.types import Token


class Coordinator(Protocol):
    """What a reader of a group asks; a client's stub sends it to a broker."""

    def heartbeat(self, key: GroupKey, partitions: int, said: Heartbeat) -> Assignment:
        """Join, stay or leave; what the member has to read now."""
        ...

    def commit(self, key: GroupKey, member: str, commits: Mapping[int, Commit]) -> None:
        """Note how far the member came, if all of it is still its own; else Fenced, and nothing is noted."""
        ...

    def committed(self, key: GroupKey) -> Mapping[int, Token]:
        """Where the group stands, by partition."""
        ...

    def generation(self, key: GroupKey) -> int:
        """Another number means that a heartbeat may bring another assignment: cheap to ask."""
        ...


def check_group_name(name: str) -> None:
    if not name or len(name.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES:
        raise UsageError(f"a group's name has 1 to {NAME_LIMIT_BYTES} bytes")


class _Held:
    """A group while it is held: its state and positions, written back when something changed."""

    def __init__(self, slot: Slot, document: Document | None, partitions: int, known: Known) -> None:
        self.slot = slot
        self.known = known
        self.generation = 0 if document is None else int(document["generation"])
        if document is None:
            # a number that was given before must not be given again
            self.state = GroupState(partitions=partitions, granted=known.epoch)
        else:
            self.state = GroupState.from_dict(document["state"])

    def save(self) -> None:
        document = {
            "state": self.state.to_dict(),
            "generation": self.generation,
            "positions": {str(number): text for number, text in self.known.tokens.items()},
            "seen": self.known.seen,
            "highest_epoch": self.known.epoch,
        }
        self.slot.write(document)


class GroupCoordinator:
    def __init__(self, store: GroupStore, offsets: Offsets, clock: Clock) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock

    @contextlib.contextmanager
    def _holding(self, key: GroupKey, partitions: int) -> Iterator[_Held]:
        check_group_name(key.group)
        with self._store.holding(key) as slot:
            document = slot.read()
            known = self._offsets.catch_up(key, _known_of(document))
            yield _Held(slot, document, partitions, known)

    def heartbeat(self, key: GroupKey, partitions: int, said: Heartbeat) -> Assignment:
        with self._holding(key, partitions) as held:
            before = _standing(held.state)
            answer = held.state.heartbeat(said, self._clock.monotonic())
            if _standing(held.state) != before:
                held.generation += 1
            held.save()
            return dataclasses.replace(answer, generation=held.generation)

    def commit(self, key: GroupKey, member: str, commits: Mapping[int, Commit]) -> None:
        with self._holding(key, 0) as held:
            for partition, commit in commits.items():
                held.state.check(member, partition, commit.epoch)
            held.known = self._offsets.commit(key, held.known, commits, member)
            held.save()

    def committed(self, key: GroupKey) -> Mapping[int, Token]:
        known = self._offsets.catch_up(key, _known_of(self._store.read(key)))
        return {number: token for number in known.tokens if (token := known.token(number)) is not None}

    def generation(self, key: GroupKey) -> int:
        return self._store.generation(key)

    # -- looking after groups -------------------------------------------------------------------

    def list_keys(self) -> list[GroupKey]:
        """All groups that have members or positions."""
        return sorted({*self._store.list_keys(), *self._offsets.list_keys()})

    def state(self, key: GroupKey) -> tuple[GroupState, float]:
        """Members and owners as of now, and what time it is."""
        now = self._clock.monotonic()
        document = self._store.read(key)
        state = GroupState(partitions=0) if document is None else GroupState.from_dict(document["state"])
        state.expire(now)
        return state, now

    def set_positions(self, key: GroupKey, positions: Mapping[int, Token | None]) -> None:
        """Put a group that nobody reads somewhere else; None takes a position away."""
        with self._holding(key, 0) as held:
            self._check_quiet(key, held)
            epoch = held.state.granted
            commits = {
                number: None if token is None else Commit(token=token, epoch=epoch)
                for number, token in positions.items()
            }
            if commits:
                held.known = self._offsets.commit(key, held.known, commits, None)
            held.save()

    def remove(self, key: GroupKey) -> None:
        """Forget a group that nobody reads."""
        with self._holding(key, 0) as held:
            self._check_quiet(key, held)
            if held.known.tokens:
                self._offsets.commit(key, held.known, dict.fromkeys(held.known.tokens), None)
            held.slot.remove()

    def _check_quiet(self, key: GroupKey, held: _Held) -> None:
        held.state.expire(self._clock.monotonic())
        if held.state.members:
            raise GroupBusy(key.group, held.state.members)


class GroupBusy(Conflict):
    """A group's positions are set only while nobody reads it."""

    def __init__(self, group: str, members: Iterable[str]) -> None:
        names = sorted(members)
        super().__init__(expected=0, actual=len(names), what="number of readers")
        self.message = f"group {group!r} is being read by {', '.join(names)}"
        self.hint = "stop its readers first; one that died is forgotten when its session ends"


def _known_of(document: Document | None) -> Known:
    if document is None:
        return Known()
    tokens = {int(number): text for number, text in document["positions"].items()}
    return Known(tokens=tokens, seen=document["seen"], epoch=document["highest_epoch"])


def _standing(state: GroupState) -> tuple[int, dict[int, object]]:
    """What other members may have to hear of."""
    return state.epoch, dict(state.owners)
