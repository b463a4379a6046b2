"""What a hostile client may send: bytes, and how they are sent. Everything follows from a generator.

An attack is given a port and a random generator. It makes its own connections, and it need
not care what becomes of them; but it may not wait for long.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from virta.broker.administration import VERBS
from virta.broker.groups import VERBS as GROUP_VERBS
from virta.protocol import connection, messages
from virta.protocol.codes import FrameType
from virta.protocol.frames import encode

Attack = Callable[[int, random.Random], None]

# The good client's own, one to be asked for everything, and one that verbs may destroy.
TABLE, TOPIC, SANDBOX = "ledger", "victim", "sandbox"
# Half-open connections of one attack: more than a broker should keep without a word, fewer than descriptors.
HALF_OPEN = 2500
_SECONDS = 1.0
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


# -- talking ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as sock:
        yield sock


def hello() -> bytes:
    return b"".join(connection.hello("hostile"))


def framed(type_: int, channel: int, header: Any, body: bytes = b"") -> bytes:
    data = header if isinstance(header, bytes) else header.SerializeToString()
    return encode(type_, channel, data, len(body)) + body


def say(port: int, *pieces: bytes, listen: bool = True) -> None:
    """Send, take what comes for a moment, and go."""
    with contextlib.suppress(OSError), connected(port) as sock:
        for piece in pieces:
            sock.sendall(piece)
        sock.settimeout(0.05)
        while listen and sock.recv(1 << 16):
            pass


# -- bytes -----------------------------------------------------------------------------------------


def batch_body(rows: list[dict[str, Any]], *, compression: str | None = None) -> bytes:
    """What a good client sends as the body of an append."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=COLUMNS))
    return sink.getvalue().to_pybytes()[COLUMNS.serialize().size : -8]  # type: ignore[no-any-return]


def _rows(rng: random.Random) -> list[dict[str, Any]]:
    return [
        {"id": n, "text": "ä" * rng.randrange(20), "tags": ["a"] * rng.randrange(3)}
        for n in range(rng.choice((1, 2, 50)))
    ]


def append_of(body: bytes, *, channel: int = 1, version: int = 1) -> bytes:
    header = messages.message("Append")(topic=TOPIC, topic_version=version)
    return framed(FrameType.APPEND, channel, header, body + bytes(-len(body) % 8))


def _commit(rng: random.Random) -> Any:
    header = messages.message("GroupCommit")(group="g", topic=TOPIC, member="m")
    for _ in range(rng.randrange(3)):
        header.positions.add(
            partition=rng.choice((0, 0, 7, 1 << 31)),
            epoch=rng.getrandbits(rng.choice((1, 63))),
            offset=rng.getrandbits(rng.choice((3, 63))),
            hash=bytes(rng.choice((32, 32, 5))),
        )
    return header


def good_requests(rng: random.Random) -> list[bytes]:
    """One of each, as a good client sends them."""
    message = messages.message
    read = message("Read")(topic=TOPIC, max_bytes=1 << 20, wait_ms=1, credit=1 << 20)
    found = [
        append_of(batch_body(_rows(rng)), channel=1),
        *(
            framed(type_, 2 + at, read)
            for at, type_ in enumerate(
                (
                    FrameType.FETCH,
                    FrameType.FETCH_BATCH,
                    FrameType.POLL,
                    FrameType.LONG_POLL,
                    FrameType.STREAM,
                )
            )
        ),
        framed(FrameType.SELECT, 10, message("Select")(topic=TOPIC, filter="id > 1", credit=1 << 20)),
        framed(FrameType.SELECT, 11, message("Select")(topic=TABLE, table=True, credit=1 << 20)),
        framed(FrameType.SELECT, 12, message("Select")(topic=TABLE, changes=True, credit=1 << 20)),
        framed(FrameType.QUERY, 13, message("Query")(sql=f"select count(*) from {TOPIC}")),
        framed(FrameType.LOCATE, 14, message("Locate")(topic=TOPIC, offset=1)),
        framed(FrameType.POSITIONS, 15, message("Positions")(topic=TOPIC)),
        framed(FrameType.CLAIM, 16, message("Claim")(topic=TOPIC, name="hostile")),
        framed(
            FrameType.GROUP_HEARTBEAT,
            17,
            message("GroupHeartbeat")(
                group="g",
                topic=TOPIC,
                member="m",
                session_seconds=rng.choice((1, 0, -1, 1e300)),
                joining=True,
            ),
        ),
        framed(FrameType.GROUP_POSITIONS, 18, message("GroupPositions")(group="g", topic=TOPIC)),
        framed(FrameType.GROUP_WATCH, 19, message("GroupWatch")(group="g", topic=TOPIC, wait_ms=1)),
        framed(FrameType.GROUP_COMMIT, 20, _commit(rng)),
        framed(FrameType.HEARTBEAT, 0, message("Heartbeat")(number=1)),
        framed(FrameType.CREDIT, 6, message("Credit")(bytes=1 << 62)),
        framed(FrameType.CANCEL, 6, message("Cancel")()),
    ]
    for at, verb in enumerate(("topics", "topic", "stats", "schema", "verify")):
        header = message("Administer")(verb=verb, topic="" if verb == "topics" else TOPIC, arguments=b"{}")
        found.append(framed(FrameType.ADMINISTER, 30 + at, header))
    rng.shuffle(found)
    return found


def spoiled(data: bytes, rng: random.Random, *, first: int = 0) -> bytes:
    """Some bytes changed, cut out, repeated or put in."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(first, max(first + 1, len(found)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(found):
            found[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del found[at : at + rng.randrange(1, 20)]
        elif kind == 3:
            found[at:at] = found[at : at + rng.randrange(1, 20)]
        elif kind == 4 and at + 8 <= len(found):
            value = rng.choice((-1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), 8, 0))
            struct.pack_into("<q", found, at // 8 * 8 if at // 8 * 8 >= first else at, value)
        else:
            found[at:at] = rng.randbytes(rng.randrange(1, 16))
    return bytes(found)


# -- attacks ---------------------------------------------------------------------------------------


def random_bytes(port: int, rng: random.Random) -> None:
    before = rng.choice((b"", hello()))
    say(port, before + rng.randbytes(rng.choice((1, 15, 16, 100, 70_000))))


def spoiled_frames(port: int, rng: random.Random) -> None:
    """Good requests with some bytes changed."""
    pieces = [spoiled(each, rng) if rng.random() < 0.3 else each for each in good_requests(rng)]
    say(port, hello(), *pieces)


def spoiled_headers(port: int, rng: random.Random) -> None:
    """Frames that are frames, whose protobuf is not what it should be."""
    pieces = []
    for each in good_requests(rng):
        size, type_, channel, header_size = struct.unpack_from("<IIII", each)
        header = spoiled(each[16 : 16 + header_size], rng)
        body = each[16 + header_size + -header_size % 8 :]
        assert len(body) <= size
        pieces.append(framed(type_, channel, header, body))
    for each in pieces:
        say(port, hello() + each)


def truncated(port: int, rng: random.Random) -> None:
    whole = hello() + b"".join(good_requests(rng))
    say(port, whole[: rng.randrange(len(whole))], listen=rng.random() < 0.5)


def lying_sizes(port: int, rng: random.Random) -> None:
    """A frame that says it is larger than anything, or as large as is allowed, and never comes."""
    size = rng.choice((0xFFFFFFF8, 64 << 20, (64 << 20) + 8, 65_536 + 8, 12, 0, 1 << 31))
    header_size = rng.choice((0, 8, size, 0xFFFFFFFF))
    before = rng.choice((b"", hello()))
    say(port, before + struct.pack("<IIII", size, rng.choice((1, 16, 34)), 1, header_size) + bytes(1000))


def wrong_state(port: int, rng: random.Random) -> None:
    """Good frames where they have no place."""
    message = messages.message
    requests = good_requests(rng)
    choices = [
        requests,  # without a hello
        [hello(), hello()],
        [hello(), framed(FrameType.WELCOME, 0, message("Welcome")(version=1))],
        [hello(), framed(FrameType.APPENDED, 1, message("Appended")(base_offset=1))],
        [hello(), framed(FrameType.AUTHENTICATE, 0, message("Authenticate")(data=b"n,,n=a,r=bbbbbbbbbb"))],
        [hello(), framed(FrameType.AUTHENTICATE, 0, message("Authenticate")(mechanism="PLAIN", data=b"x"))],
        [hello(), framed(rng.choice((0, 12, 99, 4711, 0xFFFFFFFF)), 1, b"")],
        [hello(), framed(FrameType.GOODBYE, 0, message("Goodbye")()), *requests],
        [hello(), *(framed(FrameType.LONG_POLL, 5, message("Read")(topic=TOPIC, offset=1 << 40)),) * 2],
        [hello(), framed(FrameType.POLL, 0, message("Read")(topic=TOPIC))],
        [framed(FrameType.HELLO, 0, message("Hello")(versions=[7, 8, 9]))],
        [framed(FrameType.HELLO, 0, message("Hello")(versions=[1] * 20_000, client="\x1b[31m" * 1000))],
    ]
    say(port, *rng.choice(choices))


def lying_arrow(port: int, rng: random.Random) -> None:
    """Appends whose Arrow is spoiled: lengths, offsets, texts, counts of nulls and rows."""
    compression = rng.choice((None, None, "lz4", "zstd"))
    pieces = []
    for channel in range(1, 30):
        body = batch_body(_rows(rng), compression=compression)
        first = rng.choice((0, 8, len(body) // 2))
        pieces.append(append_of(spoiled(body, rng, first=first), channel=channel))
    say(port, hello(), *pieces)


def bombs(port: int, rng: random.Random) -> None:
    """Little that becomes much: honest about it, or not."""
    text = "x" * rng.choice((30 << 20, 200 << 20))
    row = {"id": 1, "text": text, "tags": None}
    body = bytearray(batch_body([row], compression=rng.choice(("lz4", "zstd"))))
    if rng.random() < 0.5:
        # wherever the promised size stands: promise less, or more than there is memory
        promised = struct.pack("<q", len(text))
        at = body.find(promised)
        if at >= 0:
            struct.pack_into("<q", body, at, rng.choice((8, 1 << 20, 1 << 50)))
    say(port, hello(), append_of(bytes(body)), listen=True)


def strange_words(port: int, rng: random.Random) -> None:
    """Filters, queries, verbs and JSON as nobody writes them."""
    message = messages.message
    deep = rng.choice((100, 5_000, 60_000))
    texts = [
        "(" * deep + "id = 1" + ")" * deep,
        "not " * deep + "true",
        "id = 1 and " * (deep // 10) + "id = 2",
        "id = " + "9" * deep,
        "text = '" + "\x00\n'' " * 50 + "'",
        "\x00",
        "",
        "id ; drop table victim",
        "nothing > 1",
        "text like '" + "%a" * 500 + "'",
    ]
    filtered = message("Select")(topic=rng.choice((TOPIC, TABLE)), filter=rng.choice(texts), credit=1 << 20)
    verbs = [*VERBS, *GROUP_VERBS, "nothing", ""]
    values: list[Any] = [None, -1, 1 << 70, 1.5, "x", [], {}, [[1]], {"a": {"b": None}}, True, "\ud800"]
    every = {name for verb in (VERBS | GROUP_VERBS).values() for name in verb.takes}
    names = [*sorted(every), "nothing"]
    arguments: Any = {rng.choice(names): rng.choice(values) for _ in range(rng.randrange(1, 4))}
    if rng.random() < 0.2:
        arguments = rng.choice(values)
    data = json.dumps(arguments).encode()
    if rng.random() < 0.1:
        data = b"[" * deep
    moment = rng.choice((-(1 << 63), (1 << 63) - 1))
    place = rng.getrandbits(64)
    as_of = rng.choice((b"{", b"[]", b'{"until_us": 1e300}', data))
    requests: list[tuple[FrameType, str, dict[str, Any]]] = [
        (FrameType.QUERY, "Query", {"sql": rng.choice(texts), "parameters": rng.choice((b"", b"{", b"[1]"))}),
        (FrameType.QUERY, "Query", {"handle": place, "credit": 5}),
        (
            FrameType.SELECT,
            "Select",
            {"topic": TABLE, "table": True, "as_of": as_of},
        ),
        (FrameType.SELECT, "Select", {"topic": TOPIC, "changes": True, "start": place}),
        (FrameType.SELECT, "Select", {"topic": TOPIC, "since_us": moment}),
        (FrameType.LOCATE, "Locate", {"topic": TOPIC, "block": rng.choice(("", "zz", "0" * 500, "ä"))}),
        (FrameType.LOCATE, "Locate", {"topic": TOPIC, "offset": place, "hash": b"short"}),
        (FrameType.LOCATE, "Locate", {"topic": TOPIC, "timestamp": moment}),
        (FrameType.POLL, "Read", {"topic": TOPIC, "offset": place, "end": rng.getrandbits(64)}),
        (FrameType.POLL, "Read", {"topic": TOPIC, "partition": rng.getrandbits(32), "hash": b""}),
        (FrameType.POLL, "Read", {"topic": rng.choice(("", "../..", "\x00", "x" * 5000, "__events"))}),
        (FrameType.CLAIM, "Claim", {"topic": TOPIC, "name": rng.choice(("", "n" * 5000, "\x00"))}),
    ]
    pieces = [framed(FrameType.SELECT, 1, filtered)]
    for channel, (type_, kind, fields) in enumerate(requests, 2):
        pieces.append(framed(type_, channel, message(kind)(**fields)))
    body = rng.choice((b"", bytes(64), COLUMNS.serialize().to_pybytes(), rng.randbytes(64)))
    for channel in range(20, 40):
        topic = rng.choice((SANDBOX, SANDBOX, "", "none"))
        header = message("Administer")(verb=rng.choice(verbs), topic=topic, arguments=data)
        pieces.append(framed(FrameType.ADMINISTER, channel, header, body))
    say(port, hello(), *pieces)


def half_open(port: int, rng: random.Random) -> None:
    """Connections that say nothing, or half a hello."""
    held = []
    with contextlib.suppress(OSError):
        for _ in range(HALF_OPEN):
            sock = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
            held.append(sock)
            if rng.random() < 0.5:
                sock.send(hello()[: rng.randrange(1, 16)])
    time.sleep(0.05)
    for sock in held:
        sock.close()


def slow_sender(port: int, rng: random.Random) -> None:
    """A frame byte by byte, from several at once."""
    whole = hello() + append_of(batch_body(_rows(rng)))
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(port)) for _ in range(20)]
        for at in range(rng.randrange(20, 60)):
            for sock in socks:
                sock.send(whole[at : at + 1])
            time.sleep(0.002)


def deaf_reader(port: int, rng: random.Random) -> None:
    """Asks for everything, over and over, and takes nothing."""
    message = messages.message
    with contextlib.suppress(OSError), connected(port) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(True)
        sock.settimeout(0.1)
        sock.sendall(hello())
        type_ = rng.choice((FrameType.POLL, FrameType.STREAM, FrameType.SELECT, FrameType.FETCH))
        kind = "Select" if type_ == FrameType.SELECT else "Read"
        for channel in range(1, 20_000):
            sock.sendall(framed(type_, channel, message(kind)(topic=TOPIC, credit=1 << 60)))


ATTACKS: dict[str, tuple[Attack, int]] = {
    # how often, of the whole
    "random bytes": (random_bytes, 6),
    "spoiled frames": (spoiled_frames, 8),
    "spoiled headers": (spoiled_headers, 4),
    "cut frames": (truncated, 6),
    "lying sizes": (lying_sizes, 6),
    "frames in the wrong state": (wrong_state, 8),
    "lying Arrow": (lying_arrow, 12),
    "bombs": (bombs, 2),
    "strange words": (strange_words, 12),
    "half-open connections": (half_open, 1),
    "slow senders": (slow_sender, 2),
    "deaf readers": (deaf_reader, 3),
}
