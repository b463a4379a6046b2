"""One frame of every type, as bytes, written once: `python -m tests.protocol.golden` adds what is missing.

A line is never changed: what a broker of today says, a client of yesterday has to understand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virta.protocol import connection, messages
from virta.protocol.codes import FrameType

FRAMES = Path(__file__).resolve().parents[1] / "golden" / "protocol-1" / "frames.txt"
BODIES = {FrameType.APPEND, FrameType.BLOCKS, FrameType.ROWS, FrameType.ADMINISTER, FrameType.ANSWER}


def known() -> dict[str, bytes]:
    lines = FRAMES.read_text(encoding="ascii").splitlines() if FRAMES.exists() else []
    return {name: bytes.fromhex(digits) for name, digits in (line.split(" ", 1) for line in lines)}


def example(name: str) -> Any:
    """A message with every field set, each to a value that follows from its number."""
    values: dict[str, Any] = {}
    for number, kind, field, _ in messages.MESSAGES[name]:
        plain = kind.removeprefix("repeated ")
        value = _value(plain, number, field)
        values[field] = [value] if kind != plain else value
    return messages.message(name)(**values)


def _value(kind: str, number: int, field: str) -> Any:
    if kind in messages.MESSAGES:
        return example(kind)
    if kind == "string":
        return f"{field} ä"
    if kind == "bytes":
        return bytes([number]) * 4
    if kind == "bool":
        return True
    if kind == "double":
        return number + 0.5
    return -number if kind == "int64" else 1000 * number


def made(type_: FrameType) -> bytes:
    body = [bytes(range(16))] if type_ in BODIES else []
    channel = 0 if type_ <= FrameType.GOODBYE else 7
    return b"".join(connection.frame(type_, channel, example(messages.HEADERS[type_]), *body))


def add_missing() -> None:
    there = known()
    lines = [f"{name} {data.hex(' ', 4)}" for name, data in there.items()]
    lines += [f"{type_.name} {made(type_).hex(' ', 4)}" for type_ in FrameType if type_.name not in there]
    FRAMES.parent.mkdir(exist_ok=True)
    FRAMES.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    add_missing()
