"""Frames of protocol 1, written once: they are understood for ever."""

from __future__ import annotations

import pytest

from tests.protocol import golden, independent
from virta.protocol import messages
from virta.protocol.codes import FrameType
from virta.protocol.frames import Receiver

GOLDEN = golden.known()


def test_there_is_one_of_every_type() -> None:
    missing = {type_.name for type_ in FrameType} - GOLDEN.keys()
    assert not missing, "python -m tests.protocol.golden adds them"


@pytest.mark.parametrize("name", GOLDEN)
def test_it_is_read_as_it_was_meant(name: str) -> None:
    (frame,) = Receiver().feed(GOLDEN[name])
    type_ = FrameType[name]
    assert frame.type == type_
    header = messages.parse(frame.type, frame.header)
    wanted = golden.example(messages.HEADERS[type_])
    for field, value in header.ListFields():
        assert getattr(wanted, field.name) == value, "fields are never given another meaning"
    assert bytes(frame.body) == (bytes(range(16)) if type_ in golden.BODIES else b"")


@pytest.mark.parametrize("name", GOLDEN)
def test_it_is_written_as_it_was(name: str) -> None:
    """Until a message gets new fields, whose example then is longer."""
    (frame,) = Receiver().feed(GOLDEN[name])
    header = messages.parse(frame.type, frame.header)
    assert header.SerializeToString() == frame.header
    assert golden.made(FrameType[name])[16:].startswith(frame.header) or len(
        independent.read_fields(frame.header)
    ) < len(messages.MESSAGES[messages.HEADERS[FrameType[name]]])
