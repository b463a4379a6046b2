"""Passwords in one form (SASLprep, RFC 4013): however a keyboard composes an umlaut, it is the same."""

from __future__ import annotations

import stringprep
import unicodedata

from virta.errors import UsageError

_FORBIDDEN = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """The text as SCRAM hashes it, or a UsageError; never says what the text was."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    for each in prepared:
        if any(forbidden(each) for forbidden in _FORBIDDEN) or stringprep.in_table_a1(each):
            raise UsageError(
                f"the password holds a character that cannot be used: U+{ord(each):04X}",
                hint="leave out control characters and characters without a meaning",
            )
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """Text that runs from right to left does so from its first character to its last."""
    right_to_left = [stringprep.in_table_d1(each) for each in text]
    if not any(right_to_left):
        return
    if any(stringprep.in_table_d2(each) for each in text) or not (right_to_left[0] and right_to_left[-1]):
        raise UsageError("the password mixes letters that run to the left with such that run to the right")
