"""Text with nothing in it that a terminal would obey."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, json: bool = False) -> str:
    """The text with control characters spelled out: values never steer the terminal."""
    if not json:
        return _CONTROL.sub(_spelled, text)
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _spelled(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
