"""TLS on both sides, through memory: who is trusted, who is not, and what people are told."""

from __future__ import annotations

import dataclasses
import random
import ssl
import time
from pathlib import Path

import pytest

from tests.security.authority import Authority
from virta.errors import Denied, UsageError
from virta.security.binding import end_point, fingerprint
from virta.security.certificates import user_of
from virta.security.credentials import Trust
from virta.security.development_certificate import VALID_DAYS, make_certificate, valid_until_us
from virta.security.tls import ClientTls, ServerTls, client_tls, explain, looks_like_tls, server_tls


class Handshake:
    """Both sides of a handshake; bytes go from one memory to the other."""

    def __init__(self, client: ClientTls, server: ServerTls) -> None:
        self._to_server, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.context.wrap_bio(
            self._to_client, self._to_server, server_hostname=client.server_hostname
        )
        self.server = server.context.wrap_bio(self._to_server, self._to_client, server_side=True)

    def run(self) -> None:
        for _ in range(10):
            if all([_step(self.client.do_handshake), _step(self.server.do_handshake)]):
                break
        # With TLS 1.3 a client learns only now that its certificate was refused.
        self.server.write(b"hello")
        assert self.client.read(5) == b"hello"


def _step(act: object) -> bool:
    try:
        act()  # type: ignore[operator]
    except ssl.SSLWantReadError:
        return False
    return True


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> ServerTls:
    return server_tls(*authority.issue("broker"))


def test_a_certificate_of_a_known_authority(authority: Authority, server: ServerTls) -> None:
    client = client_tls("localhost", Trust(ca_file=str(authority.file)))
    handshake = Handshake(client, server)
    handshake.run()
    assert client.check(handshake.client) == end_point(server.certificate)
    assert handshake.client.version() == "TLSv1.3"


def test_a_certificate_by_its_fingerprint(server: ServerTls) -> None:
    client = client_tls("anything.example", Trust(fingerprint=server.fingerprint))
    handshake = Handshake(client, server)
    handshake.run()
    client.check(handshake.client)
    with pytest.raises(Denied, match="another one") as caught:
        dataclasses.replace(client, fingerprint="sha256:" + "0" * 64).check(handshake.client)
    assert server.fingerprint in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "elsewhere.example"])
def test_who_is_not_trusted(host: str, authority: Authority, server: ServerTls, tmp_path: Path) -> None:
    other = authority if host != "localhost" else Authority(tmp_path, "other")
    with pytest.raises(ssl.SSLError) as caught:
        Handshake(client_tls(host, Trust(ca_file=str(other.file))), server).run()
    told = explain(caught.value, host=host)
    assert told is not None and f"certificate of {host} is not trusted" in told.message
    assert told.hint is not None and "fingerprint" in told.hint


def test_an_expired_certificate(authority: Authority) -> None:
    server = server_tls(*authority.issue("old", expired=True))
    with pytest.raises(ssl.SSLError) as caught:
        Handshake(client_tls("localhost", Trust(ca_file=str(authority.file))), server).run()
    assert "expired" in str(explain(caught.value, host="localhost"))


def test_client_certificates(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("broker2")
    server = server_tls(certificate, key, client_ca_file=authority.file, client_certificates_required=True)
    trust = Trust(ca_file=str(authority.file))
    ada = authority.issue("someone", uri="virta:user:ada")
    known = dataclasses.replace(trust, certificate_file=str(ada[0]), key_file=str(ada[1]))
    handshake = Handshake(client_tls("localhost", known), server)
    handshake.run()
    assert user_of(handshake.server.getpeercert()) == "ada"

    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        Handshake(client_tls("localhost", trust), server).run()
    eve = Authority(tmp_path, "eve").issue("ada")
    forged = dataclasses.replace(trust, certificate_file=str(eve[0]), key_file=str(eve[1]))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        Handshake(client_tls("localhost", forged), server).run()


def test_files_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("broker3")
    _, other_key = authority.issue("broker4")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(UsageError, match="not there"):
        server_tls(certificate, tmp_path / "gone.key")
    with pytest.raises(UsageError, match="cannot be used"):
        server_tls(certificate, other_key)
    with pytest.raises(UsageError, match="cannot be used"):
        server_tls(junk, key)
    with pytest.raises(UsageError, match="who may sign"):
        server_tls(certificate, key, client_certificates_required=True)
    for trust in (Trust(ca_file=str(junk)), Trust(certificate_file=str(junk))):
        with pytest.raises(UsageError, match="cannot be used"):
            client_tls("localhost", trust)


def test_a_development_certificate(tmp_path: Path) -> None:
    now_us = time.time_ns() // 1000
    made = make_certificate(["localhost", "127.0.0.1", "::1", "localhost"], now_us=now_us)
    assert "PRIVATE" not in repr(made)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(made.certificate_pem)
    key.write_text(made.key_pem)
    server = server_tls(certificate, key)
    assert abs(valid_until_us(server.certificate) - now_us - VALID_DAYS * 86_400_000_000) < 2_000_000
    # Known by fingerprint, and as its own authority.
    for trust in (Trust(fingerprint=fingerprint(server.certificate)), Trust(ca_file=str(certificate))):
        for host in ("localhost", "127.0.0.1", "::1"):
            client = client_tls(host, trust)
            handshake = Handshake(client, server)
            handshake.run()
            client.check(handshake.client)


def test_plain_talk_on_a_tls_port_and_the_other_way_round(authority: Authority, server: ServerTls) -> None:
    client = client_tls("localhost", Trust(ca_file=str(authority.file)))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    assert looks_like_tls(outgoing.read()) and not looks_like_tls(b"\x10\x00\x00\x00")
    incoming.write(b"\x20\x00\x00\x00\x08\x00\x00\x00an answer of a plain broker")
    with pytest.raises(ssl.SSLError) as caught:
        tls.do_handshake()
    told = explain(caught.value, host="localhost")
    assert told is not None and "does not speak TLS" in told.message and "virta://" in str(told.hint)


def test_handshakes_of_hostile_clients_end_in_an_error_of_tls(server: ServerTls) -> None:
    client = client_tls("localhost", Trust(fingerprint="sha256:" + "0" * 64))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client.context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello, source = outgoing.read(), random.Random(7)
    for _ in range(300):
        spoiled = bytearray(hello)
        for _ in range(source.randint(1, 8)):
            spoiled[source.randrange(len(spoiled))] = source.randrange(256)
        there, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
        there.write(bytes(spoiled[: source.randint(1, len(spoiled))]))
        tls = server.context.wrap_bio(there, answer, server_side=True)
        with pytest.raises(ssl.SSLError):  # wants more, or says what is wrong: never done
            tls.do_handshake()


def test_what_is_no_failure_of_tls_is_not_explained() -> None:
    assert explain(OSError("x"), host="h") is None
    told = explain(ssl.SSLError(1, "SOMETHING_NEW"), host="h")
    assert told is not None and "h failed" in told.message
