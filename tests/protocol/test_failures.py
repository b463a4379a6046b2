"""Errors come out of the wire as they went in."""

from __future__ import annotations

from typing import Any

import pytest

import virta
from virta import errors
from virta.protocol.codes import ERROR_NUMBERS
from virta.protocol.failures import number_of, to_error, to_message
from virta.types import Token

TOKEN = Token(partition=0, offset=7, hash=bytes(32))
ERRORS: list[Any] = [
    errors.UsageError("so not", hint="so"),
    errors.Conflict(expected=3, actual=5),
    errors.SchemaMismatch("no", column="id", row=3),
    errors.TooLarge("too much", column="id", row=1, size=10, limit=5),
    errors.NoSpace("full"),
    errors.Corrupt("bad", topic="orders", partition=0, file="a", position=8, offset=2),
    errors.HistoryChanged("gone", oldest=TOKEN, topic="orders"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_travels_whole(error: Any) -> None:
    sent = to_message(error)
    came = to_error(type(sent).FromString(sent.SerializeToString()))
    assert type(came) is type(error)
    assert (str(came), came.hint) == (str(error), error.hint)
    assert vars(came) == vars(error)


def test_what_nobody_expected_tells_nothing_of_the_inside() -> None:
    came = to_error(to_message(RuntimeError("the password is 123")))
    assert isinstance(came, virta.UnavailableError)
    assert "123" not in str(came)


def test_numbers_are_given_once() -> None:
    assert len(set(ERROR_NUMBERS.values())) == len(ERROR_NUMBERS)


def test_every_error_has_a_number_or_a_family_with_one() -> None:
    for name in virta.__all__:
        kind = getattr(virta, name)
        if isinstance(kind, type) and issubclass(kind, errors.VirtaError):
            assert number_of(kind) in ERROR_NUMBERS.values()
            assert kind.__module__ != "virta.errors" or kind in ERROR_NUMBERS, (
                f"{name} has no number yet: give it the next free one in protocol/codes.py"
            )
