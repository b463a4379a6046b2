"""Nothing that is a secret of ours comes through."""

from __future__ import annotations

import pytest

from virta.security.redact import HIDDEN, redact, redact_text
from virta.security.tokens import new_token, split_token

TOKEN, _ = new_token("ada", now_us=0)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"login with {TOKEN} failed", split_token(TOKEN)[1]),
        ("virtas://ada:hunter2@host:7400/x", "hunter2"),
        ("virta://host?password=hunter2&x=1", "hunter2"),
        ("Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
        ("authorization=basic aHVudGVyMjpodW50ZXIy", "aHVudGVyMjpodW50ZXIy"),
    ],
)
def test_texts(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redact_text(text) and HIDDEN in redact_text(text)


def test_plain_texts_stay() -> None:
    for text in ("virtas://ada@host:7400", "t1AAAA", "a bearer of news", "orders@10:20", "12:30 x@y"):
        assert redact_text(text) == text


def test_fields_by_their_name_all_the_way_down() -> None:
    value = {
        "user": "ada",
        "password": "hunter2",
        "tls": {"key_file": "/etc/key.pem", "private_key": "-----BEGIN"},
        "list": [{"api_token": "x"}, f"said {TOKEN}"],
        "data": b"1234",
        "token_id": "3f9c",
        "stored_key": None,
        "has_password": True,
        7: 1.5,
    }
    shown = redact(value)
    assert shown == {
        "user": "ada",
        "password": HIDDEN,
        "tls": {"key_file": "/etc/key.pem", "private_key": HIDDEN},
        "list": [{"api_token": HIDDEN}, f"said {redact_text(TOKEN)}"],
        "data": "‹4 bytes›",
        "token_id": "3f9c",
        "stored_key": None,
        "has_password": True,
        "7": 1.5,
    }


@pytest.mark.parametrize("piece", ["y", "a.", "x://", "virta_", "?token=", "bearer ", "a://b:c"])
def test_long_texts_take_no_time(piece: str) -> None:
    assert redact_text(piece * 100_000)  # hours, if done badly
