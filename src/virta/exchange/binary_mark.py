"""Bytes that are no text, in JSON: {"$binary": "<base64>"}. Knows no Arrow."""

from __future__ import annotations

import base64
import binascii
from typing import Any

BINARY_MARK = "$binary"

# How a cell of csv or tsv begins that holds the mark.
MARK_BEGINS = '{"' + BINARY_MARK


def as_mark(data: bytes | str) -> dict[str, str]:
    data = data.encode() if isinstance(data, str) else data
    return {BINARY_MARK: base64.b64encode(data).decode("ascii")}


def bytes_of(value: Any) -> bytes:
    """The bytes of text, or of a mark; ValueError for anything else."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {BINARY_MARK}:
        try:
            return base64.b64decode(value[BINARY_MARK], validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error
    raise ValueError("neither text nor marked bytes")
