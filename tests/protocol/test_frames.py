"""Frames: cut the same however the bytes come, and refused when they are not as they must be."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virta.protocol.codes import FrameType
from virta.protocol.connection import Connection, Side, State, agree, frame
from virta.protocol.frames import BrokenProtocol, Receiver, encode_whole
from virta.protocol.messages import HEADERS, MESSAGES, as_proto, message, parse

FRAMES = st.lists(
    st.tuples(
        st.integers(1, 66),
        st.integers(0, (1 << 32) - 1),
        st.binary(max_size=40),
        st.binary(max_size=100).map(lambda data: data + bytes(-len(data) % 8)),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(FRAMES, st.lists(st.integers(1, 60), min_size=1))
def test_frames_come_through_however_they_are_cut(frames: list, sizes: list[int]) -> None:
    data = b"".join(b"".join(encode_whole(*each)) for each in frames)
    receiver, found, at = Receiver(), [], 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        found += receiver.feed(data[at : at + size])
        at += size
    assert [(each.type, each.channel, each.header, bytes(each.body)) for each in found] == frames
    assert receiver.waiting == 0


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ((12, 1, 0, 0), "multiple of 8"),
        ((0, 1, 0, 0), "multiple of 8"),
        ((1 << 20, 1, 0, 0), "over the"),
        ((16, 1, 0, 9), "longer than the frame"),
        ((8, 1, 0, 1), "longer than the frame"),
        ((0xFFFFFFF8, 1, 0, 0), "over the"),
    ],
)
def test_lengths_that_lie_are_refused_before_anything_is_held(head: tuple[int, ...], said: str) -> None:
    receiver = Receiver()
    with pytest.raises(BrokenProtocol, match=said):
        receiver.feed(struct.pack("<IIII", *head))


def test_padding_is_zero() -> None:
    data = struct.pack("<IIII", 16, 1, 0, 1) + b"\x00" + b"\x00\x00\x01" + bytes(4)
    with pytest.raises(BrokenProtocol, match="padding"):
        Receiver().feed(data)


def test_a_broker_wants_a_hello_first() -> None:
    broker = Connection(Side.BROKER)
    (early,) = broker.receive(b"".join(frame(FrameType.POSITIONS, 1, message("Positions")())))
    with pytest.raises(BrokenProtocol, match="positions has no place here"):
        broker.check(early)
    broker.enter(State.OPEN)
    broker.check(early)
    (answer,) = broker.receive(b"".join(frame(FrameType.BLOCKS, 1, message("Blocks")())))
    with pytest.raises(BrokenProtocol, match="blocks has no place here"):
        broker.check(answer)


def test_unknown_types_are_named() -> None:
    broker = Connection(Side.BROKER)
    broker.enter(State.OPEN)
    (unknown,) = broker.receive(b"".join(encode_whole(4711, 1)))
    with pytest.raises(BrokenProtocol, match="type 4711"):
        broker.check(unknown)


def test_headers_are_protobuf() -> None:
    with pytest.raises(BrokenProtocol, match="Append"):
        parse(FrameType.APPEND, b"\xff\xff\xff")


def test_versions_are_agreed_on() -> None:
    assert agree([1, 7]) == 1
    with pytest.raises(BrokenProtocol, match="versions"):
        agree([7])
    with pytest.raises(BrokenProtocol):
        agree([])


def test_every_type_has_a_header_and_every_header_a_description() -> None:
    assert set(HEADERS) == set(FrameType)
    assert set(HEADERS.values()) <= set(MESSAGES)
    text = as_proto()
    for name, fields in MESSAGES.items():
        assert f"message {name} {{" in text
        numbers = [number for number, *_ in fields]
        assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("type_", "header"),
    [
        (FrameType.APPEND, b"\x0a\x03a\xffb"),
        (FrameType.SELECT, b"\x42\x01\xff"),
    ],
)
def test_text_is_utf_8(type_: FrameType, header: bytes) -> None:
    with pytest.raises(BrokenProtocol, match="no UTF-8"):
        parse(type_, header)
