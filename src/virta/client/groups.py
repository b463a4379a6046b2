"""Groups of a topic at a broker: the coordinator's interface, asked over the wire.

Readers are the embedded ones. What differs is how they hear that the group has changed: the
answers to heartbeats and commits tell the group's generation, and a reader that waits for
rows has a watch at the broker, a request that is answered when there is another one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from virta.client.catalog import RemoteCatalog
from virta.client.partition import RemotePartition
from virta.client.wire import Pending, Wire
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.topics.groups.group import Group
from virta.topics.groups.letters import ERROR_CHARACTERS, NAME_CHARACTERS, TRACEBACK_CHARACTERS
from virta.topics.groups.model import (
    Assignment,
    Commit,
    Failure,
    GroupDescription,
    GroupKey,
    Heartbeat,
    Position,
)
from virta.topics.groups.plain import from_plain
from virta.types import Token

# A watch is asked for anew after so long, so that a broker need not remember it for ever.
_WATCH_SECONDS = 60.0
# A reader commits and looks at the group in one step: what the commit's answer told need not be asked.
_FRESH_SECONDS = 0.005

Answer = Callable[[BaseException | None], None]


class _Watch:
    """What one connection knows of a group's generation, and who wants to hear of another one.

    Its lock is never held while something is asked: whoever reads the connection may call
    `_answered` with the connection's own locks in hand.
    """

    def __init__(self, wire: Wire, key: GroupKey) -> None:
        self._wire = wire
        self._key = key
        self._lock = threading.Lock()
        self._pending: Pending | None = None
        self._taking = False
        self._waiting: dict[Answer, int] = {}
        self._told_at = 0.0
        self.generation = -1

    def current(self) -> int:
        """The generation of now: asked for, unless a commit's answer told it a moment ago."""
        if time.monotonic() - self._told_at > _FRESH_SECONDS:
            answer = self._wire.call(FrameType.GROUP_WATCH, _about(self._key, "GroupWatch"))[1]
            self.note(answer.generation)
        self._told_at = 0.0  # it counts for one look
        return self.generation

    def note(self, generation: int, *, by_commit: bool = False) -> None:
        """An answer told it."""
        self._told_at = time.monotonic() if by_commit else 0.0
        if generation != self.generation:
            self.generation = generation
            self.stop()
            self._tell(None)

    def _take(self) -> None:
        """Take the broker's answer if it has come, and have a watch stand there again."""
        with self._lock:
            pending = self._pending
            if self._taking or (pending is not None and not pending.is_ready):
                return
            self._taking = True
        try:
            if pending is not None:
                self._pending = None
                self.generation = self._wire.finish(pending)[1].generation
            header = _about(self._key, "GroupWatch")
            header.generation, header.wait_ms = max(0, self.generation), int(_WATCH_SECONDS * 1000)
            self._pending = self._wire.post(FrameType.GROUP_WATCH, header)
        finally:
            self._taking = False

    def when_changed(self, generation: int, answer: Answer) -> Callable[[], None]:
        """Have somebody told once the generation is another one; gives how to stop that."""
        with self._lock:
            self._waiting[answer] = generation
        self._answered()

        def stop() -> None:
            with self._lock:
                self._waiting.pop(answer, None)
                pending = None if self._waiting else self._pending
            if pending is not None:
                self._wire.call_nobody(pending)

        return stop

    def _answered(self) -> None:
        """An answer may be there: take it, tell whom it concerns, and wait on for the others."""
        error: BaseException | None = None
        try:
            self._take()
        except Exception as caught:
            error = caught
        self._tell(error)
        with self._lock:
            pending = self._pending if self._waiting else None
        if pending is not None:
            self._wire.when_answered(pending, self._answered)

    def _tell(self, error: BaseException | None) -> None:
        """Answer those who know another generation; with an error, everybody."""
        with self._lock:
            told = [
                answer
                for answer, known in self._waiting.items()
                if error is not None or known != self.generation
            ]
            for answer in told:
                del self._waiting[answer]
        for answer in told:
            answer(error)

    def stop(self) -> None:
        """Have the broker forget the watch; it is asked for anew when it is needed."""
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            self._wire.give_up(pending)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)


class RemoteCoordinator:
    """What a reader of a group asks, answered by the broker."""

    def __init__(self, catalog: RemoteCatalog, open_topic: Callable[[str], Any]) -> None:
        self._catalog = catalog
        self.open_topic = open_topic
        self._wire = catalog.wire
        self._lock = threading.Lock()
        self._watches: dict[GroupKey, _Watch] = {}

    def _watch(self, key: GroupKey) -> _Watch:
        with self._lock:
            return self._watches.setdefault(key, _Watch(self._wire, key))

    # -- members --------------------------------------------------------------------------------

    def heartbeat(self, key: GroupKey, partitions: int, said: Heartbeat) -> Assignment:  # noqa: ARG002
        header = _about(key, "GroupHeartbeat")
        header.member, header.session_seconds = said.member, said.session_seconds
        if said.instance is not None:
            header.instance = said.instance
        if said.joining:
            header.joining = True
        if said.leaving:
            header.leaving = True
        for number, epoch in said.owned.items():
            header.owned.add(partition=number, epoch=epoch)
        answer = self._wire.call(FrameType.GROUP_HEARTBEAT, header)[1]
        watch = self._watch(key)
        if said.leaving and not watch.is_waited_for:
            watch.stop()
        elif not said.leaving:
            watch.note(answer.generation)
        return Assignment(
            member=said.member,
            epoch=answer.epoch,
            partitions={each.partition: each.epoch for each in answer.partitions},
            revoked=frozenset(answer.revoked),
            generation=answer.generation,
            heartbeat_seconds=answer.heartbeat_seconds,
        )

    def commit(self, key: GroupKey, member: str, commits: Mapping[int, Commit]) -> None:
        header = _about(key, "GroupCommit")
        header.member = member
        for number, commit in commits.items():
            added = header.positions.add(
                partition=number, epoch=commit.epoch, offset=commit.token.offset, hash=commit.token.hash
            )
            if commit.attempts:
                added.attempts = commit.attempts
        answer = self._wire.call(FrameType.GROUP_COMMIT, header)[1]
        self._watch(key).note(answer.generation, by_commit=True)

    def set_aside(self, key: GroupKey, member: str, failures: Sequence[Failure]) -> None:
        header = _about(key, "GroupSetAside")
        header.member = member
        for each in failures:
            header.letters.add(
                partition=each.partition,
                epoch=each.epoch,
                offset=each.offset,
                attempts=each.attempts,
                error_type=_sendable(each.error_type)[:NAME_CHARACTERS],
                error=_sendable(each.error)[:ERROR_CHARACTERS],
                traceback=_sendable(each.traceback)[-TRACEBACK_CHARACTERS:],
            )
        self._wire.call(FrameType.GROUP_SET_ASIDE, header)

    def positions(self, key: GroupKey) -> Mapping[int, Position]:
        answer = self._wire.call(FrameType.GROUP_POSITIONS, _about(key, "GroupPositions"))[1]
        return {
            each.partition: Position(
                token=Token(partition=each.partition, offset=each.offset, hash=each.hash),
                attempts=each.attempts,
            )
            for each in answer.positions
        }

    # -- changes of the group ---------------------------------------------------------------------

    def generation(self, key: GroupKey) -> int:
        return self._watch(key).current()

    def pause_seconds(self, most: float) -> float:
        return most

    def watched(self, key: GroupKey, generation: int) -> Sequence[tuple[Any, int]]:
        return [(_Watched(self._watch(key)), generation)]

    # -- looking after groups -----------------------------------------------------------------------

    def list_keys(self) -> list[GroupKey]:
        raise NotImplementedError("a broker is asked for the groups of a topic, or for all as they stand")

    def names(self, topic: str, topic_id: str) -> list[str]:
        """The groups of a topic."""
        return list(self._catalog.administer("topic_groups", topic, topic_id=bytes.fromhex(topic_id))[0])

    def describe_all(self) -> list[GroupDescription]:
        return [from_plain(each) for each in self._catalog.administer("groups")[0]]

    def describe(self, key: GroupKey) -> GroupDescription:
        return from_plain(self._ask("group", key))

    def set_positions(self, key: GroupKey, positions: Mapping[int, Token | None]) -> None:
        tokens = [str(token) for token in positions.values() if token is not None]
        self._ask("reset_group", key, tokens=tokens)

    def remove(self, key: GroupKey) -> None:
        self._ask("remove_group", key)

    def _ask(self, verb: str, key: GroupKey, **arguments: Any) -> Any:
        return self._catalog.administer(
            verb,
            key.topic,
            topic_id=bytes.fromhex(key.topic_id),
            arguments={"group": key.group, **arguments},
        )[0]


class _Watched:
    """Stands beside partitions in a wait: what it waits for is another generation of the group."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch

    def when_there(self, generation: int, answer: Answer) -> Callable[[], None]:
        return self._watch.when_changed(generation, answer)

    def wait(self, generation: int, timeout: float | None) -> bool:
        """For a reader that has no partition."""
        return RemotePartition.wait_with_others([(self, generation)], timeout)  # type: ignore[list-item]


class RemoteGroup(Group):
    """One group on one topic at a broker."""

    _coordinator: RemoteCoordinator  # type: ignore[assignment]

    def describe(self) -> GroupDescription:
        """Members, positions and lag; NotFound when nobody has read or committed under this name."""
        return self._coordinator.describe(self._key)

    def remove(self) -> None:
        """Forget the group; refused while somebody reads."""
        self._coordinator.remove(self._key)


def _sendable(text: str) -> str:
    """Texts on the wire are UTF-8; what is none of it shows as what it is."""
    return text.encode("utf-8", "backslashreplace").decode()


def _about(key: GroupKey, name: str) -> Any:
    return message(name)(group=key.group, topic=key.topic, topic_id=bytes.fromhex(key.topic_id))
