"""The one object a broker asks: who is this, and may they do that?

    guard = Guard(access=lambda now: access, policy=Policy(), limits=Limits(), clock=clock, write_audit=…)
    session = guard.open(peer)                 a place for a new connection, or Unavailable
    session.mechanisms                         what the hello offers
    login = session.login("SCRAM-SHA-256")     login.step(data) → answer, until login.done
    session.check(Verb.PRODUCE, "orders", action="append")     Denied unless allowed
    session.may(Verb.CONSUME, "orders")        the same as a question, for lists
    session.take(bytes) → seconds not to read  the limits of connection and user
    session.close()

It decides, and never acts: it opens no socket, waits for nothing, and reads clock and list of
users from what it was given. Every question is decided by the list as it is now, so a user who
was removed is refused at the next request of a connection that is open. Not for several threads.
"""

from __future__ import annotations

import enum
import ipaddress
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from virta.clock import Clock
from virta.errors import Denied, UnavailableError
from virta.security import binding, permissions, scram
from virta.security.access import Access
from virta.security.audit import Audit, AuditEntry
from virta.security.certificates import user_of
from virta.security.limits import Failures, Limits, Places, Rates, TokenBucket
from virta.security.permissions import Decision, Verb
from virta.security.principal import ANONYMOUS, LOCAL, How, Principal
from virta.security.scram import ScramServer, Verifier
from virta.security.tokens import PREFIX, Token

# Decisions remembered per connection: more topics than one connection works with at a time.
_REMEMBERED = 1024


class Authentication(enum.StrEnum):
    """When a login is asked for."""

    AUTO = "auto"  # unless only this machine reaches the broker and no user was ever added
    REQUIRED = "required"
    OFF = "off"  # whoever can connect may do everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    authentication: Authentication = Authentication.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What is known of the other side before it says anything."""

    address: str
    # The address it reached the broker at: behind a proxy everybody comes from this machine, so
    # what counts is where the broker listens.
    listens_on_loopback: bool
    encrypted: bool = False
    # As `getpeercert()` gives it, checked by TLS.
    certificate: Mapping[str, Any] | None = None
    # The broker's own certificate (DER), which logins are bound to.
    server_certificate: bytes | None = None


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


class Guard:
    """Decides who may connect, who they are and what they may do."""

    def __init__(
        self,
        *,
        access: Callable[[float], Access],
        clock: Clock,
        policy: Policy | None = None,
        limits: Limits | None = None,
        write_audit: Callable[[AuditEntry], None] = lambda _: None,
    ) -> None:
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self._access = access
        self.clock = clock
        self._audit = Audit(write_audit)
        self._failures = Failures(self.limits.failed_logins_per_minute)
        self._connections, self._addresses, self._users = Places(), Places(), Places()
        self._user_rates: dict[str, TokenBucket] = {}

    @property
    def access(self) -> Access:
        """Users, tokens and permissions as they are now."""
        return self._access(self.clock.monotonic())

    def change_limits(self, limits: Limits) -> None:
        """From now on; connections keep the rates they began with."""
        self.limits = limits

    # -- connections -----------------------------------------------------------------------------

    def open(self, peer: Peer) -> Session:
        """A place for a connection, or UnavailableError: close it."""
        limits = self.limits
        self._take(self._connections, "all", limits.connections, "connections are open at this broker")
        try:
            self._take(
                self._addresses, peer.address, limits.connections_per_address, "connections from this address"
            )
            try:
                return Session(self, peer, self._first_principal(peer))
            except BaseException:
                self._addresses.give_back(peer.address)
                raise
        except BaseException:
            self._connections.give_back("all")
            raise

    def _take(self, places: Places, name: str, most: int | None, what: str) -> None:
        if not places.take(name, most):
            raise UnavailableError(
                f"{most:,} {what} already, and no more are allowed",
                hint="close some, or raise the limit in the broker's configuration",
            )

    def _first_principal(self, peer: Peer) -> Principal:
        """Who somebody is without being asked."""
        if self._trusts(peer):
            return LOCAL
        name = user_of(peer.certificate)
        if name is None:
            return ANONYMOUS
        if self.access.active_user(name) is None:
            self.write(peer, Principal(name=name, how=How.CERTIFICATE), "login", None, _UNKNOWN_CERTIFICATE)
            return ANONYMOUS
        return Principal(name=name, how=How.CERTIFICATE)

    def _trusts(self, peer: Peer) -> bool:
        if self.policy.authentication is Authentication.AUTO:
            return peer.listens_on_loopback and not self.access.is_set_up
        return self.policy.authentication is Authentication.OFF

    def occupy(self, principal: Principal) -> None:
        """Count a connection for who is at its other end; strangers share a name."""
        limits = self.limits
        if principal == ANONYMOUS:
            most: int | None = limits.connections_before_login
            what = "connections that have not logged in are open"
        else:
            most, what = limits.connections_per_user, "connections of this user are open"
        self._take(self._users, principal.name, None if principal == LOCAL else most, what)

    def leave(self, principal: Principal) -> None:
        self._users.give_back(principal.name)
        if not self._users.held(principal.name):
            self._user_rates.pop(principal.name, None)

    def give_back(self, peer: Peer) -> None:
        self._addresses.give_back(peer.address)
        self._connections.give_back("all")

    def user_rate(self, name: str) -> TokenBucket | None:
        rate = self.limits.bytes_per_second_per_user
        if rate is None:
            return None
        return self._user_rates.setdefault(name, TokenBucket(rate))

    # -- logins ----------------------------------------------------------------------------------

    def check_failures(self, peer: Peer) -> None:
        wait = self._failures.wait(peer.address, self.clock.monotonic())
        if wait > 0:
            raise UnavailableError(
                "too many logins from this address have failed",
                hint=f"wait {wait:.0f} seconds and check user name and password",
            )

    def note_failure(self, peer: Peer) -> None:
        self._failures.note(peer.address, self.clock.monotonic())

    # -- decisions -------------------------------------------------------------------------------

    def decide(
        self, principal: Principal, verb: Verb, topic: str | None, *, publicly_writable: bool = False
    ) -> Decision:
        """Whether somebody may do something with a topic (None: with the log as a whole), as of now."""
        access = self.access
        if principal == LOCAL:
            return permissions.decide((), principal, verb, topic)
        if principal.is_known and access.active_user(principal.name) is None:
            return Decision(allowed=False, reason="the user was removed or disabled")
        if principal.token_id is not None:
            token = access.active_token(principal.token_id, self.clock.now_us())
            if token is None:
                return Decision(allowed=False, reason="the token has expired or was revoked")
            if token.only is not None and not any(grant.covers(verb, topic) for grant in token.only):
                return Decision(allowed=False, reason="the token is not for that")
        return permissions.decide(
            access.permissions, principal, verb, topic, publicly_writable=publicly_writable
        )

    def decide_any(self, principal: Principal, verb: Verb) -> Decision:
        """Whether somebody may do something with any topic at all."""
        grants = [rule.grant for rule in self.access.permissions if rule.concerns(principal)]
        token = self.access.tokens.get(principal.token_id or "")
        grants += (token.only or ()) if token is not None else ()
        patterns = {grant.topics for grant in grants if verb in grant.verbs}
        found = Decision(allowed=False, reason="no rule allows it on any topic")
        # What a pattern allows is allowed for the name that it is itself, unless something else denies that.
        for pattern in patterns | {"*"}:
            found = self.decide(principal, verb, pattern)
            if found.allowed:
                break
        return found

    def write(
        self,
        peer: Peer,
        principal: Principal,
        action: str,
        topic: str | None,
        reason: str,
        *,
        allowed: bool = False,
    ) -> None:
        """Write down an act or a refusal."""
        entry = AuditEntry(
            at_us=self.clock.now_us(),
            who=str(principal),
            how=principal.how.value,
            address=peer.address,
            action=action,
            topic=topic,
            allowed=allowed,
            reason=reason,
        )
        self._audit.add(entry, self.clock.monotonic())


_UNKNOWN_CERTIFICATE = "the certificate names nobody who is a user here"


class Session:
    """One connection, as the guard sees it."""

    def __init__(self, guard: Guard, peer: Peer, principal: Principal) -> None:
        guard.occupy(principal)
        self.peer = peer
        self.principal = principal
        self._guard = guard
        self._closed = False
        rate = guard.limits.bytes_per_second_per_connection
        self._own_rate = None if rate is None else TokenBucket(rate)
        self._rates = Rates(self._own_rate, guard.user_rate(principal.name))
        self._decided: dict[tuple[Verb, str | None, bool], bool] = {}
        self._decided_by: Access | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The logins that are offered, the best first; none for whom no login would change anything."""
        if self.principal == LOCAL:
            return ()
        if self.peer.server_certificate is not None:
            return (scram.MECHANISM_PLUS, scram.MECHANISM)
        return (scram.MECHANISM,)

    def login(self, mechanism: str) -> Login:
        """Begin to log in; whoever failed too often is told to wait."""
        if mechanism not in self.mechanisms:
            raise Denied(
                f"the login {mechanism[:40]!r} is not offered here",
                hint=f"offered: {', '.join(self.mechanisms) or 'none, and none is needed'}",
            )
        self._guard.check_failures(self.peer)
        return Login(self, self._guard, mechanism)

    def become(self, principal: Principal) -> None:
        """What a login that came to its end does."""
        self._guard.occupy(principal)
        self._guard.leave(self.principal)
        self.principal = principal
        self._decided.clear()
        self._rates = Rates(self._own_rate, self._guard.user_rate(principal.name))

    def may(self, verb: Verb, topic: str | None, *, publicly_writable: bool = False) -> bool:
        """Whether it is allowed; nothing is written down."""
        access = self._guard.access
        if self._decided_by is not access or len(self._decided) > _REMEMBERED:
            self._decided.clear()
            self._decided_by = access
        question = (verb, topic, publicly_writable)
        # A token's end comes by time and not by a change, so its decisions are not remembered.
        if self.principal.token_id is None and question in self._decided:
            return self._decided[question]
        allowed = self._guard.decide(self.principal, verb, topic, publicly_writable=publicly_writable).allowed
        self._decided[question] = allowed
        return allowed

    def may_see(self, topic: str) -> bool:
        """Whether the topic shows in lists: to whoever may do anything with it."""
        return any(self.may(verb, topic) for verb in Verb)

    def check(self, verb: Verb, topic: str | None, *, action: str, publicly_writable: bool = False) -> None:
        """Denied unless it is allowed. Refusals and administrative acts are written down."""
        if self.may(verb, topic, publicly_writable=publicly_writable):
            if verb is Verb.ADMINISTER:
                self._guard.write(self.peer, self.principal, action, topic, "allowed", allowed=True)
            return
        decision = self._guard.decide(self.principal, verb, topic, publicly_writable=publicly_writable)
        self._guard.write(self.peer, self.principal, action, topic, decision.reason)
        raise denial(self.principal, verb, topic, decision)

    def check_any(self, verb: Verb, *, action: str) -> None:
        """Denied unless it is allowed on some topic, whichever."""
        decision = self._guard.decide_any(self.principal, verb)
        if not decision.allowed:
            self._guard.write(self.peer, self.principal, action, None, decision.reason)
            raise denial(self.principal, verb, None, decision)

    @property
    def is_rated(self) -> bool:
        """Whether bytes have to be counted at all."""
        return self._rates.is_bounded

    def take(self, amount: int) -> float:
        """Note bytes that went either way; for so many seconds the connection should not be read."""
        return self._rates.take(amount, self._guard.clock.monotonic())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._guard.leave(self.principal)
            self._guard.give_back(self.peer)


def denial(principal: Principal, verb: Verb, topic: str | None, decision: Decision) -> Denied:
    """The refusal, with the command that would change it."""
    what = f"topic {topic!r}" if topic is not None else "the log as a whole"
    if not principal.is_known:
        return Denied(
            f"whoever has not logged in may not {verb} {what}: {decision.reason}",
            hint="log in: VIRTA_USER and VIRTA_PASSWORD_FILE, VIRTA_TOKEN_FILE, or virta login",
        )
    return Denied(
        f"{principal} may not {verb} {what}: {decision.reason}",
        hint=f"at the broker: virta permission add {principal.name} {verb} {shlex.quote(topic or '*')}",
    )


class Login:
    """One attempt to log in."""

    def __init__(self, session: Session, guard: Guard, mechanism: str) -> None:
        self._session = session
        self._guard = guard
        access = guard.access
        certificate = session.peer.server_certificate
        self._token: Token | None = None
        self._server = ScramServer(
            self._find,
            plus=mechanism == scram.MECHANISM_PLUS,
            binding=None if certificate is None else binding.end_point(certificate),
            decoy_key=access.decoy_key,
            decoy_iterations=access.decoy_iterations,
        )

    @property
    def done(self) -> bool:
        return self._server.done

    def step(self, message: bytes) -> bytes:
        """The answer to the client's message. `Denied` ends the attempt, and is written down."""
        try:
            answer = self._server.step(message)
            if self._server.done:
                self._session.become(self._principal())
            return answer
        except Denied as error:
            self._guard.note_failure(self._session.peer)
            claimed = Principal(name=_shown(self._server.user), how=How.ANONYMOUS)
            self._guard.write(self._session.peer, claimed, "login", None, error.message)
            raise

    def _find(self, name: str) -> Verifier | None:
        access = self._guard.access
        if name.startswith(PREFIX):
            self._token = access.active_token(name.removeprefix(PREFIX), self._guard.clock.now_us())
            return None if self._token is None else self._token.verifier
        user = access.active_user(name)
        return None if user is None else user.verifier

    def _principal(self) -> Principal:
        if self._token is not None:
            return Principal(name=self._token.user, how=How.TOKEN, token_id=self._token.id)
        assert self._server.user is not None
        return Principal(name=self._server.user, how=How.PASSWORD)


def _shown(name: str | None) -> str:
    """A name somebody claimed, safe in a log line."""
    return "".join(each if each.isprintable() else "�" for each in (name or "nobody")[:128])
