"""Names in certificates, and what a login is bound to."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from virta.errors import UsageError
from virta.security.binding import end_point, fingerprint, parse_fingerprint
from virta.security.certificates import user_of


def certificate(common: str | None = None, *alternatives: tuple[str, str]) -> dict[str, Any]:
    subject = () if common is None else ((("commonName", common),),)
    return {"subject": subject, "subjectAltName": alternatives}


@pytest.mark.parametrize(
    ("given", "user"),
    [
        (certificate("ada"), "ada"),
        (certificate("ada", ("email", "bob@example.org")), "bob@example.org"),
        (certificate("ada", ("email", "b@c"), ("URI", "virta:user:eve")), "eve"),
        (certificate("ada", ("DNS", "host"), ("URI", "https://x")), "ada"),
        (certificate("ada", ("URI", "virta:user:not a name")), None),
        (certificate("everyone"), None),
        (certificate("token:3f"), None),
        (certificate(), None),
        (None, None),
        ({}, None),
    ],
)
def test_names(given: dict[str, Any] | None, user: str | None) -> None:
    assert user_of(given) == user


def test_fingerprints_in_every_usual_form() -> None:
    data = b"certificate"
    wanted, digits = fingerprint(data), hashlib.sha256(data).hexdigest()
    colons = ":".join(digits[at : at + 2] for at in range(0, 64, 2)).upper()
    for text in (wanted, digits, colons, f"SHA256:{colons}", f" sha-256:{digits}\n"):
        assert parse_fingerprint(text) == wanted
    for bad in ("", "sha256:", digits[:-1], digits[:-1] + "g", f"sha1:{digits}"):
        with pytest.raises(UsageError, match="fingerprint"):
            parse_fingerprint(bad)


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x82\xff\xff", b"\x31\x00", bytes(100), b"\x30\x80\x30\x80"]
)
def test_what_is_no_certificate(data: bytes) -> None:
    with pytest.raises(UsageError, match="not readable"):
        end_point(data)
