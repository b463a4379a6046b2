"""The guard: who gets in, what they may do, and what is written down of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from virta.errors import Denied, UnavailableError
from virta.security import binding, scram
from virta.security.access import Access, User
from virta.security.audit import REFUSALS_AT_ONCE, AuditEntry
from virta.security.guard import Authentication, Guard, Peer, Policy, Session, is_loopback
from virta.security.limits import Limits
from virta.security.permissions import Permission, Verb, parse_grant
from virta.security.principal import ANONYMOUS, LOCAL, How
from virta.security.scram import ScramClient, make_verifier
from virta.security.tokens import new_token, split_token

PASSWORD = "correct horse"
VERIFIER = make_verifier(PASSWORD, iterations=4096)
FAR = Peer(address="203.0.113.9", listens_on_loopback=False)
NEAR = Peer(address="127.0.0.1", listens_on_loopback=True)
CERTIFICATE: dict[str, Any] = {"subject": ((("commonName", "ada"),),)}
# SEQUENCE { SEQUENCE {}, SEQUENCE { OBJECT IDENTIFIER ecdsa-with-SHA256 } }
SERVER_CERTIFICATE = bytes.fromhex("300e3000300a06082a8648ce3d040302")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_us(self) -> int:
        return int(self.seconds * 1e6)


class World:
    """A guard with a list of users that a test can change, and what it wrote down."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.access = Access.empty()
        self.written: list[AuditEntry] = []
        self.guard = Guard(
            access=lambda _: self.access, clock=self.clock, write_audit=self.written.append, **settings
        )

    def add(self, name: str, *grants: str) -> None:
        self.access = self.access.with_user(User(name=name, created_us=0, verifier=VERIFIER))
        for grant in grants:
            self.allow(name, grant)

    def allow(self, who: str, grant: str, *, denies: bool = False) -> None:
        rule = Permission(who=who, grant=parse_grant(grant), denies=denies)
        self.access = self.access.with_permission(rule)


@pytest.fixture
def world() -> World:
    made = World()
    made.add("ada", "produce,consume:orders*")
    return made


def log_in(session: Session, user: str = "ada", password: str = PASSWORD, **settings: Any) -> None:
    client = ScramClient(user, password, **settings)
    login = session.login(client.mechanism)
    message: bytes | None = client.first()
    while message is not None:
        message = client.step(login.step(message))
    assert login.done


def test_a_fresh_broker_that_only_this_machine_reaches_lets_everybody_do_everything() -> None:
    world = World()
    session = world.guard.open(NEAR)
    assert session.principal == LOCAL and session.mechanisms == ()
    session.check(Verb.ADMINISTER, None, action="add_user")
    session.check(Verb.PRODUCE, "orders", action="append")


def test_a_first_user_closes_the_door_and_removing_them_does_not_open_it(world: World) -> None:
    assert world.guard.open(NEAR).principal == ANONYMOUS
    world.access = world.access.without_user("ada")
    assert world.guard.open(NEAR).principal == ANONYMOUS


def test_elsewhere_nothing_is_allowed_without_a_login() -> None:
    session = World().guard.open(FAR)
    assert session.principal == ANONYMOUS
    with pytest.raises(Denied, match="has not logged in") as caught:
        session.check(Verb.CONSUME, "orders", action="fetch")
    assert caught.value.hint and "VIRTA_USER" in caught.value.hint
    session.check(Verb.PRODUCE, "clicks", action="append", publicly_writable=True)


def test_authentication_can_be_switched_off_and_forced() -> None:
    assert World(policy=Policy(authentication=Authentication.OFF)).guard.open(FAR).principal == LOCAL
    forced = World(policy=Policy(authentication=Authentication.REQUIRED))
    assert forced.guard.open(NEAR).principal == ANONYMOUS


def test_a_user_logs_in_and_may_what_the_rules_say(world: World) -> None:
    session = world.guard.open(FAR)
    log_in(session)
    assert session.principal.name == "ada" and session.principal.how is How.PASSWORD
    session.check(Verb.PRODUCE, "orders-eu", action="append")
    assert session.may_see("orders") and not session.may_see("payroll")
    with pytest.raises(Denied) as caught:
        session.check(Verb.ADMINISTER, "orders", action="drop_topic")
    assert caught.value.hint == "at the broker: virta permission add ada administer orders"
    assert [(entry.who, entry.action, entry.allowed) for entry in world.written] == [
        ("ada", "drop_topic", False)
    ]


def test_administrative_acts_are_written_down(world: World) -> None:
    world.allow("ada", "administer:*")
    session = world.guard.open(FAR)
    log_in(session)
    session.check(Verb.ADMINISTER, "new", action="create_topic")
    session.check(Verb.CONSUME, "orders", action="fetch")
    (entry,) = world.written
    assert (entry.who, entry.how, entry.action, entry.topic) == ("ada", "password", "create_topic", "new")
    assert entry.allowed and entry.address == FAR.address and entry.at_us == 1000_000_000


def test_changes_hold_for_connections_that_are_open(world: World) -> None:
    session = world.guard.open(FAR)
    log_in(session)
    assert session.may(Verb.PRODUCE, "orders")
    world.allow("everyone", "produce:*", denies=True)
    assert not session.may(Verb.PRODUCE, "orders") and session.may(Verb.CONSUME, "orders")
    world.access = world.access.without_user("ada")
    assert not session.may(Verb.CONSUME, "orders")
    with pytest.raises(Denied, match="removed or disabled"):
        session.check(Verb.CONSUME, "orders", action="fetch")


def test_wrong_passwords_are_refused_written_down_and_slowed(world: World) -> None:
    session = world.guard.open(FAR)
    for _ in range(world.guard.limits.failed_logins_per_minute):
        with pytest.raises(Denied, match="user name or the password"):
            log_in(session, password="wrong")
    with pytest.raises(UnavailableError, match="too many logins"):
        log_in(session)
    log_in(world.guard.open(dataclasses.replace(FAR, address="203.0.113.10")))
    world.clock.seconds += 5
    log_in(session)
    assert world.written[0].who == "ada" and world.written[0].action == "login"
    assert PASSWORD not in repr(world.written) and "wrong," not in repr(world.written)
    assert len(world.written) == REFUSALS_AT_ONCE


def test_refusals_beyond_the_rate_are_counted(world: World) -> None:
    session = world.guard.open(FAR)
    for _ in range(REFUSALS_AT_ONCE + 7):
        with pytest.raises(Denied):
            session.check(Verb.CONSUME, "x", action="fetch")
    world.clock.seconds += 1
    with pytest.raises(Denied):
        session.check(Verb.CONSUME, "x", action="fetch")
    assert len(world.written) == REFUSALS_AT_ONCE + 1 and world.written[-1].unwritten == 7


def test_logins_over_tls_are_bound_to_it(world: World) -> None:
    peer = dataclasses.replace(FAR, encrypted=True, server_certificate=SERVER_CERTIFICATE)
    session = world.guard.open(peer)
    assert session.mechanisms == (scram.MECHANISM_PLUS, scram.MECHANISM)
    log_in(session, binding=binding.end_point(SERVER_CERTIFICATE), plus=True)
    with pytest.raises(Denied, match="another connection"):
        log_in(world.guard.open(peer), binding=b"x" * 32, plus=True)
    with pytest.raises(Denied, match="not offered"):
        world.guard.open(FAR).login(scram.MECHANISM_PLUS)


def test_tokens(world: World) -> None:
    text, token = new_token("ada", now_us=0, expires_us=2000_000_000, only=(parse_grant("consume:orders"),))
    world.access = world.access.with_token(token)
    identity, secret = split_token(text)
    session = world.guard.open(FAR)
    log_in(session, f"token:{identity}", secret)
    assert str(session.principal) == f"ada (token {identity})"
    assert session.may(Verb.CONSUME, "orders")
    # Less than its user, and never more.
    assert not session.may(Verb.PRODUCE, "orders") and not session.may(Verb.CONSUME, "orders-eu")
    world.clock.seconds = 2000.0
    assert not session.may(Verb.CONSUME, "orders")
    with pytest.raises(Denied, match="expired or was revoked"):
        session.check(Verb.CONSUME, "orders", action="fetch")
    with pytest.raises(Denied, match="user name or the password"):
        log_in(world.guard.open(FAR), f"token:{identity}", secret)


def test_a_revoked_token_ends_at_once(world: World) -> None:
    text, token = new_token("ada", now_us=0)
    world.access = world.access.with_token(token)
    session = world.guard.open(FAR)
    log_in(session, f"token:{token.id}", split_token(text)[1])
    assert session.may(Verb.CONSUME, "orders")
    world.access = world.access.without_token(token.id)
    assert not session.may(Verb.CONSUME, "orders")


def test_certificates_name_users_that_exist(world: World) -> None:
    peer = dataclasses.replace(FAR, encrypted=True, certificate=CERTIFICATE)
    session = world.guard.open(peer)
    assert session.principal.name == "ada" and session.principal.how is How.CERTIFICATE
    session.check(Verb.CONSUME, "orders", action="fetch")
    world.access = world.access.with_changed_user("ada", disabled=True)
    assert world.guard.open(peer).principal == ANONYMOUS
    assert "names nobody" in world.written[-1].reason


def test_connections_are_counted(world: World) -> None:
    limits = Limits(
        connections=4, connections_per_address=2, connections_before_login=3, connections_per_user=1
    )
    world = World(limits=limits)
    world.add("ada")
    near = [dataclasses.replace(FAR, address=f"203.0.113.{number}") for number in range(9)]
    first, second = world.guard.open(near[0]), world.guard.open(near[0])
    with pytest.raises(UnavailableError, match="from this address"):
        world.guard.open(near[0])
    third = world.guard.open(near[1])
    with pytest.raises(UnavailableError, match="have not logged in"):
        world.guard.open(near[2])
    log_in(first)
    with pytest.raises(UnavailableError, match="of this user"):
        log_in(second)
    world.guard.open(near[3])
    with pytest.raises(UnavailableError, match="4 connections are open"):
        world.guard.open(near[4])
    for session in (first, first, second, third):
        session.close()
    log_in(world.guard.open(near[5]))


def test_bytes_of_a_user_are_counted_over_all_connections(world: World) -> None:
    limits = Limits(bytes_per_second_per_user=100, bytes_per_second_per_connection=1000)
    world = World(limits=limits)
    world.add("ada")
    one, two = world.guard.open(FAR), world.guard.open(FAR)
    for session in (one, two):
        log_in(session)
    assert one.take(100) == 0 and two.take(100) == pytest.approx(1.0)
    world.clock.seconds += 1
    assert one.take(0) == 0


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False), ("", False),
    ],
)  # fmt: skip
def test_loopback(address: str, wanted: bool) -> None:
    assert is_loopback(address) is wanted
