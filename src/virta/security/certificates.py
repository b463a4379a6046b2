"""From a client's certificate, already checked by TLS, to the name of a user.

The name is the first of: a subject alternative name of the form `URI:virta:user:NAME`, the
e-mail address there, the common name of the subject. A name with characters that no user can
have names nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from virta.errors import UsageError
from virta.security.principal import check_user_name

URI_PREFIX = "virta:user:"


def user_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The user a certificate names, as `ssl.SSLSocket.getpeercert()` gives it; None: nobody."""
    for name in _names(certificate or {}):
        try:
            return check_user_name(name)
        except UsageError:
            return None  # a name that is no user's is not to be passed over for a lesser one
    return None


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    alternatives = certificate.get("subjectAltName", ())
    for kind, value in alternatives:
        if kind == "URI" and value.startswith(URI_PREFIX):
            yield value.removeprefix(URI_PREFIX)
    for kind, value in alternatives:
        if kind == "email":
            yield value
    for parts in certificate.get("subject", ()):
        for kind, value in parts:
            if kind == "commonName":
                yield value
