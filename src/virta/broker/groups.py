"""Consumer groups for clients: the coordinator that local processes run too, over the same directory.

A broker keeps groups where the directory keeps them, and not in its memory: processes that
have the directory open may be members of the same group, and sessions, assignments and
epochs outlive a restart of the broker. The files are small and not synced, so this costs
some microseconds for a heartbeat.

Each group has one request at work at a time, in threads of its own: a local process that was
stopped while it held a group holds up that group, and nobody else.

A client that waits has a watch at the broker: it is answered when the group's generation is
another one, at once for what clients of this broker did, within LOOK_SECONDS for what local
processes did.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from virta.broker.administration import Call, Result, Verb, is_names, is_text, is_whole
from virta.broker.session import Session
from virta.errors import UsageError
from virta.protocol import connection
from virta.protocol.codes import FrameType
from virta.protocol.frames import Frame
from virta.protocol.messages import message
from virta.requests import parse_token
from virta.security.permissions import Verb as Right
from virta.storage import encode, sources
from virta.storage.block import Prepared
from virta.topics.groups.model import Commit, Failure, GroupKey, Heartbeat
from virta.topics.groups.plain import to_plain
from virta.types import Token

if TYPE_CHECKING:
    from virta.broker.service import Service

Answered = TypeVar("Answered")

# How long a change that a local process made may go unheard.
LOOK_SECONDS = 0.2
LONGEST_WATCH_SECONDS = 300.0
# Groups that are worked on at the same time; each waits for files only.
_THREADS = 8
_HASH_SIZE = 32
# Rows of one request that are read and kept with their errors.
LETTERS_LIMIT = 100


class _Turn:
    """Who is at a group, and how many want to be."""

    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class GroupService:
    """The group verbs of one broker."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = service.server.loop
        self._coordinator = service.log.coordinator
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="virta-groups")
        self._turns: dict[GroupKey, _Turn] = {}
        self._waiting: defaultdict[GroupKey, set[asyncio.Future[None]]] = defaultdict(set)
        self._generations: dict[GroupKey, int] = {}
        self._looking: asyncio.Task[None] | None = None
        self.verbs: dict[int, Callable[[Session, Frame, Any], None]] = {
            FrameType.GROUP_HEARTBEAT: self._spawning(self._heartbeat),
            FrameType.GROUP_COMMIT: self._spawning(self._commit),
            FrameType.GROUP_POSITIONS: self._spawning(self._positions),
            FrameType.GROUP_WATCH: self._spawning(self._watch),
            FrameType.GROUP_SET_ASIDE: self._spawning(self._set_aside),
        }
        # while no broker was there its clients could not be heard
        self._given_time = self._loop.create_task(self._give_time())
        service.server.keep(self._given_time)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._threads.shutdown(wait=False)

    async def _give_time(self) -> None:
        await self._loop.run_in_executor(self._threads, self._coordinator.give_time)

    @staticmethod
    def _spawning(
        work: Callable[[Session, int, Any], Coroutine[Any, Any, None]],
    ) -> Callable[[Session, Frame, Any], None]:
        def handle(session: Session, frame: Frame, header: Any) -> None:
            session.spawn(frame.channel, work(session, frame.channel, header))

        return handle

    async def _key(self, session: Session, header: Any) -> tuple[GroupKey, int]:
        """The group that is meant, if they may read its topic; and the topic's partitions."""
        found = await self._service.permitted(session, Right.CONSUME, header.topic, "group", header.topic_id)
        topic = found.topic
        key = GroupKey(group=header.group, topic=topic.name, topic_id=topic.id)
        return key, len(found.partitions)

    @contextlib.asynccontextmanager
    async def _turn(self, key: GroupKey) -> AsyncIterator[None]:
        """Nobody else of this broker is at the group."""
        if not self._given_time.done():
            await asyncio.wait([self._given_time])  # else the first to speak would find all others gone
        turn = self._turns.setdefault(key, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[key]

    async def _threaded(self, call: Callable[..., Answered], *arguments: Any) -> Answered:
        return await self._loop.run_in_executor(self._threads, call, *arguments)

    # -- members --------------------------------------------------------------------------------

    async def _heartbeat(self, session: Session, channel: int, header: Any) -> None:
        key, partitions = await self._key(session, header)
        said = Heartbeat(
            member=header.member,
            owned={each.partition: each.epoch for each in header.owned},
            instance=header.instance if header.HasField("instance") else None,
            session_seconds=header.session_seconds,
            joining=header.joining,
            leaving=header.leaving,
        )
        async with self._turn(key):
            told = await self._threaded(self._coordinator.heartbeat, key, partitions, said)
        self._heard(key, told.generation)
        answer = message("GroupAssignment")(
            epoch=told.epoch,
            revoked=sorted(told.revoked),
            generation=told.generation,
            heartbeat_seconds=told.heartbeat_seconds,
        )
        for number, epoch in sorted(told.partitions.items()):
            answer.partitions.add(partition=number, epoch=epoch)
        session.send(connection.frame(FrameType.GROUP_ASSIGNMENT, channel, answer))

    async def _commit(self, session: Session, channel: int, header: Any) -> None:
        key, _ = await self._key(session, header)
        commits = {
            each.partition: Commit(token=_token(each), epoch=each.epoch, attempts=each.attempts)
            for each in header.positions
        }
        async with self._turn(key):
            generation = await self._threaded(self._commit_now, key, header.member, commits)
        self._heard(key, generation)
        answer = message("GroupChanged")(generation=generation)
        session.send(connection.frame(FrameType.GROUP_CHANGED, channel, answer))

    def _commit_now(self, key: GroupKey, member: str, commits: dict[int, Commit]) -> int:
        self._coordinator.commit(key, member, commits)
        return self._coordinator.generation(key)

    async def _set_aside(self, session: Session, channel: int, header: Any) -> None:
        """Rows become dead letters: read here, whatever the client makes of them."""
        key, _ = await self._key(session, header)
        if len(header.letters) > LETTERS_LIMIT:
            raise UsageError(f"at most {LETTERS_LIMIT} rows are set aside at a time")
        failures = [
            Failure(
                partition=each.partition,
                epoch=each.epoch,
                offset=each.offset,
                attempts=each.attempts,
                error_type=each.error_type,
                error=each.error,
                traceback=each.traceback,
            )
            for each in header.letters
        ]
        async with self._turn(key):
            await self._threaded(self._coordinator.set_aside, key, header.member, failures)
        session.send(connection.frame(FrameType.DONE, channel))

    async def _positions(self, session: Session, channel: int, header: Any) -> None:
        key, _ = await self._key(session, header)
        found = await self._threaded(self._coordinator.positions, key)
        answer = message("GroupPositionsAnswer")()
        for number, position in sorted(found.items()):
            token = position.token
            answer.positions.add(
                partition=number, offset=token.offset, hash=token.hash, attempts=position.attempts
            )
        session.send(connection.frame(FrameType.GROUP_POSITIONS_ANSWER, channel, answer))

    # -- watching ---------------------------------------------------------------------------------

    async def _watch(self, session: Session, channel: int, header: Any) -> None:
        key, _ = await self._key(session, header)
        deadline = self._loop.time() + min(header.wait_ms / 1000, LONGEST_WATCH_SECONDS)
        while True:
            # asked for before looking, so that nothing happens unheard between the two
            change: asyncio.Future[None] = self._loop.create_future()
            self._waiting[key].add(change)
            try:
                generation = await self._threaded(self._coordinator.generation, key)
                left = deadline - self._loop.time()
                if generation != header.generation or left <= 0:
                    break
                self._generations[key] = generation
                if self._looking is None or self._looking.done():
                    self._looking = self._loop.create_task(self._look())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await change
            finally:
                self._waiting[key].discard(change)
                if not self._waiting[key]:
                    del self._waiting[key]
                    self._generations.pop(key, None)
        answer = message("GroupChanged")(generation=generation)
        session.send(connection.frame(FrameType.GROUP_CHANGED, channel, answer))

    async def _look(self) -> None:
        """Find out what local processes did to groups that somebody watches."""
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            keys = list(self._waiting)
            for key, generation in zip(keys, await self._threaded(self._look_at, keys), strict=True):
                self._heard(key, generation)

    def _look_at(self, keys: list[GroupKey]) -> list[int]:
        return [self._coordinator.generation(key) for key in keys]

    def _heard(self, key: GroupKey, generation: int) -> None:
        if self._generations.get(key, generation) == generation:
            return
        self._generations[key] = generation
        for change in self._waiting.get(key, ()):
            if not change.done():
                change.set_result(None)


def with_position(prepared: Prepared, header: Any) -> Prepared:
    """A client's block with the position in its source that it was caused by."""
    if not header.producer or not header.producer_epoch:
        raise UsageError("only a named producer's rows have a position in their source")
    if len(header.source) > sources.POSITION_LIMIT:
        raise UsageError(f"a position has at most {sources.POSITION_LIMIT} characters")
    return encode.with_source(prepared, sources.encode({header.producer: header.source}))


def _token(each: Any) -> Token:
    if len(each.hash) != _HASH_SIZE:
        raise UsageError(f"a position has a hash of {_HASH_SIZE} bytes")
    return Token(partition=each.partition, offset=each.offset, hash=each.hash)


# -- what is rare -----------------------------------------------------------------------------------


def _group(call: Call) -> Result:
    return to_plain(call.opened().group(_name(call)).describe()), b""


def _topic_groups(call: Call) -> Result:
    """The names of a topic's groups."""
    return call.opened().groups(), b""


def _groups(call: Call) -> Result:
    """All groups of topics that may be read, as they stand."""
    found = [each for each in call.log.groups() if call.may(Right.CONSUME, each.topic)]
    return [to_plain(each) for each in found], b""


def _reset_group(call: Call) -> Result:
    tokens = call.arguments.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(text, str) for text in tokens):
        raise UsageError("a group is put to a list of tokens")
    found = [parse_token(text) for text in tokens]
    call.opened().group(_name(call)).reset({token.partition: token for token in found})
    return {}, b""


def _remove_group(call: Call) -> Result:
    call.opened().group(_name(call)).remove()
    return {}, b""


def _newest_source(call: Call) -> Result:
    """How far a producer of the topic has come in its source."""
    number, producer = call.arguments.get("partition"), call.arguments.get("producer")
    if not isinstance(number, int) or not isinstance(producer, str):
        raise UsageError("a partition and a producer's number are wanted")
    try:
        found = int(producer, 16)
    except ValueError as error:
        raise UsageError(f"{producer[:40]!r} is no producer's number") from error
    return call.opened().partition(number).stored.newest_source(found), b""


def _name(call: Call) -> str:
    name = call.arguments.get("group")
    if not isinstance(name, str):
        raise UsageError("which group? its name is missing")
    return name


VERBS: dict[str, Verb] = {
    "groups": Verb(right=None, act=_groups),
    "topic_groups": Verb(right=Right.CONSUME, act=_topic_groups),
    "group": Verb(right=Right.CONSUME, act=_group, takes={"group": is_text}),
    "reset_group": Verb(
        right=Right.ADMINISTER, act=_reset_group, takes={"group": is_text, "tokens": is_names}
    ),
    "remove_group": Verb(right=Right.ADMINISTER, act=_remove_group, takes={"group": is_text}),
    "newest_source": Verb(
        right=Right.PRODUCE, act=_newest_source, takes={"partition": is_whole, "producer": is_text}
    ),
}
