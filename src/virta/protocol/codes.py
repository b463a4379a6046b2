"""The numbers on the wire: frame types, and errors. A number that was given is never given again."""

from __future__ import annotations

import enum

from virta import errors

# Versions of the protocol that this code speaks, newest first.
VERSIONS = (1,)
DEFAULT_PORT = 7400


class FrameType(enum.IntEnum):
    """What a frame is; docs/protocol.md has the table."""

    # the connection itself, on channel 0
    HELLO = 1
    WELCOME = 2
    CHALLENGE = 3
    AUTHENTICATE = 4
    HEARTBEAT = 5
    HEARTBEAT_ANSWER = 6
    GOODBYE = 7
    # any channel
    ERROR = 8
    DONE = 9
    CANCEL = 10
    CREDIT = 11
    # producing
    APPEND = 16
    APPENDED = 17
    CLAIM = 18
    CLAIMED = 19
    # reading
    FETCH = 32
    FETCH_BATCH = 33
    POLL = 34
    LONG_POLL = 35
    STREAM = 36
    BLOCKS = 37
    SELECT = 38
    QUERY = 39
    ROWS = 40
    # where things stand
    LOCATE = 48
    LOCATED = 49
    POSITIONS = 50
    POSITIONS_ANSWER = 51
    # everything that is rare
    ADMINISTER = 64
    ANSWER = 65
    PROGRESS = 66
    # consumer groups; what is rare of them is ADMINISTER's
    GROUP_HEARTBEAT = 72
    GROUP_ASSIGNMENT = 73
    GROUP_COMMIT = 74
    GROUP_POSITIONS = 75
    GROUP_POSITIONS_ANSWER = 76
    GROUP_WATCH = 77
    GROUP_CHANGED = 78
    GROUP_SET_ASIDE = 79
    # 80 to 95: between brokers (ReplicaSync), for a later version


REQUESTS = frozenset(
    (
        FrameType.APPEND,
        FrameType.CLAIM,
        FrameType.FETCH,
        FrameType.FETCH_BATCH,
        FrameType.POLL,
        FrameType.LONG_POLL,
        FrameType.STREAM,
        FrameType.SELECT,
        FrameType.QUERY,
        FrameType.LOCATE,
        FrameType.POSITIONS,
        FrameType.ADMINISTER,
        FrameType.GROUP_HEARTBEAT,
        FrameType.GROUP_COMMIT,
        FrameType.GROUP_POSITIONS,
        FrameType.GROUP_WATCH,
        FrameType.GROUP_SET_ASIDE,
    )
)
# Requests that may go on for as long as the client likes; nobody who stops waits for them.
WAITS = frozenset(
    (FrameType.LONG_POLL, FrameType.STREAM, FrameType.SELECT, FrameType.QUERY, FrameType.GROUP_WATCH)
)
ANSWERS = frozenset(
    (
        FrameType.ERROR,
        FrameType.DONE,
        FrameType.APPENDED,
        FrameType.CLAIMED,
        FrameType.BLOCKS,
        FrameType.ROWS,
        FrameType.LOCATED,
        FrameType.POSITIONS_ANSWER,
        FrameType.ANSWER,
        FrameType.PROGRESS,
        FrameType.GROUP_ASSIGNMENT,
        FrameType.GROUP_POSITIONS_ANSWER,
        FrameType.GROUP_CHANGED,
    )
)

# Acknowledgements a producer can ask for.
ACKS_LEADER, ACKS_NONE, ACKS_ALL = 0, 1, 2
ACKS = {"leader": ACKS_LEADER, "none": ACKS_NONE, "all": ACKS_ALL}
DURABILITIES = ("memory", "os", "disk")

# Error numbers. An error that has none travels as the nearest family above it.
ERROR_NUMBERS: dict[type[errors.VirtaError], int] = {
    errors.VirtaError: 1,
    errors.UsageError: 2,
    errors.NotFound: 3,
    errors.AlreadyExists: 4,
    errors.Conflict: 5,
    errors.SchemaMismatch: 6,
    errors.TooLarge: 7,
    errors.Denied: 8,
    errors.Locked: 9,
    errors.Fenced: 10,
    errors.Closed: 11,
    errors.UnavailableError: 32,
    errors.Unreachable: 33,
    errors.Timeout: 34,
    errors.NoSpace: 35,
    errors.StorageFailed: 36,
    errors.DamageError: 64,
    errors.Corrupt: 65,
    errors.HistoryChanged: 66,
}
# Outcomes that only the two sides see: the client prepares its rows anew and tries again.
TOPIC_CHANGED = 96
ROWS_ALREADY_THERE = 97
# The other side broke the protocol; the connection ends.
PROTOCOL_BROKEN = 98
