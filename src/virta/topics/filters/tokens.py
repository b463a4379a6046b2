"""The words of a filter: text cut into tokens, and errors that point into it.

    number     12  1.5  .5  1e9         name       plain  "quoted, "" for a quote"
    text       'it''s'                  bytes      x'00ff'
    operators  = == <> != < <= > >= + - * / %      marks  ( ) , .

Keywords are names without quotes, in any case. Knows no grammar and no types.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import NoReturn

from virta.errors import UsageError

# Every token costs a node and a kernel call; a filter this long was made by a mistake.
LENGTH_LIMIT = 64 * 1024


class Mark(enum.Enum):
    """What kind of word a token is."""

    NUMBER = "a number"
    TEXT = "a text"
    BYTES = "bytes"
    NAME = "a name"
    QUOTED = "a quoted name"
    SIGN = "a sign"
    END = "the end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One word, what it means, and where it stands."""

    mark: Mark
    text: str
    position: int

    def is_word(self, word: str) -> bool:
        """Whether this is the keyword, in any case."""
        return self.mark is Mark.NAME and self.text.lower() == word

    def is_sign(self, *signs: str) -> bool:
        return self.mark is Mark.SIGN and self.text in signs


_PATTERN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<bytes>[xX]'(?:[0-9a-fA-F]{2})*')
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")+")
  | (?P<name>[^\W\d]\w*)
  | (?P<sign><=|>=|<>|!=|==|[-=<>+*/%(),.])
    """,
    re.VERBOSE,
)


def cut(text: str) -> list[Token]:
    """The tokens of a filter; the last one is the end."""
    if len(text) > LENGTH_LIMIT:
        raise UsageError(f"a filter of {len(text):,} characters is over {LENGTH_LIMIT:,}")
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        found = _PATTERN.match(text, position)
        if found is None:
            refuse(text, position, _why_no_token(text[position]))
        if found.lastgroup != "space":
            tokens.append(_token(found))
        position = found.end()
        if found.lastgroup == "number" and text[position : position + 1].isidentifier():
            refuse(text, position, "a number ends here, and something else begins")
    tokens.append(Token(mark=Mark.END, text="", position=len(text)))
    return tokens


def _token(found: re.Match[str]) -> Token:
    text, mark = found[0], Mark[(found.lastgroup or "").upper()]
    if mark is Mark.TEXT:
        text = text[1:-1].replace("''", "'")
    elif mark is Mark.QUOTED:
        text = text[1:-1].replace('""', '"')
    elif mark is Mark.BYTES:
        text = text[2:-1]
    return Token(mark=mark, text=text, position=found.start())


def _why_no_token(character: str) -> str:
    if character == "'":
        return "this text has no closing '"
    if character == '"':
        return 'this name has no closing "'
    return f"{character!r} means nothing here"


# How much of a long filter an error shows on either side of the place it points at.
_SHOWN = 60


def pointing(text: str, position: int) -> str:
    """The part of the text around a place, and a caret under it."""
    start = max(0, position - _SHOWN)
    shown = re.sub(r"\s", " ", text[start : position + _SHOWN])
    lead = "…" if start else ""
    return f"\n  {lead}{shown}\n  {' ' * (len(lead) + position - start)}^"


def refuse(text: str, position: int, why: str) -> NoReturn:
    """Say what is wrong with a filter, and where."""
    raise UsageError(f"filter: {why}{pointing(text, position)}")
