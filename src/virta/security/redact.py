"""Secrets kept out of what people and machines read: logs, errors, printed configurations.

Two ways, together: fields whose name says that they hold a secret are replaced, and texts are
searched for what looks like one of ours (an API token, a password in an address).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "‹hidden›"

_SECRET_NAMES = re.compile(
    r"password|passphrase|secret|token|credential|authorization|cookie|private|proof|salt|stored_key|server_key|decoy",
    re.IGNORECASE,
)
# What is named so and says nothing: where a secret lies, whose it is, when it ends.
_HARMLESS = re.compile(r"(_file|_path|_id|_count|_expires.*|_name)$", re.IGNORECASE)
_TOKEN = re.compile(r"virta_[a-z0-9]{6,32}_[A-Za-z0-9_\-]{8,}")
# Bounded, all of them: a search that begins anew at each letter of a long text never ends.
_IN_ADDRESS = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,30}://[^\s/:@]{0,200}):[^\s/@]{1,500}@", re.IGNORECASE
)
_IN_QUERY = re.compile(r"(?P<name>[?&;](?:password|token|secret)=)[^&;\s]+", re.IGNORECASE)
_BEARER = re.compile(r"(?P<kind>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=\-]{8,}", re.IGNORECASE)


def redact_text(text: str) -> str:
    """The text without what looks like a secret of ours."""
    text = _TOKEN.sub(lambda found: found[0].rsplit("_", 1)[0][:12] + "_" + HIDDEN, text)
    text = _IN_ADDRESS.sub(rf"\g<scheme>:{HIDDEN}@", text)
    text = _IN_QUERY.sub(rf"\g<name>{HIDDEN}", text)
    return _BEARER.sub(rf"\g<kind>{HIDDEN}", text)


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAMES.search(name)) and not _HARMLESS.search(name)


def redact(value: Any, name: str = "") -> Any:
    """A value for a log line: mappings and sequences all the way down."""
    if name and is_secret_name(name) and value is not None and not isinstance(value, bool):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"‹{len(value)} bytes›"
    if isinstance(value, Mapping):
        return {str(key): redact(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(each) for each in value]
    return value
