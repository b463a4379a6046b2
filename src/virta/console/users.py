"""The broker's users in the console: signed in by name and password, with the rights the protocol gives.

A session is a random name in a cookie that scripts cannot read and other sites do not send. It
holds the principal, nothing else: what that one may do is asked anew each time, so a permission that
is taken away, or a user who is disabled, is so at once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from typing import Any

from starlette.requests import HTTPConnection

from virta.console.access import ALTER, DELETE, READ, WRITE, Visitor
from virta.errors import Denied, VirtaError
from virta.security.guard import Guard, Peer, Session
from virta.security.permissions import Verb
from virta.security.principal import Principal
from virta.security.scram import MECHANISM, ScramClient

# After so long without a request, somebody else may sit there.
_IDLE_SECONDS = 12 * 3600.0
# More people than look at one broker; the oldest session goes.
_MOST_SESSIONS = 10_000
_VERBS = {READ: Verb.CONSUME, WRITE: Verb.PRODUCE, ALTER: Verb.ADMINISTER, DELETE: Verb.ADMINISTER}


def cookie_name(connection: HTTPConnection) -> str:
    """Cookies know no ports, so two consoles of one machine would take each other's."""
    server = connection.scope.get("server")
    return f"virta-{server[1]}" if server else "virta"


class UserAccess:
    """Whoever signed in may do what the broker lets them; others what it lets strangers, and only look
    where the console is reached from other machines."""

    def __init__(self, guard: Guard, log: Any, *, local: bool) -> None:
        self._guard = guard
        self._log = log
        self._local = local
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    @property
    def has_users(self) -> bool:
        return self._guard.access.is_set_up

    def visitor(self, connection: HTTPConnection) -> Visitor:
        principal = self._signed_in(connection)
        if principal is not None:
            return Visitor(name=principal.name, principal=principal)
        seat = self._seat(connection)
        try:
            return Visitor(principal=seat.principal)
        finally:
            seat.close()

    def _seat(self, connection: HTTPConnection) -> Session:
        client = connection.scope.get("client")
        peer = Peer(address=client[0] if client else "local", listens_on_loopback=self._local)
        return self._guard.open(peer)

    def _signed_in(self, connection: HTTPConnection) -> Principal | None:
        session = connection.cookies.get(cookie_name(connection))
        if not session:
            return None
        now = time.monotonic()
        with self._lock:
            found = self._sessions.get(session)
            if found is None or now - found[1] > _IDLE_SECONDS:
                self._sessions.pop(session, None)
                return None
            self._sessions[session] = found[0], now
            self._sessions.move_to_end(session)
            return found[0]

    def allows(self, visitor: Visitor, right: str, topic: str | None) -> bool:
        if right != READ and visitor.name is None and not self._local:
            return False
        verb, principal = _VERBS[right], visitor.principal
        if topic is None and right in (READ, WRITE):
            return self._guard.decide_any(principal, verb).allowed
        if self._guard.decide(principal, verb, topic).allowed:
            return True
        return right == WRITE and topic is not None and self._is_public(principal, topic)

    def _is_public(self, principal: Principal, topic: str) -> bool:
        try:
            public = self._log.topic(topic).config.public_write
        except VirtaError:
            return False
        return self._guard.decide(principal, Verb.PRODUCE, topic, publicly_writable=public).allowed

    def sign_in(self, connection: HTTPConnection, name: str, password: str) -> str:
        """The login of the protocol, both sides of it here; failures count as they do there."""
        if not self.has_users:
            raise Denied("this broker knows no users yet", hint="at the broker: virta user add")
        seat = self._seat(connection)
        try:
            login, client = seat.login(MECHANISM), ScramClient(name, password)
            message: bytes | None = client.first()
            while message is not None:
                message = client.step(login.step(message))
            principal = seat.principal
        finally:
            seat.close()
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[session] = principal, time.monotonic()
            while len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def sign_out(self, connection: HTTPConnection) -> None:
        with self._lock:
            self._sessions.pop(connection.cookies.get(cookie_name(connection), ""), None)
