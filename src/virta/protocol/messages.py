"""The protobuf headers of frames, described at run time from the table below.

There is no generated code: a table makes the descriptors, so no version of a generator has
to fit the version of the library. `as_proto` writes the same table as a `.proto` file, for
clients in other languages; it stands in docs/protocol.md.

Numbers of fields are never used twice. A reader passes over fields it does not know.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from virta.protocol.codes import FrameType
from virta.protocol.frames import BrokenProtocol

_KINDS = {"double": 1, "int64": 3, "uint64": 4, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}

# message → fields: number, kind (`repeated` before it for lists), name, what it means
MESSAGES: dict[str, tuple[tuple[int, str, str, str], ...]] = {
    "Hello": (
        (1, "repeated uint32", "versions", "versions of the protocol the client speaks"),
        (2, "string", "client", "name and version of the client, for the broker's log"),
        (3, "uint32", "frame_limit", "the largest frame the client takes"),
    ),
    "Welcome": (
        (1, "uint32", "version", "the version spoken from here on"),
        (2, "string", "broker", "name and version of the broker"),
        (3, "bytes", "log_id", "the log's id, 16 bytes"),
        (4, "string", "principal", "who the broker takes the client for"),
        (5, "uint32", "frame_limit", "the largest frame the broker takes"),
        (6, "uint32", "requests", "requests in flight the broker takes; beyond it, it reads no further"),
        (7, "repeated string", "mechanisms", "logins that are offered, the best first"),
    ),
    "Authenticate": (
        (1, "string", "mechanism", "which login begins; left out in its further messages"),
        (2, "bytes", "data", "the mechanism's message"),
    ),
    "Challenge": (
        (1, "bytes", "data", "the mechanism's message"),
        (2, "bool", "done", "the client is logged in"),
        (3, "string", "principal", "who the broker takes the client for now"),
    ),
    "Heartbeat": ((1, "uint64", "number", "given back in the answer"),),
    "Goodbye": ((1, "string", "reason", "for people"),),
    "Detail": (
        (1, "string", "name", "name of a field of the error"),
        (2, "string", "text", "its value, where it is text"),
        (3, "int64", "number", "its value, where it is a number"),
    ),
    "Error": (
        (1, "uint32", "number", "which error; see the table"),
        (2, "string", "code", "its name, for logs"),
        (3, "string", "message", "what went wrong"),
        (4, "string", "hint", "what to do"),
        (5, "repeated Detail", "details", "the error's fields"),
    ),
    "Done": (),
    "Cancel": (),
    "Credit": ((1, "uint64", "bytes", "bytes of bodies the client takes beyond what it has allowed before"),),
    "Append": (
        (1, "string", "topic", ""),
        (2, "uint32", "partition", ""),
        (3, "uint64", "topic_version", "the version of the topic that the rows were encoded for"),
        (4, "uint64", "producer", "a claimed number, or one drawn at random for retries"),
        (5, "uint32", "producer_epoch", "as claimed; 0: drawn at random"),
        (6, "uint64", "sequence", "of the first row, counted per producer and partition"),
        (7, "uint64", "expected_offset", "only if the next offset is this one; left out: wherever it is"),
        (8, "uint32", "acks", "0 leader, 1 none (no answer comes), 2 all"),
        (9, "bytes", "topic_id", "the topic's id, so that one made again is not mistaken for it"),
        (10, "string", "source", "a named producer's position in the source of these rows, kept with them"),
    ),
    "Appended": (
        (1, "uint64", "base_offset", "of the first row"),
        (2, "uint32", "rows", ""),
        (3, "bytes", "hash", "of the block: the head after it"),
        (4, "uint32", "durability", "reached: 0 memory, 1 os, 2 disk"),
        (5, "uint32", "acks", "reached: 0 leader, 2 all"),
        (6, "bool", "duplicate", "the rows had been appended before; nothing was written again"),
    ),
    "Claim": (
        (1, "string", "topic", ""),
        (2, "uint32", "partition", ""),
        (3, "string", "name", "the producer's name"),
    ),
    "Claimed": (
        (1, "uint64", "producer", "its number"),
        (2, "uint32", "epoch", "holders before this one are fenced"),
        (3, "uint64", "sequence", "of its next row"),
    ),
    "Read": (
        (1, "string", "topic", ""),
        (2, "uint32", "partition", ""),
        (3, "uint64", "offset", "from the block that holds this offset"),
        (
            4,
            "bytes",
            "hash",
            "before that block; checked where given: together with the offset it is a token",
        ),
        (5, "uint64", "end", "FetchBatch, Stream: up to the block that holds the offset before this one"),
        (6, "uint64", "max_bytes", "stop after so many bytes of blocks, but give at least one"),
        (7, "uint32", "wait_ms", "LongPoll: wait so long for something to be there"),
        (8, "uint64", "credit", "Stream: bytes the client takes before it gives more"),
        (9, "bytes", "topic_id", ""),
    ),
    "Blocks": (
        (1, "uint32", "count", "blocks in the body"),
        (2, "bytes", "previous", "the hash before the first of them"),
        (3, "uint64", "next_offset", "the partition's next offset"),
        (4, "uint64", "topic_version", "in force"),
        (5, "bool", "last", "Stream: the end that was asked for is reached"),
    ),
    "Select": (
        (1, "string", "topic", ""),
        (2, "uint32", "partition", ""),
        (3, "uint64", "start", "offsets from here"),
        (4, "uint64", "end", "up to here"),
        (5, "int64", "since_us", "rows stamped at this moment or later"),
        (6, "int64", "until_us", "rows stamped before"),
        (7, "string", "filter", "an SQL expression over the columns"),
        (8, "repeated string", "columns", "none: all, with _offset and _timestamp"),
        (9, "uint64", "limit", "rows; left out: all"),
        (10, "uint64", "credit", "bytes the client takes before it gives more"),
        (11, "bool", "count", "answer with their number alone"),
        (12, "bytes", "topic_id", ""),
        (13, "bool", "table", "the newest row of each key, over all partitions"),
        (14, "bytes", "as_of", 'table: JSON, {"offsets": {partition: offset}} or {"until_us": moment}'),
        (15, "bool", "changes", "what rows did to the table of an update topic, from start or since_us on"),
        (
            16,
            "uint64",
            "handle",
            "changes: as the answer before had it, so that the broker need not begin anew",
        ),
    ),
    "Query": (
        (1, "string", "sql", "one statement that reads; the answer has its columns and a handle"),
        (2, "bytes", "parameters", "JSON: a list or an object"),
        (3, "uint64", "handle", "instead of sql: run the query of this handle"),
        (4, "uint64", "credit", "bytes the client takes before it gives more"),
        (5, "bool", "forget", "the handle is needed no more"),
    ),
    "Rows": (
        (1, "uint64", "rows", "in the body, or counted"),
        (2, "bool", "last", "nothing follows"),
        (3, "uint64", "handle", "of a query whose topics are fixed to their rows of now; of changes"),
        (4, "repeated string", "columns", "of that query"),
        (5, "uint64", "next_offset", "changes: where they go on"),
    ),
    "Locate": (
        (1, "string", "topic", ""),
        (2, "uint32", "partition", ""),
        (3, "uint64", "offset", "the place of this offset"),
        (4, "bytes", "hash", "with the offset: is this token still true?"),
        (5, "int64", "timestamp", "the first row that is not older"),
        (6, "string", "block", "hexadecimal digits that a block's hash begins with"),
        (7, "bytes", "topic_id", ""),
    ),
    "Located": (
        (1, "uint64", "offset", ""),
        (2, "bytes", "hash", "before the block that holds it"),
    ),
    "Positions": (
        (1, "string", "topic", ""),
        (2, "uint32", "partition", ""),
        (3, "bytes", "topic_id", ""),
    ),
    "PositionsAnswer": (
        (1, "uint64", "start_offset", ""),
        (2, "uint64", "next_offset", ""),
        (3, "uint64", "durable_offset", ""),
        (4, "bytes", "head", ""),
        (5, "uint64", "topic_version", ""),
        (6, "uint64", "rows", "fewer than offsets where rows were compacted or erased"),
    ),
    "Administer": (
        (1, "string", "verb", "see the table"),
        (2, "string", "topic", ""),
        (3, "bytes", "arguments", "JSON: an object"),
        (4, "bytes", "topic_id", ""),
    ),
    "Answer": ((1, "bytes", "value", "JSON"),),
    "Progress": ((1, "bytes", "value", "JSON"),),
    "GroupPartition": (
        (1, "uint32", "partition", ""),
        (2, "uint64", "epoch", "of the assignment: the number that this partition was given under"),
    ),
    "GroupPosition": (
        (1, "uint32", "partition", ""),
        (2, "uint64", "epoch", "GroupCommit: the assignment it is held by; an older one is fenced"),
        (3, "uint64", "offset", "with the hash: the token up to which rows are done"),
        (4, "bytes", "hash", "before the block that holds the offset"),
        (5, "uint32", "attempts", "how often the row at the offset has failed"),
    ),
    "GroupHeartbeat": (
        (1, "string", "group", ""),
        (2, "string", "topic", ""),
        (3, "bytes", "topic_id", ""),
        (4, "string", "member", "a name of this member alone, drawn by the client"),
        (5, "string", "instance", "a name that stays over restarts, where the member has one"),
        (6, "repeated GroupPartition", "owned", "what it holds; what is not named is given up"),
        (7, "double", "session_seconds", "silent for so long, it is taken for gone"),
        (8, "bool", "joining", "its first heartbeat"),
        (9, "bool", "leaving", "its last"),
    ),
    "GroupAssignment": (
        (1, "uint64", "epoch", "rises when members come or go"),
        (2, "repeated GroupPartition", "partitions", "the member's own"),
        (3, "repeated uint32", "revoked", "of these: to be committed and given up"),
        (4, "uint64", "generation", "another one than before: something may have changed"),
        (5, "double", "heartbeat_seconds", "when to speak up again, at the latest"),
    ),
    "GroupCommit": (
        (1, "string", "group", ""),
        (2, "string", "topic", ""),
        (3, "bytes", "topic_id", ""),
        (4, "string", "member", ""),
        (5, "repeated GroupPosition", "positions", "all are noted, or none"),
    ),
    "GroupPositions": (
        (1, "string", "group", ""),
        (2, "string", "topic", ""),
        (3, "bytes", "topic_id", ""),
    ),
    "GroupPositionsAnswer": ((1, "repeated GroupPosition", "positions", "where the group stands"),),
    "GroupWatch": (
        (1, "string", "group", ""),
        (2, "string", "topic", ""),
        (3, "bytes", "topic_id", ""),
        (4, "uint64", "generation", "answer when it is another one"),
        (5, "uint32", "wait_ms", "or after this time"),
    ),
    "GroupChanged": ((1, "uint64", "generation", "of now"),),
    "GroupLetter": (
        (1, "uint32", "partition", ""),
        (2, "uint64", "epoch", "of the assignment it is held by"),
        (3, "uint64", "offset", "of the row"),
        (4, "uint32", "attempts", "how often it failed"),
        (5, "string", "error_type", ""),
        (6, "string", "error", "the last error's message"),
        (7, "string", "traceback", "the end of it"),
    ),
    "GroupSetAside": (
        (1, "string", "group", ""),
        (2, "string", "topic", ""),
        (3, "bytes", "topic_id", ""),
        (4, "string", "member", ""),
        (5, "repeated GroupLetter", "letters", "rows that go to the topic's dead letters"),
    ),
}

# which message is the header of which frame
HEADERS: dict[FrameType, str] = {
    FrameType.HELLO: "Hello",
    FrameType.WELCOME: "Welcome",
    FrameType.CHALLENGE: "Challenge",
    FrameType.AUTHENTICATE: "Authenticate",
    FrameType.HEARTBEAT: "Heartbeat",
    FrameType.HEARTBEAT_ANSWER: "Heartbeat",
    FrameType.GOODBYE: "Goodbye",
    FrameType.ERROR: "Error",
    FrameType.DONE: "Done",
    FrameType.CANCEL: "Cancel",
    FrameType.CREDIT: "Credit",
    FrameType.APPEND: "Append",
    FrameType.APPENDED: "Appended",
    FrameType.CLAIM: "Claim",
    FrameType.CLAIMED: "Claimed",
    FrameType.FETCH: "Read",
    FrameType.FETCH_BATCH: "Read",
    FrameType.POLL: "Read",
    FrameType.LONG_POLL: "Read",
    FrameType.STREAM: "Read",
    FrameType.BLOCKS: "Blocks",
    FrameType.SELECT: "Select",
    FrameType.QUERY: "Query",
    FrameType.ROWS: "Rows",
    FrameType.LOCATE: "Locate",
    FrameType.LOCATED: "Located",
    FrameType.POSITIONS: "Positions",
    FrameType.POSITIONS_ANSWER: "PositionsAnswer",
    FrameType.ADMINISTER: "Administer",
    FrameType.ANSWER: "Answer",
    FrameType.PROGRESS: "Progress",
    FrameType.GROUP_HEARTBEAT: "GroupHeartbeat",
    FrameType.GROUP_ASSIGNMENT: "GroupAssignment",
    FrameType.GROUP_COMMIT: "GroupCommit",
    FrameType.GROUP_POSITIONS: "GroupPositions",
    FrameType.GROUP_POSITIONS_ANSWER: "GroupPositionsAnswer",
    FrameType.GROUP_WATCH: "GroupWatch",
    FrameType.GROUP_CHANGED: "GroupChanged",
    FrameType.GROUP_SET_ASIDE: "GroupSetAside",
}


# fields of each frame's header that are text
_TEXTS: dict[int, tuple[str, ...]] = {
    int(type_): tuple(field for _, kind, field, _ in MESSAGES[name] if kind.endswith("string"))
    for type_, name in HEADERS.items()
}


class _Known(NamedTuple):
    by_name: dict[str, Any]
    by_type: dict[int, Any]


@functools.cache
def _known() -> _Known:
    """The message classes, made when the first frame is."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="virta.proto", package="virta", syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, kind, field, _ in fields:
            label, _, plain = kind.rpartition(" ")
            added = message.field.add(name=field, number=number, label=3 if label else 1)
            if plain in _KINDS:
                added.type = _KINDS[plain]  # type: ignore[assignment]
            else:
                added.type = 11  # type: ignore[assignment]
                added.type_name = f".virta.{plain}"
    # a pool of our own: another library may have a `virta.proto` as well
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    by_name = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"virta.{name}"))
        for name in MESSAGES
    }
    return _Known(by_name, {int(type_): by_name[name] for type_, name in HEADERS.items()})


def message(name: str) -> Any:
    """The class of a message."""
    return _known().by_name[name]


def parse(type_: int, header: bytes) -> Any:
    """The header of a frame; BrokenProtocol when it is none."""
    kind = _known().by_type.get(type_)
    if kind is None:
        raise BrokenProtocol(
            f"frames of type {type_} are not known here", hint="use a newer version of virta"
        )
    try:
        found = kind.FromString(header)
    except Exception as error:  # protobuf's own error, without importing it here
        raise BrokenProtocol(
            f"the header of a frame of type {type_} is not a {HEADERS[FrameType(type_)]}"
        ) from error
    for name in _TEXTS[type_]:
        text = getattr(found, name)
        # what is no UTF-8 comes as bytes
        if type(text) is not str and (type(text) is bytes or any(type(each) is bytes for each in text)):
            raise BrokenProtocol(f"the field {name} of a frame of type {type_} is no UTF-8")
    return found


def as_proto() -> str:
    """The table as a `.proto` file."""
    lines = ['syntax = "proto2";', "package virta;"]
    for name, fields in MESSAGES.items():
        lines += ["", f"message {name} {{"]
        for number, kind, field, meaning in fields:
            label = "" if kind.startswith("repeated ") else "optional "
            said = f"  // {meaning}" if meaning else ""
            lines.append(f"  {label}{kind} {field} = {number};{said}")
        lines.append("}")
    return "\n".join(lines) + "\n"
