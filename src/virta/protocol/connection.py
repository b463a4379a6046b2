"""Where a connection stands, and which frames it may bring there. Used by both sides.

A connection is told what was received and gives frames; it is asked for bytes to send. It
opens no socket, reads no clock, and knows nothing of logs. Which frames are allowed is a
table:

    state      broker receives                       client receives
    NEW        hello                                 welcome, error, goodbye
    OPEN       requests, cancel, credit, heartbeats,  answers, heartbeats, challenge, goodbye
               authenticate, goodbye
    LEAVING    as OPEN: what was asked is finished    as OPEN
    CLOSED     nothing                               nothing
"""

from __future__ import annotations

import enum
from typing import Any

from virta.protocol import codes, failures, messages
from virta.protocol.codes import ANSWERS, REQUESTS, FrameType
from virta.protocol.frames import FRAME_LIMIT, BrokenProtocol, Frame, Receiver, encode_whole, name_of


class Side(enum.Enum):
    CLIENT = "client"
    BROKER = "broker"


class State(enum.Enum):
    NEW = "new"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


_ALIVE = frozenset((FrameType.HEARTBEAT, FrameType.HEARTBEAT_ANSWER, FrameType.GOODBYE))
_GREETING = frozenset((FrameType.WELCOME, FrameType.ERROR, FrameType.GOODBYE))
_AT_BROKER = REQUESTS | _ALIVE | {FrameType.CANCEL, FrameType.CREDIT, FrameType.AUTHENTICATE}
_AT_CLIENT = ANSWERS | _ALIVE | {FrameType.CHALLENGE}

ALLOWED: dict[tuple[Side, State], frozenset[FrameType]] = {
    (Side.BROKER, State.NEW): frozenset({FrameType.HELLO}),
    (Side.BROKER, State.OPEN): frozenset(_AT_BROKER),
    (Side.BROKER, State.LEAVING): frozenset(_AT_BROKER),
    (Side.BROKER, State.CLOSED): frozenset(),
    (Side.CLIENT, State.NEW): _GREETING,
    (Side.CLIENT, State.OPEN): frozenset(_AT_CLIENT),
    (Side.CLIENT, State.LEAVING): frozenset(_AT_CLIENT),
    (Side.CLIENT, State.CLOSED): frozenset(),
}


class Connection:
    """One side of a connection."""

    __slots__ = ("_allowed", "_receiver", "side", "state", "version")

    def __init__(self, side: Side) -> None:
        self.side = side
        self._receiver = Receiver()
        self.version = 0
        self.state = State.NEW
        self._allowed = ALLOWED[side, State.NEW]

    def enter(self, state: State, *, frame_limit: int | None = None) -> None:
        """The connection stands elsewhere now; from OPEN on larger frames are taken."""
        self.state = state
        self._allowed = ALLOWED[self.side, state]
        if frame_limit is not None:
            self._receiver.limit = frame_limit

    @property
    def waiting(self) -> int:
        """Bytes received of a frame that is not whole yet."""
        return self._receiver.waiting

    def receive(self, data: Any) -> list[Frame]:
        """What came, as frames; BrokenProtocol when the other side may not send that.

        Allowed types are asked again by `check` when a frame's turn comes: a frame before
        it may have changed the state.
        """
        if self.state is State.CLOSED:
            return []
        return self._receiver.feed(data)

    def check(self, frame: Frame) -> None:
        """That a frame is allowed where the connection stands."""
        if frame.type in self._allowed:
            return
        known = frame.type in messages.HEADERS
        what = f"a frame of {'type' if known else 'the unknown type'} {name_of(frame.type)}"
        raise BrokenProtocol(
            f"{what} has no place here: the connection is {self.state.value}",
            hint="a client begins with a hello and waits for the welcome"
            if self.state is State.NEW
            else None,
        )


def frame(type_: FrameType, channel: int, header: Any = None, *body: Any) -> list[Any]:
    """A frame as parts to be written one after another."""
    return encode_whole(type_, channel, b"" if header is None else header.SerializeToString(), *body)


def error_frame(channel: int, error: BaseException) -> list[Any]:
    return frame(FrameType.ERROR, channel, failures.to_message(error))


def agree(offered: Any) -> int:
    """The newest version that both sides speak; BrokenProtocol when there is none."""
    both = set(offered) & set(codes.VERSIONS)
    if not both:
        spoken = ", ".join(map(str, codes.VERSIONS))
        raise BrokenProtocol(
            f"the client speaks protocol versions {sorted(set(offered)) or 'none'}, this broker {spoken}",
            hint="use versions of virta that are nearer to each other on both sides",
        )
    return int(max(both))


def hello(client: str, *, frame_limit: int = FRAME_LIMIT) -> list[Any]:
    header = messages.message("Hello")(versions=list(codes.VERSIONS), client=client, frame_limit=frame_limit)
    return frame(FrameType.HELLO, 0, header)
