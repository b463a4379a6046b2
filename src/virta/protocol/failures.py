"""Errors as messages and back: number, code, message, hint, and the fields each kind has."""

from __future__ import annotations

from typing import Any

from virta import errors
from virta.protocol.codes import ERROR_NUMBERS, PROTOCOL_BROKEN
from virta.protocol.frames import BrokenProtocol
from virta.protocol.messages import message

# Longer than any message that is meant to be read.
_TEXT_LIMIT = 4096
_BY_NUMBER = {number: kind for kind, number in ERROR_NUMBERS.items()}
# Fields of errors that travel; what an error does not have is left out.
_FIELDS = (
    "expected", "actual", "column", "row", "size", "limit",
    "topic", "partition", "file", "position", "offset", "oldest",
)  # fmt: skip


def number_of(kind: type[BaseException]) -> int:
    """The number of the error, or of the nearest kind above it that has one."""
    if issubclass(kind, BrokenProtocol):
        return PROTOCOL_BROKEN
    for each in kind.__mro__:
        found = ERROR_NUMBERS.get(each)
        if found is not None:
            return found
    return ERROR_NUMBERS[errors.UnavailableError]


def to_message(error: BaseException) -> Any:
    """The header of an error frame."""
    known = isinstance(error, errors.VirtaError)
    answer = message("Error")(
        number=number_of(type(error)),
        code=error.code if isinstance(error, errors.VirtaError) else "internal",
        message=_sendable(error.message)
        if isinstance(error, errors.VirtaError)
        else f"the broker could not do it: {type(error).__name__}",
    )
    if isinstance(error, errors.VirtaError) and error.hint:
        answer.hint = _sendable(error.hint)
    for name in _FIELDS if known else ():
        value = getattr(error, name, None)
        if value is None:
            continue
        if isinstance(value, int) and abs(value) < 1 << 63:
            answer.details.add(name=name, number=value)
        else:
            answer.details.add(name=name, text=_sendable(str(value)))
    return answer


def _sendable(text: str) -> str:
    """What a message repeats of somebody's words may be of any length, and no text at all."""
    if len(text) > _TEXT_LIMIT:
        text = text[:_TEXT_LIMIT] + "…"
    return text.encode("utf-8", "replace").decode()


def plain(number: int, code: str, text: str, **details: int) -> Any:
    """The header of an error frame that is no VirtaError."""
    answer = message("Error")(number=number, code=code, message=text)
    for name, value in details.items():
        answer.details.add(name=name, number=value)
    return answer


def details_of(answer: Any) -> dict[str, Any]:
    return {each.name: each.number if each.HasField("number") else each.text for each in answer.details}


def to_error(answer: Any) -> errors.VirtaError:
    """The error that a message means."""
    details = details_of(answer)
    hint = answer.hint or None
    if answer.number == PROTOCOL_BROKEN:
        return BrokenProtocol(answer.message, hint=hint)
    kind = _BY_NUMBER.get(answer.number) or _family(answer.number)
    made = kind.__new__(kind)
    errors.VirtaError.__init__(made, answer.message, hint=hint)
    for name in ("topic", "partition", "file", "position", "offset"):
        if issubclass(kind, errors.DamageError):
            setattr(made, name, details.pop(name, None))
    if issubclass(kind, errors.HistoryChanged):
        from virta.requests import parse_token

        made.oldest = parse_token(details["oldest"]) if details.get("oldest") else None  # type: ignore[attr-defined]
    for name, value in details.items():
        if name in _FIELDS and name != "oldest":
            setattr(made, name, value)
    for name in _OWN.get(kind, ()):
        if not hasattr(made, name):
            setattr(made, name, None)
    return made


_OWN: dict[type[errors.VirtaError], tuple[str, ...]] = {
    errors.Conflict: ("expected", "actual"),
    errors.SchemaMismatch: ("column", "row"),
    errors.TooLarge: ("column", "row", "size", "limit"),
}


def _family(number: int) -> type[errors.VirtaError]:
    """What a number not known here stands for: 2 to 31 usage, 32 to 63 environment, 64 to 95 damage."""
    if 2 <= number < 32:
        return errors.UsageError
    if 64 <= number < 96:
        return errors.DamageError
    return errors.UnavailableError
