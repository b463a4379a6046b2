"""Logins and permissions over the wire: who gets in, what they may do, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import virta
from tests.broker.secured import PASSWORD, Secured, talk
from tests.security.authority import Authority
from virta.errors import Denied, NotFound, TooLarge, UnavailableError, Unreachable, UsageError, VirtaError
from virta.security.limits import Limits
from virta.security.permissions import parse_grant
from virta.security.tls import server_tls
from virta.security.tokens import new_token

COLUMNS = {"id": int}


@pytest.fixture(autouse=True)
def no_credentials_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Secured]:
    with virta.open(tmp_path / "events") as log:
        log.create_topic("orders", COLUMNS).append({"id": 1})
        log.create_topic("payroll", COLUMNS).append({"id": 2})
        log.create_topic("clicks", COLUMNS, public_write=True)
    with Secured(tmp_path / "events") as broker:
        broker.add("ada", "produce,consume:orders*")
        yield broker


def test_what_the_rules_allow_and_nothing_else(broker: Secured) -> None:
    with broker.open("ada") as log:
        orders = log.topic("orders")
        orders.append({"id": 3})
        assert [row["id"] for row in orders[:]] == [1, 3]
        assert log.topics() == ["orders"]
        for act in (
            lambda: log.topic("payroll"),
            lambda: log.sql("select * from payroll").to_arrow(),
            lambda: log.drop_topic("orders"),
            lambda: log.create_topic("orders-eu", COLUMNS),
            lambda: orders.alter(retention_age="1d"),
            lambda: log.topic("__events"),
        ):
            with pytest.raises(Denied) as caught:
                act()
            assert "virta permission add ada" in str(caught.value)
        assert log.sql("select count(*) n from orders").to_arrow().to_pylist() == [{"n": 2}]
    refused = {(entry.who, entry.action, entry.topic) for entry in broker.written}
    assert ("ada", "drop_topic", "orders") in refused and ("ada", "query", "payroll") in refused


def test_who_may_only_produce_can(broker: Secured) -> None:
    broker.add("importer", "produce:orders")
    with broker.open("importer") as log:
        orders = log.topic("orders")
        orders.append({"id": 4})
        with orders.writer(producer="nightly") as writer:
            writer.send({"id": 5})
        with pytest.raises(Denied):
            list(orders[:])
        with pytest.raises(Denied):
            log.sql("select 1").to_arrow()


def test_administrators(broker: Secured) -> None:
    broker.add("root", "administer:*")
    with broker.open("root") as log:
        log.create_topic("new", COLUMNS)
        log.drop_topic("new")
        with pytest.raises(Denied):
            log.topic("orders").append({"id": 9})
    acts = [(entry.action, entry.topic) for entry in broker.written if entry.allowed]
    assert acts == [("create_topic", "new"), ("drop_topic", "new")]


def test_strangers_may_write_where_everybody_may(broker: Secured) -> None:
    with broker.open() as log:
        log.topic("clicks").append({"id": 1})
        assert log.topics() == ["clicks"]
        for act in (
            lambda: list(log.topic("clicks")[:]),
            lambda: log.topic("orders"),
            lambda: log.topic("no such topic"),
            lambda: log.sql("select count(*) from range(1000000000000)").to_arrow(),
        ):
            with pytest.raises(Denied, match="has not logged in"):
                act()
    assert broker.log.topic("clicks").next_offset == 1


def test_only_who_may_is_told_what_is_there(broker: Secured) -> None:
    with broker.open("ada") as log:
        with pytest.raises(NotFound):
            log.topic("orders-of-yesterday")
        with pytest.raises(Denied):
            log.topic("payroll-of-yesterday")


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", PASSWORD)])
def test_wrong_passwords(broker: Secured, user: str, password: str) -> None:
    with pytest.raises(Denied, match="user name or the password is wrong"):
        broker.open(user, password)
    assert broker.written[-1].action == "login" and broker.written[-1].who == user


def test_tokens(broker: Secured) -> None:
    text, token = new_token("ada", now_us=0, only=(parse_grant("consume:orders"),))
    broker.change(lambda access: access.with_token(token))
    with broker.open(token=text) as log:
        assert log.topic("orders")[:].count() == 1
        with pytest.raises(Denied, match="token is not for that"):
            log.topic("orders").append({"id": 1})
        broker.change(lambda access: access.without_token(token.id))
        with pytest.raises(Denied, match="expired or was revoked"):
            log.topic("orders")[:].count()
    expired, kept = new_token("ada", now_us=0, expires_us=1)
    broker.change(lambda access: access.with_token(kept))
    with pytest.raises(Denied):
        broker.open(token=expired)


def test_a_stream_ends_when_its_permission_does(broker: Secured) -> None:
    with broker.open("ada") as log:
        rows = iter(log.topic("orders").tail())
        assert next(rows)["id"] == 1
        broker.allow("everyone", "consume:*", denies=True)
        broker.log.topic("orders").append({"id": 2})
        with pytest.raises(Denied, match="denies it"):
            next(rows)


def test_removing_a_user_ends_what_their_connections_may(broker: Secured) -> None:
    with broker.open("ada") as log:
        orders = log.topic("orders")
        broker.change(lambda access: access.without_user("ada"))
        with pytest.raises(Denied, match="removed or disabled"):
            orders.append({"id": 1})


def test_credentials_from_the_environment_and_the_context(
    broker: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    monkeypatch.setenv("VIRTA_USER", "ada")
    monkeypatch.setenv("VIRTA_PASSWORD_FILE", str(file))
    with virta.open(broker.address) as log:
        assert log.topics() == ["orders"]
    monkeypatch.delenv("VIRTA_PASSWORD_FILE")
    with pytest.raises(UsageError, match="no password for user 'ada'"):
        virta.open(broker.address)
    monkeypatch.delenv("VIRTA_USER")
    config = tmp_path / "config" / "virta" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f'[contexts.prod]\naddress = "{broker.address}"\nenvironment = "prod"\nrank = 40\n'
        f'user = "ada"\npassword_file = "{file}"\n'
    )
    config.chmod(0o600)
    with virta.open("@prod") as log:
        assert log.topics() == ["orders"]
    with pytest.raises(UsageError, match="is for brokers"):
        virta.open(tmp_path / "events", user="ada")


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls_broker(tmp_path: Path, authority: Authority) -> Iterator[Secured]:
    tls = server_tls(*authority.issue("broker"), client_ca_file=authority.file)
    with Secured(tmp_path / "events", tls=tls) as broker:
        broker.add("ada", "all:*")
        yield broker


def test_tls_by_fingerprint_and_by_authority(tls_broker: Secured, authority: Authority) -> None:
    with tls_broker.open("ada") as log:
        log.create_topic("orders", COLUMNS).append([{"id": number} for number in range(50_000)])
        assert log.topic("orders")[:].to_arrow().num_rows == 50_000
        assert log.wire.welcome.mechanisms[0] == "SCRAM-SHA-256-PLUS"
    address = f"virtas://localhost:{tls_broker.port}"
    with virta.open(address, ca_file=authority.file, user="ada", password=PASSWORD) as log:
        assert log.topics() == ["orders"]


def test_client_certificates(tls_broker: Secured, authority: Authority) -> None:
    certificate, key = authority.issue("someone", uri="virta:user:ada")
    with tls_broker.open(certificate_file=certificate, key_file=key) as log:
        log.create_topic("made-by-certificate", COLUMNS)
    assert tls_broker.written[-1].how == "certificate"
    other, other_key = authority.issue("mallory")
    with tls_broker.open(certificate_file=other, key_file=other_key) as log, pytest.raises(Denied):
        log.create_topic("x", COLUMNS)


def test_brokers_that_are_not_trusted(tls_broker: Secured, tmp_path: Path) -> None:
    address = f"virtas://localhost:{tls_broker.port}"
    with pytest.raises(Denied, match="not trusted") as caught:
        virta.open(address)
    assert "fingerprint" in str(caught.value.hint)
    other = Authority(tmp_path, "other")
    with pytest.raises(Denied, match="not trusted"):
        virta.open(address, ca_file=other.file)
    with pytest.raises(Denied, match="another one"):
        virta.open(f"{address}?fingerprint={'0' * 64}")


def test_a_client_certificate_of_an_unknown_authority(tls_broker: Secured, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "other").issue("ada")
    with pytest.raises(VirtaError) as caught:
        tls_broker.open(certificate_file=certificate, key_file=key)
    assert "client certificate" in str(caught.value)


def test_tls_and_plain_do_not_mix(tls_broker: Secured, broker: Secured) -> None:
    with pytest.raises(Denied, match="does not speak TLS") as caught:
        virta.open(f"virtas://127.0.0.1:{broker.port}")
    assert "virta://" in str(caught.value.hint)
    with pytest.raises(VirtaError) as told:
        virta.open(f"virta://127.0.0.1:{tls_broker.port}")
    assert "virtas://" in str(told.value)


def test_hostile_handshakes_leave_others_unharmed(tls_broker: Secured) -> None:
    for data in (b"\x00" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"GET / HTTP/1.1\r\n\r\n", b"\x16"):
        try:
            answer = talk(tls_broker.port, data, patience=0.5)
        except TimeoutError:
            continue  # half a handshake: it waits for the rest, and not for ever
        assert b"virta" not in answer
    with tls_broker.open("ada") as log:
        assert log.topics() == []


# -- limits ----------------------------------------------------------------------------------------


def test_connections_are_limited(tmp_path: Path) -> None:
    limits = Limits(connections_per_user=2, failed_logins_per_minute=2)
    with Secured(tmp_path / "events", limits=limits) as broker:
        broker.add("ada", "all:*")
        one, two = broker.open("ada"), broker.open("ada")
        with pytest.raises(UnavailableError, match="of this user"):
            broker.open("ada")
        one.close()
        two.close()
        for _ in range(2):
            with pytest.raises(Denied):
                broker.open("ada", "wrong")
        with pytest.raises(UnavailableError, match="too many logins"):
            broker.open("ada")


def test_strangers_send_small_frames(broker: Secured, tmp_path: Path) -> None:
    with virta.open(tmp_path / "events") as local:
        local.create_topic("notes", {"text": str}, public_write=True)
    with broker.open() as log:
        notes = log.topic("notes")
        notes.append({"text": "short"})
        with pytest.raises((UsageError, TooLarge, Unreachable)):
            notes.append({"text": "x" * 3_000_000})
    assert broker.log.topic("notes").next_offset == 1


def test_bytes_per_second(tmp_path: Path) -> None:
    limits = Limits(bytes_per_second_per_user=400_000)
    with Secured(tmp_path / "events", limits=limits) as broker:
        broker.add("ada", "all:*")
        with broker.open("ada") as log:
            topic = log.create_topic("orders", {"data": bytes})
            for _ in range(4):
                topic.append({"data": b"x" * 200_000})
        # The bucket says how long it was not read from; no clock of the test decides.
        assert broker.server.tally.received_bytes > 800_000
        assert broker.server.tally.paused_seconds > 0.5


def test_strangers_are_not_told_that_there_is_nothing(tmp_path: Path) -> None:
    with virta.open(tmp_path / "events") as log:
        log.create_topic("payroll", COLUMNS)
    with Secured(tmp_path / "events") as broker:
        broker.add("ada", "all:*")
        with broker.open() as log, pytest.raises(Denied, match="has not logged in"):
            log.topics()
