"""A connection to a broker, for blocking calls from any number of threads.

Every request has a channel of its own; answers are taken as they come. No thread waits in
the background: whoever waits for an answer reads for all, and hands over to the next one
who waits. So a single caller does nothing but send and receive.

When the connection is lost, whoever notices dials again, for as long as the address's
patience lasts. What was asked and not answered is asked again, in the same order, where
that is safe: reads are, and appends, which carry a producer and a sequence. Streams are not
resumed here; who reads them knows where to go on.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from virta.client.transport import HINT, Transport, dial, greeting_failed
from virta.errors import Closed, Denied, Unreachable, VirtaError
from virta.protocol import connection, failures, messages
from virta.protocol.codes import FrameType
from virta.protocol.connection import Connection, Side, State
from virta.protocol.frames import FRAME_LIMIT, BrokenProtocol, Frame, encode
from virta.security.address import Address
from virta.security.credentials import Credentials, find_credentials
from virta.security.scram import MECHANISM_PLUS, ScramClient
from virta.security.tls import looks_like_tls_alert

# Nothing heard for so long: ask whether the broker is there; and give it up after SILENCE_SECONDS.
_QUIET_SECONDS = 5
_SILENCE_SECONDS = 20.0
_GREETING_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
# Small answers come in small reads; large ones in fewer.
_READ_BYTES, _READ_MUCH_BYTES = 32 * 1024, 1024 * 1024


class Lost(Unreachable):
    """The connection ended while this was on its way; where to go on is for the caller to say."""


class Pending:
    """A request that was sent, and what has come of it."""

    __slots__ = ("answered", "bell", "can_retry", "channel", "error", "frames", "is_stream", "parts", "waits")

    def __init__(self, channel: int, parts: list[Any], *, can_retry: bool, is_stream: bool) -> None:
        self.channel = channel
        self.parts = parts
        self.can_retry = can_retry
        self.is_stream = is_stream
        self.frames: deque[tuple[Frame, Any]] = deque()
        self.error: BaseException | None = None
        self.waits = False
        self.bell: threading.Event | None = None
        self.answered: Callable[[], None] | None = None

    @property
    def is_ready(self) -> bool:
        return bool(self.frames) or self.error is not None


class Wire:
    """A broker, as long as it can be reached."""

    def __init__(
        self,
        address: Address,
        *,
        credentials: Credentials | None = None,
        dial: Callable[[Address, Credentials], Transport] = dial,
    ) -> None:
        self.address = address
        self._credentials = find_credentials(address) if credentials is None else credentials
        self._dial = dial
        self._sending = threading.RLock()
        self._reading = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._channel = 0
        self._transport: Transport | None = None
        self._connection = Connection(Side.CLIENT)
        self._heard_at = 0.0
        self._much = False
        self._closed: str | None = None
        self._process = os.getpid()
        self._has_sleepers = False  # whether somebody may wait for a bell
        self.welcome: Any = None
        self.reconnects = 0
        self._called_for: set[Pending] = set()  # those that nobody waits for, but a callback
        self._is_called_for = threading.Event()
        self._reader: threading.Thread | None = None

    # -- connecting ---------------------------------------------------------------------------

    def connect(self) -> Any:
        """Dial once; Unreachable when nobody is there. Gives the broker's welcome."""
        with self._reading, self._sending:
            self._open()
        return self.welcome

    def _open(self) -> None:
        transport = self._dial(self.address, self._credentials)
        try:
            self._connection = Connection(Side.CLIENT)
            self._greet(transport)
        except OSError as error:
            transport.close()
            raise greeting_failed(error, self.address, self._credentials) from error
        except BaseException:
            transport.close()
            raise
        self._transport = transport
        self._heard_at = time.monotonic()

    def _greet(self, transport: Transport) -> None:
        transport.send(connection.hello(f"virta {version('virta')} (Python)"), _nothing)
        self.welcome = self._word(transport, FrameType.WELCOME)
        self._connection.enter(State.OPEN, frame_limit=FRAME_LIMIT)
        if self._credentials.name is not None and self.welcome.mechanisms:
            self._log_in(transport)

    def _log_in(self, transport: Transport) -> None:
        assert self._credentials.name is not None
        login = ScramClient(
            self._credentials.name,
            self._credentials.secret or "",
            binding=transport.binding,
            plus=MECHANISM_PLUS in self.welcome.mechanisms,
        )
        mechanism: str | None = login.mechanism
        data: bytes | None = login.first()
        while data is not None:
            header = messages.message("Authenticate")(mechanism=mechanism, data=data)
            transport.send(connection.frame(FrameType.AUTHENTICATE, 0, header), _nothing)
            answer = self._word(transport, FrameType.CHALLENGE)
            data, mechanism = login.step(answer.data), None
        if not login.done:
            raise Denied("the login did not come to its end")
        self.welcome.principal = answer.principal

    def _word(self, transport: Transport, wanted: FrameType) -> Any:
        """The broker's next word on the connection itself."""
        deadline = time.monotonic() + _GREETING_SECONDS
        while True:
            data = transport.receive(_READ_BYTES)
            if data is None:
                if time.monotonic() > deadline:
                    raise Unreachable(f"{self.address} was reached, but says nothing", hint="is it a broker?")
                continue
            if not data:
                raise greeting_failed(None, self.address, self._credentials)
            if looks_like_tls_alert(data):
                raise Denied(f"{self.address} speaks TLS on this port", hint="write virtas:// for virta://")
            for frame in self._connection.receive(data):
                self._connection.check(frame)
                header = messages.parse(frame.type, frame.header)
                if frame.type == FrameType.ERROR:
                    raise failures.to_error(header)
                if frame.type == FrameType.GOODBYE:
                    raise Unreachable(f"{self.address} is stopping", hint=HINT)
                if frame.type == wanted:
                    return header

    def _check_open(self) -> None:
        if self._closed is not None:
            raise Closed(self._closed)
        if self._process != os.getpid():
            raise Closed("the log was opened before a fork; open it again in the child")

    # -- asking -----------------------------------------------------------------------------------

    def call(self, type_: FrameType, header: Any, *body: Any, can_retry: bool = True) -> tuple[Frame, Any]:
        """Ask, and wait for the one answer."""
        if not can_retry:
            self.check_alive()
        return self.finish(self.post(type_, header, *body, can_retry=can_retry))

    def post(
        self, type_: FrameType, header: Any, *body: Any, can_retry: bool = True, is_stream: bool = False
    ) -> Pending:
        """Ask without waiting; what was posted first arrives first. A header may be encoded already."""
        head = header if type(header) is bytes else header.SerializeToString()
        size = sum(map(len, body))
        with self._sending:
            if self._closed is not None or self._process != os.getpid():
                self._check_open()
            self._channel = channel = (self._channel + 1) & 0xFFFFFFFF or 1
            parts = [encode(type_, channel, head, size), *body]
            pending = Pending(channel, parts, can_retry=can_retry, is_stream=is_stream)
            self._pending[channel] = pending
            self._send(parts)
        return pending

    def tell(self, type_: FrameType, channel: int, header: Any, *body: Any) -> None:
        """Send what has no answer. Lost with the connection."""
        with self._sending:
            if self._closed is None:
                self._send(connection.frame(type_, channel, header, *body))

    def tell_apart(self, type_: FrameType, header: Any, *body: Any) -> None:
        """As `tell`, on a channel of its own."""
        with self._sending:
            self._check_open()
            self._channel = channel = (self._channel + 1) & 0xFFFFFFFF or 1
            head = header if type(header) is bytes else header.SerializeToString()
            self._send([encode(type_, channel, head, sum(map(len, body))), *body])

    def _send(self, parts: list[Any]) -> None:
        """Write, if there is a connection; whoever reads sees to it when there is none."""
        transport = self._transport
        if transport is None:
            return
        try:
            transport.send(parts, self._read_meanwhile)
        except OSError:
            self._drop(transport)

    def _drop(self, transport: Transport) -> None:
        if self._transport is transport:
            self._transport = None
        transport.close()

    def _read_meanwhile(self) -> None:
        """The broker takes nothing more before its answers are taken."""
        if self._reading.acquire(blocking=False):
            try:
                transport = self._transport
                if transport is not None:
                    self._receive(transport)
            finally:
                self._reading.release()

    def check_alive(self) -> None:
        """A round trip, so that what cannot be asked twice is not asked into a dead connection."""
        with self._sending:
            transport = self._transport
            quiet = time.monotonic() - self._heard_at
        if transport is None or quiet > 0.2 or self._connection.state is State.LEAVING:
            self.finish(self.post(FrameType.ADMINISTER, messages.message("Administer")(verb="ping")))

    # -- answers -------------------------------------------------------------------------------------

    def finish(self, pending: Pending) -> tuple[Frame, Any]:
        """The one answer of a request; raises the error it may be."""
        frame, header = self.next(pending)
        if not pending.is_stream:
            self._pending.pop(pending.channel, None)
        return frame, header

    def next(self, pending: Pending) -> tuple[Frame, Any]:
        """The next answer on a request's channel."""
        if not pending.frames:
            self._wait(pending)
        if pending.frames:
            frame, header = pending.frames.popleft()
            if frame.type == FrameType.ERROR:
                self._pending.pop(pending.channel, None)
                raise failures.to_error(header) if header.number < 96 else Outcome(header)
            return frame, header
        assert pending.error is not None
        raise pending.error

    def _wait(self, pending: Pending) -> None:
        pending.waits = True
        try:
            while not pending.is_ready:
                if self._reading.acquire(blocking=False):
                    self._read_until(pending)
                elif pending.bell is None:
                    # the one who reads may have looked before the bell was there: try again
                    pending.bell = threading.Event()
                    self._has_sleepers = True
                else:
                    pending.bell.wait(1.0)
                    pending.bell.clear()
        finally:
            pending.waits = False

    def _read_until(self, pending: Pending) -> None:
        """Read for all, until this one has its answer. (`_reading` is held, and let go.)"""
        try:
            while not pending.is_ready:
                self._read()
        except BaseException:
            self._pending.pop(pending.channel, None)
            raise
        finally:
            pending.waits = False
            self._reading.release()
            self._pass_on()

    def _pass_on(self) -> None:
        """Have another one who waits read."""
        if not self._has_sleepers:
            return
        for other in list(self._pending.values()):
            if other.waits and other.bell is not None:
                other.bell.set()
                return
        self._has_sleepers = False

    def _read(self) -> None:
        """Take what comes next; dial again when nothing will. (`_reading` is held.)"""
        transport = self._transport
        if transport is None:
            self._again()
            return
        self._receive(transport)

    def _receive(self, transport: Transport) -> None:
        try:
            data = transport.receive(_READ_MUCH_BYTES if self._much else _READ_BYTES)
        except OSError:
            data = b""
        if data is None:
            self._ask_whether_alive(transport)
            return
        if not data:
            self._drop(transport)
            return
        self._much = len(data) >= _READ_BYTES
        self._heard_at = time.monotonic()
        try:
            for frame in self._connection.receive(data):
                self._take(frame)
        except BrokenProtocol as error:
            self._drop(transport)
            self._fail_all(error)

    def _take(self, frame: Frame) -> None:
        self._connection.check(frame)
        header = messages.parse(frame.type, frame.header)
        if frame.channel == 0:
            self._take_word(frame.type, header)
            return
        pending = self._pending.get(frame.channel)
        if pending is None:
            return  # cancelled
        pending.frames.append((frame, header))
        self._ring(pending)

    def _ring(self, pending: Pending) -> None:
        if pending.bell is not None:
            pending.bell.set()
        if pending.answered is not None:
            self._called_for.discard(pending)
            pending.answered()

    def _take_word(self, type_: int, header: Any) -> None:
        if type_ == FrameType.GOODBYE:
            # what was asked is still answered; the end of the connection follows
            self._connection.enter(State.LEAVING)
        elif type_ == FrameType.HEARTBEAT:
            self.tell(FrameType.HEARTBEAT_ANSWER, 0, header)
        elif type_ == FrameType.ERROR:
            raise failures.to_error(header)

    def _ask_whether_alive(self, transport: Transport) -> None:
        if time.monotonic() - self._heard_at > _SILENCE_SECONDS:
            self._drop(transport)
            return
        self.tell(FrameType.HEARTBEAT, 0, messages.message("Heartbeat")(number=1))

    # -- after a loss -----------------------------------------------------------------------------------

    def _again(self) -> None:
        """Dial until somebody answers, then ask again what was not answered. (`_reading` is held.)"""
        with self._sending:
            self._check_open()
            if self._transport is not None:
                return
            self._fail_what_cannot_be_repeated()
            deadline = time.monotonic() + self.address.patience_seconds
            pause = _FIRST_PAUSE
            while True:
                try:
                    self._open()
                    break
                except Unreachable as error:
                    if time.monotonic() + pause > deadline:
                        self._fail_all(error)
                        return
                except VirtaError as error:
                    self._fail_all(error)
                    return
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            self.reconnects += 1
            for channel in sorted(self._pending):
                pending = self._pending[channel]
                if not pending.frames and pending.error is None:
                    self._send(pending.parts)

    def _fail_what_cannot_be_repeated(self) -> None:
        for pending in list(self._pending.values()):
            if pending.is_stream:
                self._fail(pending, Lost(f"the connection to {self.address} was lost"))
            elif not pending.can_retry and not pending.frames:
                self._fail(
                    pending,
                    Unreachable(
                        f"the connection to {self.address} was lost before the answer came",
                        hint="it may have been done or not: look before trying again",
                    ),
                )

    def _fail_all(self, error: BaseException) -> None:
        for pending in list(self._pending.values()):
            self._fail(pending, error)

    def _fail(self, pending: Pending, error: BaseException) -> None:
        self._pending.pop(pending.channel, None)
        pending.error = error
        self._ring(pending)

    def forget(self, pending: Pending) -> None:
        """Take no more answers on its channel."""
        self._pending.pop(pending.channel, None)
        self._called_for.discard(pending)

    def give_up(self, pending: Pending) -> None:
        """Take no more answers, and have the broker stop as well."""
        self.forget(pending)
        if not pending.is_ready:
            self.tell(FrameType.CANCEL, pending.channel, messages.message("Cancel")())

    # -- answers that nobody waits for -------------------------------------------------------------------

    def when_answered(self, pending: Pending, call: Callable[[], None]) -> None:
        """Have this called, from some thread, when an answer is there. For event loops."""
        pending.answered = call
        self._called_for.add(pending)
        if pending.is_ready:
            self._ring(pending)
            return
        with self._sending:
            if self._reader is None:
                self._reader = threading.Thread(target=self._read_on, name="virta-wire", daemon=True)
                self._reader.start()
        self._is_called_for.set()

    def call_nobody(self, pending: Pending) -> None:
        """Have nobody called for this any more; its answer is still taken."""
        pending.answered = None
        self._called_for.discard(pending)

    def _read_on(self) -> None:
        while self._closed is None:
            if not self._called_for:
                self._is_called_for.clear()
                if not self._called_for:
                    self._is_called_for.wait()
                continue
            try:
                with self._reading:
                    while self._called_for and self._closed is None:
                        self._read()
            except VirtaError:
                continue  # whoever waits has been told
            self._pass_on()

    def close(self) -> None:
        if self._closed is not None:
            return
        self._closed = "the log was closed"
        self._is_called_for.set()
        transport, self._transport = self._transport, None
        if transport is not None and self._process == os.getpid():
            with contextlib.suppress(OSError):  # it may be gone already
                parts = connection.frame(FrameType.GOODBYE, 0, messages.message("Goodbye")())
                transport.send(parts, _nothing)
            transport.close()
        self._fail_all(Closed("the log was closed"))


class Outcome(Exception):
    """An answer that only the client's own code sees: the topic changed, rows are there already."""

    def __init__(self, header: Any) -> None:
        super().__init__(header.message)
        self.number = header.number
        self.details = failures.details_of(header)


def _nothing() -> None:
    return None
