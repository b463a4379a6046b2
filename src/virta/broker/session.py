"""One connection at the broker: frames come in, answers go out, each when it is ready.

Requests are looked at in the order they come. Those that need no waiting are answered at
once; the others become tasks of their own, so that none holds up the next. Everything is
bounded:

- a frame, by what was agreed in the welcome;
- answers that the client does not take: beyond OUT_BYTES nothing more is read from it;
- requests in flight: beyond the bound nothing more is read from it;
- a stream, by the credit that its client gives;
- what is read for it from files, by turns: ANSWERS_AT_ONCE are made at a time, each only
  when there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

from virta import __version__
from virta.errors import VirtaError
from virta.protocol import connection, messages
from virta.protocol.codes import REQUESTS, WAITS, FrameType
from virta.protocol.connection import Connection, Side, State
from virta.protocol.frames import FRAME_LIMIT, BrokenProtocol, Frame
from virta.protocol.messages import message
from virta.security.guard import Login, Peer, is_loopback
from virta.security.guard import Session as Seat
from virta.security.principal import ANONYMOUS
from virta.security.tls import looks_like_tls

if TYPE_CHECKING:
    from virta.broker.server import Server

# A debt of bytes is looked at again after so long: the limit may have been raised.
_LONGEST_PAUSE_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60
# Large answers of one connection that are made at the same time. Each is at most some MiB, and a
# client that takes nothing keeps so many in the broker's memory, however many it asked for.
ANSWERS_AT_ONCE = 4
# They take as long as there is nothing to tell, which says nothing about the broker.
_FOR_NEWS = frozenset((FrameType.LONG_POLL, FrameType.STREAM))
# A read of fewer bytes than this is a request or two, and not part of a stream of them.
_SMALL_READ_BYTES = 4096


class Session(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.limits = server.guard.limits
        # Names the connection in logs; requests are name/channel.
        self.name = server.name_connection()
        self.seat: Seat | None = None  # what the guard knows of it
        self.client = ""
        self._connection = Connection(Side.BROKER)
        self._transport: Any = None
        self._login: Login | None = None
        self._inbox: deque[Frame] = deque()
        self._out: list[Any] = []
        self._out_bytes = 0
        self._handling = 0  # the type of the frame that is looked at
        self._about = ""  # and the topic it is about
        self.spared = False  # the next frame has had its fault already
        self._held = False  # a frame has to wait, and all behind it
        self._congested = False  # the client does not take its answers
        self._paced = False
        self._is_reading = True
        self._drained: asyncio.Event | None = None
        self._answering: asyncio.Semaphore | None = None
        self.appending_bytes = 0
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.endless: set[int] = set()  # channels of tasks that wait for rows or for the client
        self.credit: dict[int, Credit] = {}
        self.queries: dict[int, Any] = {}
        self.heard_at = 0.0
        self.connected_at = 0.0
        self.limit = self.limits.frame_bytes  # of a frame that the client takes

    # -- the transport ----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.connected_at = self.heard_at = self.server.now()
        transport.set_write_buffer_limits(high=self.limits.answer_bytes // 2)
        self.peer = self._facts()
        try:
            self.seat = self.server.guard.open(self.peer)
        except VirtaError as error:
            self.refuse(error)
            return
        self._keep_alive()
        self.server.connected(self)

    def _keep_alive(self) -> None:
        """Have the system find out when the other side is gone without a word."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_SECONDS // 4)

    def _facts(self) -> Peer:
        """What the transport says of the other side."""
        transport = self._transport
        name, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        tls = transport.get_extra_info("ssl_object")
        return Peer(
            address=str(name[0]) if isinstance(name, tuple) and name else "local",
            listens_on_loopback=is_loopback(str(own[0])) if isinstance(own, tuple) and own else True,
            encrypted=tls is not None,
            certificate=(tls.getpeercert() or None) if tls is not None else None,
            server_certificate=self.server.certificate if tls is not None else None,
        )

    def data_received(self, data: bytes) -> None:
        server = self.server
        self.heard_at = server.now()
        server.tally.received_bytes += len(data)
        try:
            if self._connection.state is State.NEW and looks_like_tls(data):
                raise BrokenProtocol(
                    "a client speaks TLS, and this port does not", hint="virta:// for virtas://"
                )
            frames = self._connection.receive(data)
        except BrokenProtocol as error:
            self.refuse(error)
            return
        if self.seat is not None and self.seat.is_rated:
            self._spend(len(data))
        if self._connection.state is State.LEAVING:
            # goodbye was said: what is asked from then on is not begun, and is asked elsewhere
            frames = [frame for frame in frames if frame.type not in REQUESTS]
        self._inbox.extend(frames)
        # one client that asks one thing at a time has its answer before the loop turns
        if len(data) < _SMALL_READ_BYTES and server.begin_alone():
            try:
                self.go_on()
            finally:
                server.end_alone()
        else:
            self.go_on()

    def _spend(self, size: int) -> None:
        """Count bytes that went either way; who is over the rate is not read from for a while."""
        if self.seat is None or not self.seat.is_rated:
            return
        wait = self.seat.take(size)
        if wait > 0 and not self._paced:
            self._paced = True
            wait = min(wait, _LONGEST_PAUSE_SECONDS)
            self.server.tally.paused_seconds += wait
            self.server.loop.call_later(wait, self._paced_enough)

    def _paced_enough(self) -> None:
        self._paced = False
        self._spend(0)
        self.go_on()

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        if self._drained is not None:
            self._drained.set()
        self.go_on()

    def connection_lost(self, _: Exception | None) -> None:
        self._connection.enter(State.CLOSED)
        self._inbox.clear()
        self._out.clear()
        self.queries.clear()
        for task in list(self.tasks.values()):
            task.cancel()
        if self._drained is not None:
            self._drained.set()
        if self.seat is not None:
            self.seat.close()
            self.server.disconnected(self)

    # -- frames in -----------------------------------------------------------------------------

    def go_on(self) -> None:
        """Take up what has come, as far as there is room for it."""
        inbox, check = self._inbox, self._connection.check
        while inbox and not self._is_full():
            frame = inbox.popleft()
            try:
                check(frame)
                header = messages.parse(frame.type, frame.header)
                if self._connection.state is State.OPEN or self._connection.state is State.LEAVING:
                    self._handle(frame, header)
                else:
                    self._greet(header)
            except BrokenProtocol as error:
                self.refuse(error)
                return
        self._set_reading(not inbox and not self._paced)

    def _is_full(self) -> bool:
        return (
            self._held
            or self._congested
            or self._paced
            or self._out_bytes > self.limits.answer_bytes
            or len(self.tasks) >= self.limits.requests_in_flight
            or self.appending_bytes > self.limits.append_bytes_in_flight
        )

    def _set_reading(self, wanted: bool) -> None:
        if wanted is self._is_reading or self._connection.state is State.CLOSED:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _handle(self, frame: Frame, header: Any) -> None:
        type_, channel = frame.type, frame.channel
        faults = self.server.faults
        if faults is not None and type_ in REQUESTS:
            if self.spared:
                self.spared = False
            elif faults.meet(self, frame):
                return
        self.server.tally.requests[type_] += 1
        if type_ == FrameType.HEARTBEAT:
            self.send(connection.frame(FrameType.HEARTBEAT_ANSWER, 0, header))
        elif type_ == FrameType.CREDIT:
            credit = self.credit.get(channel)
            if credit is not None:
                credit.give(header.bytes)
        elif type_ == FrameType.CANCEL:
            task = self.tasks.get(channel)
            if task is not None:
                task.cancel()
        elif type_ == FrameType.AUTHENTICATE:
            self._authenticate(header)
        elif type_ == FrameType.GOODBYE:
            self.server.loop.call_soon(self.leave)
        elif type_ != FrameType.HEARTBEAT_ANSWER:
            if not channel:
                raise BrokenProtocol("a request is on channel 0, which is the connection's own")
            if channel in self.tasks:
                raise BrokenProtocol(f"channel {channel} has a request in flight already")
            self._handling = type_
            self._about = getattr(header, "topic", "")
            began_at = self.server.now()
            try:
                self.server.service.handle(self, frame, header)
            except Exception as error:
                self.fail(channel, error)
            # appends are answered by their commit, and what waits by the task it became
            if type_ != FrameType.APPEND and channel not in self.tasks:
                self.server.tally.answered(self.name, type_, self._about, self.server.now() - began_at)

    def _greet(self, header: Any) -> None:
        assert self.seat is not None
        self._connection.version = connection.agree(header.versions)
        self.client = header.client[:200]
        self.limit = max(64 * 1024, min(FRAME_LIMIT, header.frame_limit or FRAME_LIMIT))
        principal = self.seat.principal
        limit = self.limits.stranger_frame_bytes if principal == ANONYMOUS else self.limits.frame_bytes
        self._connection.enter(State.OPEN, frame_limit=limit)
        welcome = message("Welcome")(
            version=self._connection.version,
            broker=f"virta {__version__}",
            log_id=self.server.log_id,
            principal=str(principal),
            frame_limit=limit,
            requests=self.limits.requests_in_flight,
            mechanisms=self.seat.mechanisms,
        )
        self.send(connection.frame(FrameType.WELCOME, 0, welcome))
        if self.server.is_stopping:
            self.say_goodbye()

    def _authenticate(self, header: Any) -> None:
        """One message of a login; one that fails ends the connection."""
        assert self.seat is not None
        try:
            if header.HasField("mechanism"):
                self._login = self.seat.login(header.mechanism)
            if self._login is None:
                raise BrokenProtocol("a login goes on that has not begun")
            data = self._login.step(header.data)
            done = self._login.done
        except VirtaError as error:
            self.server.tally.failed_logins += 1
            self.refuse(error)
            return
        if done:
            self._login = None
            self._connection.enter(self._connection.state, frame_limit=self.limits.frame_bytes)
        answer = message("Challenge")(data=data, done=done, principal=str(self.seat.principal))
        self.send(connection.frame(FrameType.CHALLENGE, 0, answer))

    # -- frames out ----------------------------------------------------------------------------------

    def send(self, parts: list[Any]) -> None:
        """Have a frame written at the end of this turn of the event loop, with all others."""
        if not self._out:
            self.server.written(self)
        self._out += parts
        self._out_bytes += sum(map(len, parts))

    def fail(self, channel: int, error: BaseException) -> None:
        self.server.tally.failed(error)
        if not isinstance(error, VirtaError):
            self.server.unexpected(error, request=f"{self.name}/{channel}")
        self.send(connection.error_frame(channel, error))

    def flush(self) -> None:
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        if not out or self._connection.state is State.CLOSED:
            return
        self.server.tally.sent_bytes += size
        if self.seat is not None and self.seat.is_rated:
            self._spend(size)
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Make a large answer in here, and send it: one of few at a time, and there is room for it."""
        if self._answering is None:
            self._answering = asyncio.Semaphore(ANSWERS_AT_ONCE)
        async with self._answering:
            await self.room()
            yield

    async def room(self) -> None:
        """Wait until the client takes its answers."""
        while self._congested or self._out_bytes > self.limits.answer_bytes:
            if self._connection.state is State.CLOSED:
                raise asyncio.CancelledError
            if self._drained is None:
                self._drained = asyncio.Event()
            self._drained.clear()
            if not self._congested:
                self.flush()
                if not self._congested:
                    return
            await self._drained.wait()

    # -- what takes longer ------------------------------------------------------------------------------

    def spawn(self, channel: int, work: Coroutine[Any, Any, None]) -> None:
        """Do it in a task of its own; what goes wrong is answered on the channel."""
        task = self.server.loop.create_task(self._run(channel, work, self._handling, self._about))
        # cancelled before its first step, the task never came to the work
        task.add_done_callback(lambda _: work.close())
        self.tasks[channel] = task
        if self._handling in WAITS:
            self.endless.add(channel)

    async def _run(self, channel: int, work: Coroutine[Any, Any, None], type_: int, topic: str) -> None:
        tally, began_at = self.server.tally, self.server.now()
        try:
            await work
        except asyncio.CancelledError:
            if self._connection.state is not State.CLOSED:
                self.send(connection.frame(FrameType.DONE, channel))
        except Exception as error:
            self.fail(channel, error)
        finally:
            self.tasks.pop(channel, None)
            self.endless.discard(channel)
            self.credit.pop(channel, None)
            tally.waited[type_] += 1
            seconds = self.server.now() - began_at
            tally.seconds[type_] += seconds
            if type_ not in _FOR_NEWS:
                tally.answered(self.name, type_, topic, seconds)
            if self._inbox:
                self.go_on()

    def hold(self, work: Coroutine[Any, Any, None]) -> None:
        """Look at no further frame before this is done."""
        self._held = True

        async def held() -> None:
            with contextlib.suppress(Exception):  # whoever holds answers for itself
                await work
            self._held = False
            self.go_on()

        self.server.keep(self.server.loop.create_task(held()))

    def put_back(self, frame: Frame, *, counted: bool = True) -> None:
        """The frame's turn comes again."""
        if counted:
            self.server.tally.requests[frame.type] -= 1
        self._inbox.appendleft(frame)

    # -- the end -------------------------------------------------------------------------------------------

    def refuse(self, error: VirtaError) -> None:
        """Say why, and end the connection."""
        if self._connection.state is State.CLOSED:
            return
        self.server.refused(self, error)
        self.send(connection.error_frame(0, error))
        self.leave()

    def say_goodbye(self) -> None:
        if self._connection.state is State.OPEN:
            self._connection.enter(State.LEAVING)
            reason = "the broker is stopping"
            self.send(connection.frame(FrameType.GOODBYE, 0, message("Goodbye")(reason=reason)))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of it is on its way that comes to an end by itself."""
        if self._inbox or self._out or self.appending_bytes or self._held:
            return False
        return self.endless >= self.tasks.keys()

    def leave(self) -> None:
        """Write what is there, and close."""
        if self._connection.state is State.CLOSED:
            return
        self.flush()
        self._connection.enter(State.CLOSED)
        self._inbox.clear()
        for task in list(self.tasks.values()):
            task.cancel()
        self._transport.close()

    def drop(self) -> None:
        """Close without another word."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_greeted(self) -> bool:
        return self._connection.state is not State.NEW

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked that is not answered."""
        return self.is_quiet and not self.tasks

    @property
    def is_mid_frame(self) -> bool:
        return self._connection.waiting > 0


class Credit:
    """Bytes that a client still takes on a channel."""

    __slots__ = ("_left", "_more")

    def __init__(self, left: int) -> None:
        self._left = left
        self._more = asyncio.Event()

    def give(self, more: int) -> None:
        # what a client can give is bounded by what it can count
        self._left = min(self._left + more, 1 << 62)
        self._more.set()

    async def some(self) -> int:
        """How many bytes may be sent now; waits until there are any."""
        while self._left <= 0:
            self._more.clear()
            await self._more.wait()
        return self._left

    def take(self, size: int) -> None:
        self._left -= size
