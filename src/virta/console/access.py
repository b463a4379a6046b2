"""Who may do what in the console: decided by whoever starts it, asked before anything is done.

The console knows four rights on a topic: read, write, alter, delete. `topic` is None where the
whole log is meant: read then means any topic, alter the log itself (create, see the broker).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import HTTPConnection

from virta.errors import Denied

READ, WRITE, ALTER, DELETE = "read", "write", "alter", "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who asks; without a name nobody signed in. `principal` is for the access that made it."""

    name: str | None = None
    principal: Any = None


class Access(Protocol):
    """What the console asks."""

    @property
    def has_users(self) -> bool:
        """Whether there is anybody to sign in as."""

    def visitor(self, connection: HTTPConnection) -> Visitor:
        """Who sends this request."""

    def allows(self, visitor: Visitor, right: str, topic: str | None) -> bool:
        """Whether they may."""

    def sign_in(self, connection: HTTPConnection, name: str, password: str) -> str:
        """A new session, as the value of its cookie; Denied when name and password do not go together."""

    def sign_out(self, connection: HTTPConnection) -> None:
        """End the session of this connection."""


class OpenAccess:
    """Everybody may do everything: for the machine's own user, on loopback."""

    has_users = False

    def visitor(self, connection: HTTPConnection) -> Visitor:  # noqa: ARG002 (everybody is the same)
        return Visitor()

    def allows(self, visitor: Visitor, right: str, topic: str | None) -> bool:  # noqa: ARG002
        return True

    def sign_in(self, connection: HTTPConnection, name: str, password: str) -> str:  # noqa: ARG002
        raise Denied("this console knows no users, and needs none")

    def sign_out(self, connection: HTTPConnection) -> None: ...


class ReadOnly(OpenAccess):
    """Everybody may look, nobody may change anything."""

    def allows(self, visitor: Visitor, right: str, topic: str | None) -> bool:  # noqa: ARG002
        return right == READ


def check(access: Access, connection: HTTPConnection, right: str, topic: str | None) -> Visitor:
    """The visitor, or Denied with what to do about it."""
    visitor = access.visitor(connection)
    if access.allows(visitor, right, topic):
        return visitor
    what = f"topic {topic!r}" if topic is not None else "this log"
    if visitor.name is not None:
        raise Denied(
            f"{visitor.name!r} may not {right} {what}",
            hint="at the broker: virta permission add gives rights",
        )
    hint = (
        "sign in first"
        if access.has_users
        else "open the console on the machine of the log: virta console --listen 127.0.0.1:7401"
    )
    raise Denied(f"the console may not {right} {what} here", hint=hint)
