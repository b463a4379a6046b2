"""Tries the forms, the surest first; gives what was found as JSON values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from virta.console.payloads import avro, messagepack, protobuf
from virta.console.payloads.reader import Malformed

# Larger values are looked at as bytes: reading them here would keep the page waiting.
_MOST_BYTES = 1024 * 1024
_MOST_ITEMS = 200


def recognise(data: bytes, *, is_text: bool) -> list[dict[str, Any]]:
    """Findings, the likeliest first; empty when it is just text or unknown bytes."""
    if len(data) > _MOST_BYTES:
        return []
    for look in (_json, _container, _framed) if not is_text else (_json,):
        found = look(data)
        if found is not None:
            return [found]
    if is_text or _is_plain_text(data):
        return []
    return [found for look in (_messagepack, _protobuf) if (found := look(data)) is not None][:1]


def _json(data: bytes) -> dict[str, Any] | None:
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return _found("JSON", json.loads(data))
    except (ValueError, RecursionError):
        return None


def _container(data: bytes) -> dict[str, Any] | None:
    if not data.startswith(avro.MAGIC):
        return None
    note = "a container file, read with the schema it holds"
    return _tried("Avro", lambda: list(avro.read_container(data, limit=_MOST_ITEMS)), note)


def _framed(data: bytes) -> dict[str, Any] | None:
    """Avro whose schema is elsewhere: what its first bytes say."""
    frame = avro.frame_of(data)
    return None if frame is None else {"format": frame.format, "note": frame.note}


def _messagepack(data: bytes) -> dict[str, Any] | None:
    # numbers and short texts are valid by chance: only what holds others is believed
    if not messagepack.begins_collection(data):
        return None
    return _tried("MessagePack", lambda: messagepack.read(data), None)


def _protobuf(data: bytes) -> dict[str, Any] | None:
    note = "guessed without a schema: field numbers and wire types, no names"
    return _tried("Protobuf", lambda: protobuf.read(data), note)


def _tried(form: str, read: Callable[[], Any], note: str | None) -> dict[str, Any] | None:
    try:
        return _found(form, read(), note)
    except (Malformed, RecursionError):
        return None


def _found(form: str, value: Any, note: str | None = None) -> dict[str, Any]:
    return {"format": form, "value": as_json(value), **({} if note is None else {"note": note})}


def as_json(value: Any) -> Any:
    """What JSON can hold of a decoded value: bytes as text or base64."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$binary": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(as_json(key)): as_json(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > (1 << 53) - 1:
        return str(value)
    return value


def _is_plain_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(sign.isprintable() or sign in "\r\n\t" for sign in text)
