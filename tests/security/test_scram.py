"""Logins by SCRAM-SHA-256: the RFC's example, both sides together, and everything that must fail."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.errors import Denied, UsageError
from virta.security import scram
from virta.security.saslprep import saslprep
from virta.security.scram import ScramClient, ScramServer, Verifier, derive, make_verifier, matches

# RFC 7677, section 3.
USER, PASSWORD = "user", "pencil"
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
MESSAGES = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ),
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)

VERIFIER = make_verifier(PASSWORD, salt=SALT, iterations=4096)
BINDING = b"what the connection is bound to!"


def server(
    *,
    plus: bool = False,
    binding: bytes | None = None,
    known: Verifier | None = VERIFIER,
    nonce: str | None = None,
) -> ScramServer:
    return ScramServer(
        lambda name: known if name == USER else None,
        plus=plus,
        binding=binding,
        decoy_key=b"decoy" * 4,
        decoy_iterations=lambda _: 4096,
        nonce=nonce,
    )


def run(client: ScramClient, there: ScramServer) -> None:
    message: bytes | None = client.first()
    while message is not None:
        message = client.step(there.step(message))


def test_the_example_of_the_rfc() -> None:
    client, there = ScramClient(USER, PASSWORD, nonce=CLIENT_NONCE), server(nonce=SERVER_NONCE)
    first = client.first()
    challenge = there.step(first)
    proof = client.step(challenge)
    assert proof is not None
    signature = there.step(proof)
    assert (first, challenge, proof, signature) == MESSAGES
    assert client.step(signature) is None
    assert client.done and there.done and there.user == USER


@pytest.mark.parametrize("plus", [False, True])
def test_both_sides_over_tls(plus: bool) -> None:
    client = ScramClient(USER, PASSWORD, binding=BINDING, plus=plus)
    # Without PLUS the client says that it could bind: only a server that cannot may accept that.
    there = server(plus=plus, binding=BINDING if plus else None)
    assert client.mechanism == (scram.MECHANISM_PLUS if plus else scram.MECHANISM)
    run(client, there)
    assert client.done and there.done


def test_a_login_bound_to_another_connection_fails() -> None:
    with pytest.raises(Denied, match="another connection"):
        run(ScramClient(USER, PASSWORD, binding=b"mallory", plus=True), server(plus=True, binding=BINDING))


def test_who_hides_the_binding_is_found_out() -> None:
    with pytest.raises(Denied, match="kept from binding"):
        run(ScramClient(USER, PASSWORD, binding=BINDING, plus=False), server(binding=BINDING))


def test_binding_and_mechanism_belong_together() -> None:
    with pytest.raises(Denied, match="SCRAM-SHA-256-PLUS"):
        server(binding=BINDING).step(ScramClient(USER, "x", binding=BINDING, plus=True).first())
    with pytest.raises(Denied, match="bound to the connection"):
        server(plus=True, binding=BINDING).step(ScramClient(USER, "x").first())


def test_a_wrong_password_and_an_unknown_user_look_the_same() -> None:
    told = []
    for user, password, known in (
        (USER, "wrong", VERIFIER),
        ("nobody", PASSWORD, VERIFIER),
        (USER, "x", None),
    ):
        with pytest.raises(Denied) as caught:
            run(ScramClient(user, password), server(known=known))
        told.append(str(caught.value))
    assert len(set(told)) == 1
    assert PASSWORD not in told[0] and "wrong password" not in told[0]


def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    first = ScramClient("nobody", "x", nonce=CLIENT_NONCE).first()
    one, two = (server(nonce=SERVER_NONCE).step(first) for _ in range(2))
    assert one == two
    other = server(nonce=SERVER_NONCE).step(ScramClient("nobody2", "x", nonce=CLIENT_NONCE).first())
    assert other != one


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient(USER, PASSWORD, nonce=CLIENT_NONCE)
    client.first()
    client.step(MESSAGES[1])
    with pytest.raises(Denied, match="not the broker it claims to be"):
        client.step(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(Denied, match="over already"):
        client.step(MESSAGES[3])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (MESSAGES[1].replace(b"i=4096", b"i=1"), "iterations"),
        (MESSAGES[1].replace(b"i=4096", b"i=4000000000"), "iterations"),
        (MESSAGES[1].replace(b"r=r", b"r=x"), "another login"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "another login"),
        (b"m=ext," + MESSAGES[1], "malformed"),
        (MESSAGES[1].replace(b"s=W", b"s=W==="), "malformed"),
        (b"", "malformed"),
        (b"\xff\xfe", "text"),
        (b"r=" + b"a" * 5000, "at most"),
    ],
)
def test_answers_that_a_client_refuses(answer: bytes, said: str) -> None:
    client = ScramClient(USER, PASSWORD, nonce=CLIENT_NONCE)
    client.first()
    with pytest.raises(Denied, match=said):
        client.step(answer)


def test_a_refusal_of_the_server_is_told() -> None:
    client = ScramClient(USER, PASSWORD, nonce=CLIENT_NONCE)
    client.first()
    client.step(MESSAGES[1])
    with pytest.raises(Denied, match="invalid-proof"):
        client.step(b"e=invalid-proof")


def test_a_login_runs_once() -> None:
    there = server()
    run(ScramClient(USER, PASSWORD), there)
    with pytest.raises(Denied, match="over already"):
        there.step(MESSAGES[0])


def test_an_old_proof_is_worth_nothing() -> None:
    there = server()
    there.step(MESSAGES[0])
    with pytest.raises(Denied, match="do not belong together"):
        there.step(MESSAGES[2])


def test_random_messages_end_a_login_and_nothing_else() -> None:
    source = random.Random(4)
    for _ in range(2000):
        there = server(nonce=SERVER_NONCE)
        messages = [bytearray(MESSAGES[0]), bytearray(MESSAGES[2])]
        victim = source.choice(messages)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(victim))
            if source.random() < 0.3:
                del victim[at:]
            else:
                victim[at : at + source.randint(0, 2)] = source.randbytes(source.randint(0, 3))
            if not victim:
                break
        changed = (bytes(messages[0]), bytes(messages[1])) != (MESSAGES[0], MESSAGES[2])
        try:
            for message in messages:
                there.step(bytes(message))
        except Denied:
            continue
        assert not changed, messages


@given(
    st.text(min_size=1, max_size=30), st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)
)
def test_any_password_that_can_be_set_logs_in(password: str, user: str) -> None:
    try:
        verifier = make_verifier(password, iterations=4096)
    except UsageError:
        return
    there = ScramServer(
        lambda _: verifier, plus=False, binding=None, decoy_key=b"x", decoy_iterations=lambda _: 4096
    )
    run(ScramClient(user, password, keys=derive), there)
    assert there.user == user
    assert matches(verifier, password) and not matches(verifier, password + "x")


def test_names_with_commas_and_equal_signs_travel_whole() -> None:
    there = ScramServer(lambda _: VERIFIER, plus=False, binding=None, decoy_key=b"x")
    run(ScramClient("a=b,c", PASSWORD), there)
    assert there.user == "a=b,c"
    with pytest.raises(Denied, match="user name"):
        server().step(b"n,,n=a=2X,r=rOprNGfwEbeRWgbNEkqO")


def test_saslprep_has_the_examples_of_its_rfc() -> None:
    assert saslprep("I\u00adX") == "IX"
    assert saslprep("USER") == "USER"
    assert saslprep("\u00aa") == "a"
    assert saslprep("\u2168") == "IX"
    assert saslprep("a\u0308") == "\u00e4"
    for bad in ("\u0007", "\u0627\u0031", "a\u0378"):
        with pytest.raises(UsageError):
            saslprep(bad)


def test_keys_never_show() -> None:
    keys = derive(PASSWORD, SALT, 4096)
    for value in (keys, VERIFIER):
        assert "…" in repr(value) and "key=" not in repr(value)
