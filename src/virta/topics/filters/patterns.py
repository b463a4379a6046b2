"""The patterns of `like`: % is any text, _ one character, \\ takes the next one as it is.

Arrow's own `match_like` reads a backslash differently where it takes a short cut, so the
pattern is read here, once. On bytes, _ is one byte. Knows patterns and nothing else.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc


class Wildcard(enum.Enum):
    """What stands for other text; the value is its regular expression."""

    ANY = ".*"
    ONE = "."


Part: TypeAlias = str | Wildcard

_WILDCARDS = {"%": Wildcard.ANY, "_": Wildcard.ONE}


def read_pattern(pattern: str) -> tuple[Part, ...] | None:
    """The texts and wildcards of a pattern, or None if it ends with a lone backslash."""
    parts: list[Part] = []
    text = ""
    characters = iter(pattern)
    for character in characters:
        wildcard = _WILDCARDS.get(character)
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                return None
            text += escaped
        elif wildcard is None:
            text += character
        else:
            parts += [text, wildcard] if text else [wildcard]
            text = ""
    return (*parts, text) if text else tuple(parts)


def prefix_of(parts: Sequence[Part]) -> str:
    """What every text that matches begins with."""
    return parts[0] if parts and isinstance(parts[0], str) else ""


def matcher(parts: Sequence[Part], *, ignores_case: bool) -> Callable[[Any], Any]:
    """A test of texts or bytes, by the quickest kernel that will do."""
    any_text = Wildcard.ANY
    match parts:
        case []:
            return lambda array: pc.equal(array, pa.scalar("", array.type))
        case [str(text)] if not ignores_case:
            return lambda array: pc.equal(array, pa.scalar(_of_type(text, array.type), array.type))
        case [str(text), end] if end is any_text:
            return lambda array: pc.starts_with(array, text, ignore_case=ignores_case)
        case [start, str(text)] if start is any_text:
            return lambda array: pc.ends_with(array, text, ignore_case=ignores_case)
        case [start, str(text), end] if start is end is any_text:
            return lambda array: pc.match_substring(array, text, ignore_case=ignores_case)
    expression = _expression(parts)
    return lambda array: pc.match_substring_regex(array, expression, ignore_case=ignores_case)


def _expression(parts: Sequence[Part]) -> str:
    middle = "".join(part.value if isinstance(part, Wildcard) else re.escape(part) for part in parts)
    return rf"(?s)\A{middle}\z"


def _of_type(text: str, kind: pa.DataType) -> str | bytes:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return text if is_text else text.encode()
