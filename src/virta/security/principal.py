"""Who acts: the value that authentication gives and that permissions are decided for.

Names of users are short plain text, so they are safe in files, logs and on the wire. ':' is
kept for names that are not users (`token:3f9c…` while a token is being shown).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from virta.errors import UsageError

# 128: longer than any mail address seen in practice, short enough for a log line.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+\-]{0,127}")
# Names that stand for something else than one user.
RESERVED = ("anonymous", "local", "everyone")


class How(enum.StrEnum):
    """How somebody showed who they are."""

    PASSWORD = "password"
    TOKEN = "token"
    CERTIFICATE = "certificate"
    LOCAL = "local"  # on a broker that only this machine reaches and that knows no users
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody, as the broker knows them."""

    name: str
    how: How
    # A token may be allowed less than its user; None: all that the user may.
    token_id: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether they showed who they are."""
        return self.how is not How.ANONYMOUS

    def __str__(self) -> str:
        return f"{self.name} (token {self.token_id})" if self.token_id else self.name


ANONYMOUS = Principal(name="anonymous", how=How.ANONYMOUS)
LOCAL = Principal(name="local", how=How.LOCAL)


def check_user_name(name: str) -> str:
    """The name, if a user may have it."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:40]!r} cannot be the name of a user",
            hint="letters, digits and _ . @ + -, at most 128, the first a letter, digit or _",
        )
    if name in RESERVED:
        raise UsageError(f"the name {name!r} has a meaning of its own", hint="take another name")
    return name
