"""What keeps a group together: the state machine, its store, the positions in `__offsets`, a clock.

Embedded, each process has one over the directory's store; a broker has one for all its
clients. Every call holds the group for as long as it takes, so commits and moves of
partitions are in one order, and a member whose partition moved is told so (`Fenced`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from virta.clock import Clock
from virta.errors import Conflict, UsageError
from virta.storage.layout import NAME_LIMIT_BYTES
from virta.topics.groups.letters import DeadLetterBox
from virta.topics.groups.model import Assignment, Commit, Failure, GroupKey, Heartbeat, Position
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

    def positions(self, key: GroupKey) -> Mapping[int, Position]:
        """Where the group stands, by partition."""
        ...

    def generation(self, key: GroupKey) -> int:
        """Another number means that a heartbeat may bring another assignment: cheap to ask."""
        ...

    def set_aside(self, key: GroupKey, member: str, failures: Sequence[Failure]) -> None:
        """Put rows of the member's own partitions among the dead letters; else Fenced."""
        ...

    def pause_seconds(self, most: float) -> float:
        """How long a reader without rows may wait before it looks at the generation again."""
        ...

    def watched(self, key: GroupKey, generation: int) -> Sequence[tuple[Any, int]]:
        """What to wait for beside rows, so that a change of the group is heard of at once."""
        ...


# How long a reader in a directory waits for rows before it looks whether the group has changed.
PAUSE_SECONDS = 0.2
SHORTEST_SESSION_SECONDS, LONGEST_SESSION_SECONDS = 0.3, 24 * 3600.0


def check_group_name(name: str) -> None:
    if not name or len(name.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES:
        raise UsageError(f"a group's name has 1 to {NAME_LIMIT_BYTES} bytes")


def check_session(seconds: float) -> None:
    if not (math.isfinite(seconds) and SHORTEST_SESSION_SECONDS <= seconds <= LONGEST_SESSION_SECONDS):
        raise UsageError(
            f"a session lasts between {SHORTEST_SESSION_SECONDS:g} seconds and a day, not {seconds:g} seconds"
        )


def _check_heartbeat(said: Heartbeat) -> None:
    check_session(said.session_seconds)
    for name in (said.member, said.instance):
        if name is not None and not 0 < len(name.encode("utf-8", "surrogatepass")) <= 2 * NAME_LIMIT_BYTES:
            raise UsageError(f"a member's name has 1 to {NAME_LIMIT_BYTES} bytes")


class _Held:
    """A group while it is held: its state and positions, written back when something changed."""

    def __init__(self, slot: Slot, document: Document | None, partitions: int, known: Known) -> None:
        self.slot = slot
        self.known = known
        self.generation = 0 if document is None else int(document["generation"])
        self.attempts: dict[int, list[int]] = {}  # partition → offset, how often its row failed
        if document is None:
            # a number that was given before must not be given again
            self.state = GroupState(partitions=partitions, granted=known.epoch)
        else:
            self.state = GroupState.from_dict(document["state"])
            # one that only looked at the group may have made it, without knowing the topic
            self.state.partitions = max(self.state.partitions, partitions)
            self.attempts = {int(number): pair for number, pair in document.get("attempts", {}).items()}

    def save(self) -> None:
        document = {
            "state": self.state.to_dict(),
            "generation": self.generation,
            "positions": {str(number): text for number, text in self.known.tokens.items()},
            "seen": self.known.seen,
            "highest_epoch": self.known.epoch,
            "attempts": {str(number): pair for number, pair in self.attempts.items()},
        }
        self.slot.write(document)


class GroupCoordinator:
    def __init__(self, store: GroupStore, offsets: Offsets, clock: Clock, letters: DeadLetterBox) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._letters = letters

    @contextlib.contextmanager
    def _holding(self, key: GroupKey, partitions: int) -> Iterator[_Held]:
        check_group_name(key.group)
        with self._store.holding(key) as slot:
            document = slot.read()
            known = self._offsets.catch_up(key, _known_of(document))
            yield _Held(slot, document, partitions, known)

    def heartbeat(self, key: GroupKey, partitions: int, said: Heartbeat) -> Assignment:
        _check_heartbeat(said)
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
                if commit.token.partition != partition:
                    raise UsageError(f"a token of partition {commit.token.partition} is none of {partition}")
            held.known = self._offsets.commit(key, held.known, commits, member)
            for partition, commit in commits.items():
                held.attempts.pop(partition, None)
                if commit.attempts:
                    held.attempts[partition] = [commit.token.offset, commit.attempts]
            held.save()

    def set_aside(self, key: GroupKey, member: str, failures: Sequence[Failure]) -> None:
        with self._holding(key, 0) as held:
            for failure in failures:
                held.state.check(member, failure.partition, failure.epoch)
        self._letters.put(key, member, failures)

    def positions(self, key: GroupKey) -> Mapping[int, Position]:
        document = self._store.read(key)
        known = self._offsets.catch_up(key, _known_of(document))
        attempts = {} if document is None else document.get("attempts", {})
        found = {}
        for number in known.tokens:
            token = known.token(number)
            if token is not None:
                offset, failed = attempts.get(str(number), (-1, 0))
                found[number] = Position(token=token, attempts=failed if offset == token.offset else 0)
        return found

    def generation(self, key: GroupKey) -> int:
        return self._store.generation(key)

    def pause_seconds(self, most: float) -> float:
        return min(most, PAUSE_SECONDS)

    def watched(self, key: GroupKey, generation: int) -> Sequence[tuple[Any, int]]:  # noqa: ARG002
        return ()

    def give_time(self) -> None:
        """Have every session last its full length from now on: those who could not be heard are not gone."""
        for key in self._store.list_keys():
            with self._holding(key, 0) as held:
                if held.state.members:
                    held.state.give_time(self._clock.monotonic())
                    held.save()

    # -- looking after groups -------------------------------------------------------------------

    def open_topic(self, name: str) -> Any:
        """Another topic of the log: dead letters lie beside their topic."""
        return self._letters.open_topic(name)

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
