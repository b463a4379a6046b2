"""What each verb does. Called in the event loop; nothing here waits but in tasks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from virta.broker import administration, reading
from virta.broker.changes import Following
from virta.broker.desk import Desk, Order, TopicDesk
from virta.broker.groups import VERBS as GROUP_VERBS
from virta.broker.groups import GroupService, with_position
from virta.broker.reading import Found, Place
from virta.broker.session import Credit, Session
from virta.errors import NotFound, UsageError, VirtaError
from virta.log import Log
from virta.metadata.internal import check_not_internal
from virta.protocol import codes, connection, failures
from virta.protocol.codes import FrameType
from virta.protocol.frames import Frame, encode
from virta.protocol.messages import message
from virta.security.permissions import Verb as Right
from virta.storage.commit import Append, RowsAlreadyThere, TopicChanged
from virta.types import Token

if TYPE_CHECKING:
    from virta.broker.server import Server

Answered = TypeVar("Answered")

# A wait that is asked for without an end is looked at again after this time.
LONGEST_WAIT_SECONDS = 300.0
# Queries a connection may run again; each holds on to the rows of its moment.
QUERY_LIMIT = 32
# Arrow that is made for a client at a time, before it is asked whether there is room for more.
_ROWS_BYTES = 1024 * 1024
_DURABILITY = {name: number for number, name in enumerate(codes.DURABILITIES)}
# A step through rows that nobody waits for any more is waited for, looking so often.
_STEP_SECONDS = 0.02
_END: Any = object()


class Service:
    """The verbs, over one log."""

    def __init__(self, server: Server, log: Log, threads: Executor) -> None:
        self.server = server
        self.log = log
        self._threads = threads
        self._desks: dict[str, TopicDesk] = {}
        self._opening: dict[str, asyncio.Future[TopicDesk]] = {}
        self._verbs: dict[int, Callable[[Session, Frame, Any], None]] = {
            FrameType.APPEND: self._append,
            FrameType.FETCH: self._poll,
            FrameType.FETCH_BATCH: self._poll,
            FrameType.POLL: self._poll,
            FrameType.LONG_POLL: self._long_poll,
            FrameType.STREAM: self._stream,
            FrameType.POSITIONS: self._positions,
            FrameType.LOCATE: self._locate,
            FrameType.CLAIM: self._claim,
            FrameType.SELECT: self._select,
            FrameType.QUERY: self._query,
            FrameType.ADMINISTER: self._administer,
        }
        self._groups = GroupService(self)
        self._verbs |= self._groups.verbs

    def handle(self, session: Session, frame: Frame, header: Any) -> None:
        self._verbs[frame.type](session, frame, header)

    def decide(self, session: Session, right: Right, topic: str | None, action: str = "read") -> None:
        """Denied unless they may. Whether a topic is publicly writable is known once it is open."""
        assert session.seat is not None
        public = False if topic is None else self._is_public(topic)
        session.seat.check(right, topic, action=action, publicly_writable=public)

    def _is_public(self, topic: str) -> bool:
        known = self._desks.get(topic)
        return known is not None and known.schemas.record.config.public_write

    async def permitted(
        self, session: Session, right: Right, name: str, action: str, topic_id: bytes = b""
    ) -> TopicDesk:
        """The topic, if they may; only who may is told that there is none of that name."""
        try:
            topic = await self.topic(name, topic_id)
        except NotFound:
            self.decide(session, right, name, action)
            raise
        self.decide(session, right, name, action)
        return topic

    async def _check_sees(self, session: Session, name: str, action: str) -> None:
        """That a topic may be looked at: by whoever may do anything with it."""
        assert session.seat is not None
        if not session.seat.may_see(name):
            with contextlib.suppress(NotFound):
                await self.topic(name)
            if not self._is_public(name):
                self.decide(session, Right.CONSUME, name, action)

    async def threaded(self, call: Callable[..., Answered], *arguments: Any, **named: Any) -> Answered:
        """What a call gives that may have to wait for files or other processes."""
        work = functools.partial(call, *arguments, **named)
        return await self.server.loop.run_in_executor(self._threads, work)

    # -- topics -------------------------------------------------------------------------------

    def desk_at_hand(self, header: Any) -> Desk | None:
        """The partition a request means, if its topic is open already."""
        found = self._desks.get(header.topic)
        if found is None or (header.topic_id and header.topic_id != found.id):
            return None
        return self._partition(found, header.partition)

    @staticmethod
    def _partition(topic: TopicDesk, number: int) -> Desk:
        if not 0 <= number < len(topic.partitions):
            raise NotFound(
                f"topic {topic.topic.name!r} has no partition {number}",
                hint=f"its partitions are 0 to {len(topic.partitions) - 1}",
            )
        return topic.partitions[number]

    async def desk(self, header: Any) -> Desk:
        at_hand = self.desk_at_hand(header)
        if at_hand is not None:
            return at_hand
        return self._partition(await self.topic(header.topic, header.topic_id), header.partition)

    async def topic(self, name: str, topic_id: bytes = b"") -> TopicDesk:
        """The topic as it is now, opened if it is not."""
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = asyncio.ensure_future(self._open(name))
            opening.add_done_callback(functools.partial(self._opened, name))
        found = await asyncio.shield(opening)
        if topic_id and found.id != topic_id:
            raise NotFound(
                f"topic {name!r} was dropped and made again: it is another topic now",
                hint="get it with log.topic() again",
            )
        return found

    def _opened(self, name: str, opening: asyncio.Future[TopicDesk]) -> None:
        self._opening.pop(name, None)
        if not opening.cancelled():
            opening.exception()  # looked at, since whoever asked may be gone

    async def _open(self, name: str) -> TopicDesk:
        topic = await self.threaded(self.log.topic, name)
        known = self._desks.get(name)
        if known is not None and known.topic is topic:
            return known
        made = TopicDesk(topic, self.server.loop, self._threads)
        if known is not None:
            self._close_desk(known)
        self._desks[name] = made
        return made

    def forget(self, name: str) -> None:
        """The topic is gone, or another one."""
        known = self._desks.pop(name, None)
        if known is not None:
            self._close_desk(known)

    @staticmethod
    def _close_desk(topic: TopicDesk) -> None:
        for desk in topic.partitions:
            desk.close()

    @property
    def is_idle(self) -> bool:
        return all(desk.is_idle for topic in self._desks.values() for desk in topic.partitions)

    def close(self) -> None:
        self._groups.close()
        for name in list(self._desks):
            self.forget(name)

    # -- producing ------------------------------------------------------------------------------

    def _append(self, session: Session, frame: Frame, header: Any) -> None:
        check_not_internal(header.topic, "appended to")
        desk = self.desk_at_hand(header)
        if desk is None:
            # what comes behind it keeps its place
            session.hold(self._open_first(session, frame, header))
            return
        self.decide(session, Right.PRODUCE, header.topic, "append")
        channel, acks = frame.channel, header.acks
        try:
            prepared = desk.topic.intake.take(frame.body, header.topic_version)
            if header.HasField("source"):
                prepared = with_position(prepared, header)
        except TopicChanged:
            self._refuse_version(session, channel)
            return
        except VirtaError as error:
            session.fail(channel, error)
            return
        append = Append(
            prepared,
            header.topic_version,
            expected_offset=header.expected_offset if header.HasField("expected_offset") else None,
            producer=header.producer,
            producer_epoch=header.producer_epoch,
            sequence=header.sequence,
        )
        size, tally, began_at = prepared.size, self.server.tally, self.server.now()
        if self.server.is_alone and desk.commit_at_once(append):
            tally.answered(session.name, FrameType.APPEND, header.topic, self.server.now() - began_at)
            self._appended(session, channel, acks, desk, append)
            return
        session.appending_bytes += size

        def answer(done: Append) -> None:
            session.appending_bytes -= size
            tally.answered(session.name, FrameType.APPEND, header.topic, self.server.now() - began_at)
            self._appended(session, channel, acks, desk, done)

        if desk.take(Order(append, answer)):
            self.server.gathered(desk)

    async def _open_first(self, session: Session, frame: Frame, header: Any) -> None:
        try:
            await self.permitted(session, Right.PRODUCE, header.topic, "append", header.topic_id)
        except Exception as error:
            session.fail(frame.channel, error)
            return
        session.put_back(frame)

    @staticmethod
    def _refuse_version(session: Session, channel: int) -> None:
        text = "the topic has another version than the one the rows were encoded for"
        answer = failures.plain(codes.TOPIC_CHANGED, "topic_changed", text)
        session.send(connection.frame(FrameType.ERROR, channel, answer))

    def _appended(self, session: Session, channel: int, acks: int, desk: Desk, done: Append) -> None:
        error = done.error
        if error is not None:
            if isinstance(error, TopicChanged):
                self.server.keep(self.server.loop.create_task(self._follow(session, channel, desk)))
            elif isinstance(error, RowsAlreadyThere):
                answer = failures.plain(
                    codes.ROWS_ALREADY_THERE,
                    "rows_already_there",
                    "some of these rows were appended before",
                    rows=error.rows,
                )
                session.send(connection.frame(FrameType.ERROR, channel, answer))
            else:
                session.fail(channel, error)
        elif acks != codes.ACKS_NONE:
            if done.block is None:
                self.server.keep(
                    self.server.loop.create_task(self._acknowledge_again(session, channel, acks, desk, done))
                )
                return
            header = done.block.header
            self._acknowledge(session, channel, acks, desk, header.base_offset, header.rows, header.hash)
        session.go_on()

    def _acknowledge(
        self,
        session: Session,
        channel: int,
        acks: int,
        desk: Desk,
        base_offset: int,
        rows: int,
        hash_: bytes,
        *,
        duplicate: bool = False,
    ) -> None:
        answer = message("Appended")(base_offset=base_offset, rows=rows, hash=hash_)
        if duplicate:
            answer.duplicate = True
        header = answer.SerializeToString() + _reached(desk.topic.schemas.record.config.durability, acks)
        session.send([encode(FrameType.APPENDED, channel, header)])

    async def _acknowledge_again(
        self, session: Session, channel: int, acks: int, desk: Desk, done: Append
    ) -> None:
        """The rows were there already: say where, if that can still be found."""
        try:
            found = await self.threaded(desk.find_sequence, done.producer, done.sequence)
            if found is not None and found.rows == done.prepared.rows:
                place = found.base_offset, found.rows, found.hash
            else:
                place = await self.threaded(lambda: (desk.stored.next_offset, 0, desk.stored.head))
        except VirtaError as error:
            session.fail(channel, error)
        else:
            self._acknowledge(session, channel, acks, desk, *place, duplicate=True)
        session.go_on()

    async def _follow(self, session: Session, channel: int, desk: Desk) -> None:
        """The topic was changed: take that in, and let the client prepare its rows anew."""
        try:
            await self.threaded(administration.follow, desk)
        except VirtaError as error:
            session.fail(channel, error)
        else:
            self._refuse_version(session, channel)

    def _claim(self, session: Session, frame: Frame, header: Any) -> None:
        session.spawn(frame.channel, self._claimed(session, frame.channel, header))

    async def _claimed(self, session: Session, channel: int, header: Any) -> None:
        topic = await self.permitted(session, Right.PRODUCE, header.topic, "claim")
        desk = self._partition(topic, header.partition)
        number, epoch, count = await self.threaded(administration.claim, desk.stored, header.name)
        answer = message("Claimed")(producer=number, epoch=epoch, sequence=count)
        session.send(connection.frame(FrameType.CLAIMED, channel, answer))

    # -- reading --------------------------------------------------------------------------------

    def _poll(self, session: Session, frame: Frame, header: Any) -> None:
        self.decide(session, Right.CONSUME, header.topic)
        if frame.type == FrameType.FETCH:
            header.max_bytes = 1  # one block, whatever its size
        desk = self.desk_at_hand(header)
        place = _place(header)
        most = _most(session, header)
        if desk is not None and not header.HasField("end"):
            found = reading.read_from_memory(desk, place, most)
            if found is not None:
                session.send(reading.blocks_frame(desk, frame.channel, found))
                return
        session.spawn(frame.channel, self._polled(session, frame.channel, header))

    async def _polled(self, session: Session, channel: int, header: Any) -> None:
        desk = await self.desk(header)
        end = header.end if header.HasField("end") else None
        async with session.answering():
            found = await self.threaded(
                reading.read_from_files, desk, _place(header), _most(session, header), end
            )
            found = Found(blocks=reading.within(found.blocks, end), next_offset=found.next_offset)
            session.send(reading.blocks_frame(desk, channel, found))

    def _long_poll(self, session: Session, frame: Frame, header: Any) -> None:
        self.decide(session, Right.CONSUME, header.topic)
        desk = self.desk_at_hand(header)
        if desk is not None:
            found = reading.read_from_memory(desk, _place(header), _most(session, header))
            if found is not None:
                session.send(reading.blocks_frame(desk, frame.channel, found))
                return
        session.spawn(frame.channel, self._long_polled(session, frame.channel, header))

    async def _long_polled(self, session: Session, channel: int, header: Any) -> None:
        desk = await self.desk(header)
        place, most = _place(header), _most(session, header)
        seconds = header.wait_ms / 1000 if header.HasField("wait_ms") else LONGEST_WAIT_SECONDS
        deadline = self.server.loop.time() + min(seconds, LONGEST_WAIT_SECONDS)
        while True:
            # asked for before looking, so that nothing comes unheard between the two
            arrival = desk.arrival()
            try:
                async with session.answering():
                    found = await self._look(desk, place, most, None)
                    left = deadline - self.server.loop.time()
                    if found.blocks or left <= 0:
                        self.decide(session, Right.CONSUME, header.topic)
                        session.send(reading.blocks_frame(desk, channel, found))
                        return
                desk.watch(place.offset)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await arrival
            finally:
                arrival.cancel()

    async def _look(self, desk: Desk, place: Place, max_bytes: int, end: int | None) -> Found:
        """What is there for a place."""
        found = reading.read_from_memory(desk, place, max_bytes)
        if found is not None:
            return found
        if desk.is_watched and reading.is_at_end(desk, place):
            return Found(blocks=[], next_offset=place.offset)  # else it would have been heard of
        return await self.threaded(reading.read_from_files, desk, place, max_bytes, end)

    def _stream(self, session: Session, frame: Frame, header: Any) -> None:
        self.decide(session, Right.CONSUME, header.topic)
        session.credit[frame.channel] = Credit(header.credit)
        session.spawn(frame.channel, self._streamed(session, frame.channel, header))

    async def _streamed(self, session: Session, channel: int, header: Any) -> None:
        desk = await self.desk(header)
        credit = session.credit[channel]
        place = _place(header)
        end = header.end if header.HasField("end") else None
        last = end is not None and place.offset >= end
        sent = not last
        arrival: asyncio.Future[None] | None = None
        try:
            while not last:
                allowed = min(await credit.some(), reading.ANSWER_BYTES, session.limit // 2)
                if arrival is None and reading.is_at_end(desk, place):
                    # asked for before looking, so that nothing comes unheard between the two
                    arrival = desk.arrival()
                async with session.answering():
                    found = await self._look(desk, place, allowed, end)
                    if found.blocks:
                        # a stream outlasts many a permission
                        self.decide(session, Right.CONSUME, header.topic)
                        newest = found.blocks[-1].header
                        place = Place(offset=newest.end_offset, hash=newest.hash)
                        last = end is not None and place.offset >= end
                        found = Found(blocks=reading.within(found.blocks, end), next_offset=found.next_offset)
                        parts = reading.blocks_frame(desk, channel, found, last=last)
                        session.send(parts)
                        credit.take(sum(map(len, parts)))
                        continue
                if arrival is None:
                    arrival = desk.arrival()  # and look once more
                    continue
                desk.watch(place.offset)
                await arrival
                arrival = None
        finally:
            if arrival is not None:
                arrival.cancel()
        if not sent:
            session.send(connection.frame(FrameType.BLOCKS, channel, message("Blocks")(count=0, last=True)))

    # -- columns and filters ---------------------------------------------------------------------

    def _select(self, session: Session, frame: Frame, header: Any) -> None:
        self.decide(session, Right.CONSUME, header.topic)
        session.credit[frame.channel] = Credit(header.credit)
        work = self._changed if header.changes else self._selected
        session.spawn(frame.channel, work(session, frame.channel, header))

    async def _selected(self, session: Session, channel: int, header: Any) -> None:
        desk = await self.desk(header)
        selection = await self.threaded(_table if header.table else _selection, desk, header)
        if header.count:
            rows = await self.threaded(selection.count)
            answer = message("Rows")(rows=rows, last=True)
            session.send(connection.frame(FrameType.ROWS, channel, answer))
            return
        await self._send_rows(session, channel, selection.schema, selection.batches())

    async def _changed(self, session: Session, channel: int, header: Any) -> None:
        """What happened to a table up to now; the state is kept for who asks what came after."""
        desk = await self.desk(header)
        known = session.queries.pop(header.handle, None) if header.HasField("handle") else None
        if isinstance(known, Following) and known.offset == header.start:
            following = known
        else:
            following = await self.threaded(Following, desk, header)
        batches = following.batches()
        try:
            first = await self.threaded(next, batches, None)
            whole = batches if first is None else itertools.chain((first,), batches)
            schema = following.schema if first is None else first.schema
            self._remember(session, channel, following)
            await self._send_rows(
                session, channel, schema, whole, ending=lambda: following.ending(handle=channel)
            )
        except BaseException:
            session.queries.pop(channel, None)  # it stands somewhere between
            raise
        finally:
            await self._end(batches)

    async def _end(self, batches: Generator[pa.RecordBatch]) -> None:
        """Close what rows come from. A thread may still be in it, whose caller was cancelled."""
        while True:
            try:
                return await self.threaded(batches.close)
            except ValueError:  # it is being stepped
                await asyncio.sleep(_STEP_SECONDS)

    @staticmethod
    def _remember(session: Session, handle: int, what: Any) -> None:
        if len(session.queries) >= QUERY_LIMIT:
            session.queries.pop(next(iter(session.queries)))
        session.queries[handle] = what

    async def _send_rows(
        self,
        session: Session,
        channel: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        *,
        ending: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """Arrow messages, as far as the client has given credit: the schema first, then the batches."""
        credit = session.credit[channel]
        encoding = _Encoding(schema)
        following = functools.partial(_encode_some, encoding, batches)
        while True:
            await credit.some()
            async with session.answering():
                rows, body = await self.threaded(following)
                last = rows is _END
                answer = message("Rows")(rows=0 if last else rows, last=last, **(ending() if last else {}))
                parts = connection.frame(FrameType.ROWS, channel, answer, body)
                session.send(parts)
                credit.take(sum(map(len, parts)))
            if last:
                return

    def _query(self, session: Session, frame: Frame, header: Any) -> None:
        if header.forget:
            session.queries.pop(header.handle, None)
            session.send(connection.frame(FrameType.DONE, frame.channel))
        elif header.HasField("handle"):
            session.credit[frame.channel] = Credit(header.credit)
            session.spawn(frame.channel, self._run_query(session, frame.channel, header.handle))
        else:
            session.spawn(frame.channel, self._prepare_query(session, frame.channel, header))

    async def _prepare_query(self, session: Session, channel: int, header: Any) -> None:
        """Fix the topics of a query to their rows of now; it is run as often as it is asked for."""
        from virta.query.names import mentioned

        assert session.seat is not None
        # even a query without topics is work
        session.seat.check_any(Right.CONSUME, action="query")
        known = await self.threaded(self.log._catalog.names)
        for name in mentioned(header.sql, known):
            self.decide(session, Right.CONSUME, name, "query")
        parameters = administration.parse_json(header.parameters, "parameters") if header.parameters else None
        if not isinstance(parameters, list | dict | None):
            raise UsageError("the parameters of a query are a list or an object")
        result = await self.threaded(self.log.sql, header.sql, parameters)
        self._remember(session, channel, result)
        answer = message("Rows")(rows=0, last=True, handle=channel, columns=result.columns)
        session.send(connection.frame(FrameType.ROWS, channel, answer))

    async def _run_query(self, session: Session, channel: int, handle: int) -> None:
        result = session.queries.get(handle)
        if result is None or isinstance(result, Following):
            raise NotFound("the query is not known any more", hint="ask it again")
        batches = result.batches()
        try:
            # the schema is known when the first rows are there
            first = await self.threaded(next, batches, None)
            schema = await self.threaded(lambda: result.schema)
            whole = batches if first is None else itertools.chain((first,), batches)
            await self._send_rows(session, channel, schema, whole)
        except asyncio.CancelledError:
            result.cancel()
            raise
        finally:
            await self._end(batches)

    # -- where things stand ---------------------------------------------------------------------------

    def _positions(self, session: Session, frame: Frame, header: Any) -> None:
        session.spawn(frame.channel, self._positioned(session, frame.channel, header))

    async def _positioned(self, session: Session, channel: int, header: Any) -> None:
        # a producer has to know where it stands
        await self._check_sees(session, header.topic, "positions")
        desk = await self.desk(header)
        answer = await self.threaded(_positions_of, desk)
        session.send(connection.frame(FrameType.POSITIONS_ANSWER, channel, answer))

    def _locate(self, session: Session, frame: Frame, header: Any) -> None:
        self.decide(session, Right.CONSUME, header.topic)
        session.spawn(frame.channel, self._located(session, frame.channel, header))

    async def _located(self, session: Session, channel: int, header: Any) -> None:
        desk = await self.desk(header)
        answer = await self.threaded(_locate, desk, header)
        session.send(connection.frame(FrameType.LOCATED, channel, answer))

    # -- what is rare -----------------------------------------------------------------------------------

    def _administer(self, session: Session, frame: Frame, header: Any) -> None:
        verb = administration.VERBS.get(header.verb) or GROUP_VERBS.get(header.verb)
        if verb is None:
            raise UsageError(f"there is no verb {header.verb[:60]!r}", hint="docs/protocol.md has the table")
        if verb.right is not None:
            self.decide(session, verb.right, header.topic or None, header.verb)
        session.spawn(frame.channel, self._administered(session, frame, header, verb))

    async def _administered(
        self, session: Session, frame: Frame, header: Any, verb: administration.Verb
    ) -> None:
        arguments = verb.arguments(header.verb, header.arguments)

        def progress(value: Any) -> None:
            answer = message("Progress")(value=json.dumps(value).encode())
            self.server.loop.call_soon_threadsafe(
                session.send, connection.frame(FrameType.PROGRESS, frame.channel, answer)
            )

        seat = session.seat
        assert seat is not None
        if verb.looks:
            await self._check_sees(session, header.topic, header.verb)
        call = administration.Call(
            log=self.log,
            topic=header.topic,
            topic_id=header.topic_id,
            arguments=arguments,
            body=bytes(frame.body),
            progress=progress,
            who=str(seat.principal),
            may_see=seat.may_see,
            may=seat.may,
            own_report=self.server.look_at_itself,
        )
        value, body = await self.threaded(verb.act, call)
        if verb.replaces_topic:
            self.forget(header.topic)
        answer = message("Answer")(value=json.dumps(value).encode())
        parts = connection.frame(FrameType.ANSWER, frame.channel, answer, *([body] if body else ()))
        await session.room()
        session.send(parts)


@functools.cache
def _reached(durability: str, acks: int) -> bytes:
    """The part of an acknowledgement that says what was reached; it follows the others."""
    answer = message("Appended")(
        durability=_DURABILITY[durability],
        # a broker alone is leader and all
        acks=codes.ACKS_ALL if acks == codes.ACKS_ALL else codes.ACKS_LEADER,
    )
    data: bytes = answer.SerializeToString()
    return data


def _place(header: Any) -> Place:
    return Place(offset=header.offset, hash=header.hash if header.HasField("hash") else None)


def _most(session: Session, header: Any) -> int:
    """Bytes of blocks in an answer: what was asked for, and what the client takes; one block always comes."""
    return min(header.max_bytes or reading.ANSWER_BYTES, reading.ANSWER_BYTES, session.limit // 2)


def _positions_of(desk: Desk) -> Any:
    stored = desk.stored
    stored.refresh()
    return message("PositionsAnswer")(
        start_offset=stored.start_offset,
        next_offset=stored.next_offset,
        durable_offset=max(0, stored.durable_offset),
        head=stored.head,
        topic_version=stored.topic_version,
        rows=stored.row_count,
    )


def _locate(desk: Desk, header: Any) -> Any:
    stored = desk.stored
    if header.HasField("block"):
        block = desk.topic.topic.partition(stored.identity.number).find(header.block)
        return message("Located")(offset=block.base_offset, hash=bytes.fromhex(block.previous_hash))
    if header.HasField("timestamp"):
        offset = stored.first_offset_at(header.timestamp)
        return message("Located")(offset=offset)
    if header.HasField("hash"):
        number = stored.identity.number
        stored.check_token(Token(partition=number, offset=header.offset, hash=header.hash))
        return message("Located")(offset=header.offset, hash=header.hash)
    stored.refresh()
    token = stored.token_at(header.offset)
    return message("Located")(offset=token.offset, hash=token.hash)


def _selection(desk: Desk, header: Any) -> Any:
    """A request's range, filter and columns, checked as a reader in this process has them checked."""
    topic = desk.topic.topic
    number = desk.stored.identity.number
    chosen = administration.selection_of(topic, number)
    # an offset range that a client has fixed already
    chosen = chosen._with(
        start=header.start if header.HasField("start") else None,
        end=header.end if header.HasField("end") else None,
    )
    if header.HasField("since_us"):
        chosen = chosen.since(_moment(header.since_us))
    if header.HasField("until_us"):
        chosen = chosen.until(_moment(header.until_us))
    if header.HasField("filter"):
        chosen = chosen.where(header.filter)
    if header.columns:
        chosen = chosen.columns(*header.columns)
    if header.HasField("limit"):
        chosen = chosen.limit(header.limit)
    return chosen


def _table(desk: Desk, header: Any) -> Any:
    """As `_selection`, of the topic's table."""
    as_of: Any = None
    if header.HasField("as_of"):
        as_of = _as_of(header.as_of)
    chosen = desk.topic.topic.table(as_of=as_of)
    if header.HasField("filter"):
        chosen = chosen.where(header.filter)
    if header.columns:
        chosen = chosen.columns(*header.columns)
    if header.HasField("limit"):
        chosen = chosen.limit(header.limit)
    return chosen


def _as_of(data: bytes) -> Any:
    """A moment, or an offset for each partition."""
    wanted = administration.parse_json(data, "as_of")
    try:
        if "until_us" in wanted:
            return _moment(int(wanted["until_us"]))
        return {int(number): int(offset) for number, offset in wanted["offsets"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError('as_of is {"until_us": …} or {"offsets": {partition: offset}}') from error


def _moment(microseconds: int) -> Any:
    from datetime import UTC, datetime, timedelta

    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise UsageError("the moment is beyond the calendar") from error


class _Encoding:
    """Batches as Arrow messages, taken piece by piece."""

    def __init__(self, schema: pa.Schema) -> None:
        self._pieces = _Pieces()
        self._schema = schema
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._begin()
        self._writer.write_batch(batch)

    def _begin(self) -> None:
        options = pa.ipc.IpcWriteOptions(unify_dictionaries=False, emit_dictionary_deltas=False)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._pieces, mode="w"), self._schema, options=options)

    def take(self, *, finish: bool = False) -> bytes:
        """What has been written since the last time."""
        if self._writer is None:
            self._begin()
        if finish:
            self._writer.close()
        return self._pieces.take()


class _Pieces:
    """A file in memory that is emptied as it grows."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._at += len(part)
        return len(part)

    def tell(self) -> int:
        return self._at

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        return None

    def close(self) -> None:
        return None

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _encode_some(encoding: _Encoding, batches: Iterator[pa.RecordBatch]) -> tuple[Any, bytes]:
    """In a thread: the next batches as bytes, and how many rows they hold."""
    rows = size = 0
    for batch in batches:
        encoding.write(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if size >= _ROWS_BYTES:
            return rows, encoding.take()
    if rows:
        return rows, encoding.take()
    return _END, encoding.take(finish=True)
