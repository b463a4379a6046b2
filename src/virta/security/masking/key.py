"""The masking key: a secret of the upper environment, and the keys made from it.

Every purpose (hashing text, shifting dates, sampling …) has a key of its own, so that
what one method shows says nothing about another. The secret itself is in no pipeline
file, report or statement; `fingerprint` names it without telling it. Whoever has the
key can try values until a pseudonym fits, so it stays where the originals are.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from virta.errors import NotFound, UsageError

KEY_BYTES = 32
# Less than this can be guessed, and then every pseudonym can be undone by trying.
SECRET_LEAST_BYTES = 16
_CONTEXT = "virta masking 2026-11 key"
PLACES = 'write key = { env = "VIRTA_MASKING_KEY" } or key = { file = "~/.config/virta/masking.key" }'
_HINT = "make one: virta pipeline key FILE; keep it where the original rows are, readable to you alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingKey:
    """The secret, stretched to 32 bytes. It never shows itself in a repr."""

    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: str | bytes) -> MaskingKey:
        data = secret.strip().encode() if isinstance(secret, str) else secret.strip()
        if len(data) < SECRET_LEAST_BYTES:
            raise UsageError(f"a masking key has at least {SECRET_LEAST_BYTES} bytes", hint=_HINT)
        return cls(secret=blake3(data, derive_key_context=_CONTEXT).digest())

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> MaskingKey:
        place = Path(path).expanduser()
        try:
            data = place.read_bytes()
            mode = place.stat().st_mode
        except OSError as error:
            raise NotFound(f"the masking key {place} cannot be read: {error.strerror}", hint=_HINT) from error
        if stat.S_IMODE(mode) & 0o077:
            raise UsageError(
                f"the masking key {place} can be read by others",
                hint=f"make it yours alone: chmod 600 {place}",
            )
        return cls.of(data)

    @classmethod
    def from_environment(cls, name: str) -> MaskingKey:
        value = os.environ.get(name)
        if not value:
            raise NotFound(f"the masking key is looked for in ${name}, which is not set", hint=_HINT)
        return cls.of(value)

    @classmethod
    def named(cls, place: Mapping[str, object]) -> MaskingKey:
        """From `{ env = "NAME" }` or `{ file = "PATH" }`, as a pipeline file says it."""
        match dict(place):
            case {"env": str(name), **rest} if not rest:
                return cls.from_environment(name)
            case {"file": str(path), **rest} if not rest:
                return cls.from_file(path)
        raise UsageError(
            "a masking key is named, never written down in a file of settings",
            hint=PLACES,
        )

    def purpose(self, *words: str) -> bytes:
        """The key for one purpose."""
        return blake3("\x1f".join(words).encode(), key=self.secret).digest()

    @property
    def fingerprint(self) -> str:
        """Names the key, and tells nothing of it."""
        return self.purpose("fingerprint")[:8].hex()


def new_secret() -> str:
    """A secret as text, for a file or the environment."""
    return secrets.token_hex(KEY_BYTES)
