"""API tokens: a name and a random secret in one word, for programs.

    virta_3f9c1a7b2d04_<43 characters>
          id, in lists  secret: 256 random bits, shown once

A token stands for a user and may be allowed less than that user. The broker keeps a SCRAM
verifier of the secret, as of a password, and a client logs in with user name `token:<id>`: a
token is never sent either, and a login with it can be bound to the TLS connection.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from virta.errors import UsageError
from virta.security.permissions import Grant
from virta.security.scram import LEAST_ITERATIONS, Verifier, make_verifier

PREFIX = "token:"
_TOKEN = re.compile(r"virta_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_\-]{43})")
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What the broker knows of a token."""

    id: str
    user: str
    verifier: Verifier
    created_us: int
    expires_us: int | None = None
    note: str = ""
    # None: all that its user may.
    only: tuple[Grant, ...] | None = None

    def has_expired(self, now_us: int) -> bool:
        return self.expires_us is not None and now_us >= self.expires_us


def new_token(
    user: str,
    *,
    now_us: int,
    expires_us: int | None = None,
    note: str = "",
    only: tuple[Grant, ...] | None = None,
) -> tuple[str, Token]:
    """A token's text, which is nowhere kept, and what the broker keeps of it."""
    identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    token = Token(
        id=identity,
        user=user,
        # A secret of 256 bits cannot be tried out, so iterations would buy nothing.
        verifier=make_verifier(secret, iterations=LEAST_ITERATIONS),
        created_us=now_us,
        expires_us=expires_us,
        note=note,
        only=only,
    )
    return f"virta_{identity}_{secret}", token


def split_token(text: str) -> tuple[str, str]:
    """A token's id and secret; the error does not repeat the text."""
    found = _TOKEN.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            "this is no API token", hint="tokens begin with virta_ and are printed once: virta token create"
        )
    return found["id"], found["secret"]


def is_token_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None
