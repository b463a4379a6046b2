"""SCRAM-SHA-256 (RFC 5802, RFC 7677): both sides of a login by password, without a socket.

    client                                   server
      n,,n=ada,r=<nonce>                 →
                                         ←     r=<nonce+>,s=<salt>,i=<iterations>
      c=<header>,r=<nonce+>,p=<proof>    →
                                         ←     v=<signature>   (or e=<reason>)

The password never travels, and the server keeps only what checks a proof: a thief of its file
cannot log in with it, only try passwords. With the mechanism -PLUS the login is bound to the TLS
connection (see `binding`). A server that is asked for a user it does not know goes on to the end
with a salt made from the name, so that the answer does not tell who exists.

A message is valid if it is at most MESSAGE_LIMIT bytes of UTF-8 whose attributes stand in the
order of the RFC; anything else ends the login with `Denied`.
"""

from __future__ import annotations

import base64
import binascii
import enum
import functools
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from virta.errors import Denied, UsageError
from virta.security.binding import NAME as BINDING_NAME
from virta.security.saslprep import saslprep

MECHANISM = "SCRAM-SHA-256"
MECHANISM_PLUS = "SCRAM-SHA-256-PLUS"

MESSAGE_LIMIT = 4096
# Work for whoever tries passwords on a stolen file; about a tenth of a second for the client, once.
DEFAULT_ITERATIONS = 200_000
# RFC 7677 wants at least 4096. A hostile server must not keep a client busy for hours.
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 5_000_000
SALT_SIZE = 16
_NONCE_BYTES = 18

_NONCE = r"[\x21-\x2b\x2d-\x7e]{8,256}"
_BASE64 = r"[A-Za-z0-9+/]{0,1024}={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>(?P<flag>n|y|p=[A-Za-z0-9.\-]{{1,64}}),),n=(?P<name>[^,]{{1,512}}),r=(?P<nonce>{_NONCE})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE})),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}})"
)
_SERVER_FINAL = re.compile(rf"(?:v=(?P<signature>{_BASE64})|e=(?P<error>[^,]{{1,256}}))")

# One sentence for an unknown user and a wrong password: neither tells the other.
WRONG = "the user name or the password is wrong"
_WRONG_HINT = "check both; `virta user ls` at the broker shows who is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What a server keeps to check a password: enough for that, and no more."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Verifier(…)"  # a log line is no place for keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What a client needs of a password, once its salt is known."""

    client_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys(…)"


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def derive(password: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a password. Costs what `iterations` says: callers with a loop use a thread."""
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    return Keys(client_key=_hmac(salted, b"Client Key"), server_key=_hmac(salted, b"Server Key"))


# A client that connects again is not to pay again. Few: a process rarely is more than one user.
remembered_keys = functools.lru_cache(maxsize=16)(derive)


def make_verifier(
    password: str, *, salt: bytes | None = None, iterations: int = DEFAULT_ITERATIONS
) -> Verifier:
    """What a server is to keep of a password."""
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise UsageError(f"iterations lie between {LEAST_ITERATIONS:,} and {MOST_ITERATIONS:,}")
    salt = secrets.token_bytes(SALT_SIZE) if salt is None else salt
    keys = derive(password, salt, iterations)
    return Verifier(
        salt=salt,
        iterations=iterations,
        stored_key=_sha256(keys.client_key),
        server_key=keys.server_key,
    )


def matches(verifier: Verifier, password: str) -> bool:
    """Whether this is the password; for tokens that come whole, over HTTP."""
    try:
        keys = derive(password, verifier.salt, verifier.iterations)
    except UsageError:
        return False
    return hmac.compare_digest(_sha256(keys.client_key), verifier.stored_key)


class Step(enum.Enum):
    """Where a login stands."""

    FIRST = enum.auto()
    FINAL = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


class ScramServer:
    """The server's side of one login: feed it the client's messages, send what it gives."""

    def __init__(
        self,
        find: Callable[[str], Verifier | None],
        *,
        plus: bool,
        binding: bytes | None,
        decoy_key: bytes,
        decoy_iterations: Callable[[str], int] = lambda _: DEFAULT_ITERATIONS,
        nonce: str | None = None,
    ) -> None:
        self._find = find
        self._plus = plus
        self._binding = binding
        self._decoy_key = decoy_key
        self._decoy_iterations = decoy_iterations
        self._nonce = nonce or _new_nonce()
        self._step = Step.FIRST
        self._known = False
        self.user: str | None = None  # as claimed; proven once `done`

    @property
    def done(self) -> bool:
        return self._step is Step.DONE

    def step(self, message: bytes) -> bytes:
        """The answer to a message; `Denied` ends the login."""
        steps = {Step.FIRST: self._first, Step.FINAL: self._final}
        take, self._step = steps.get(self._step), Step.FAILED
        if take is None:
            raise Denied("the login is over already")
        return take(_text(message)).encode()

    def _first(self, text: str) -> str:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise Denied("the login's first message is malformed")
        self._check_flag(found["flag"])
        self.user = _unescape(found["name"])
        verifier = self._find(self.user)
        self._known = verifier is not None
        self._verifier = verifier or self._decoy(self.user)
        self._header = found["gs2"] + ","
        self._combined = found["nonce"] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._combined},s={salt},i={self._verifier.iterations}"
        self._transcript = f"{text.removeprefix(self._header)},{answer}"
        self._step = Step.FINAL
        return answer

    def _check_flag(self, flag: str) -> None:
        if self._plus:
            if flag != f"p={BINDING_NAME}":
                raise Denied(f"this login is bound to the connection by {BINDING_NAME}, or not at all")
        elif flag.startswith("p="):
            raise Denied(f"binding the login to the connection needs {MECHANISM_PLUS}")
        elif flag == "y" and self._binding is not None:
            # The client could bind and was told that we cannot: somebody stands between us.
            raise Denied(
                "the client was kept from binding its login to the connection",
                hint="somebody between client and broker changed what the broker offered",
            )

    def _decoy(self, user: str) -> Verifier:
        """For a user nobody knows: the same salt each time, and a proof that never fits."""
        salt = _hmac(self._decoy_key, b"salt:" + user.encode())[:SALT_SIZE]
        return Verifier(
            salt=salt, iterations=self._decoy_iterations(user), stored_key=bytes(32), server_key=bytes(32)
        )

    def _final(self, text: str) -> str:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise Denied("the login's last message is malformed")
        bound = self._header.encode() + ((self._binding or b"") if self._plus else b"")
        if not hmac.compare_digest(_decode(found["binding"]), bound):
            raise Denied(
                "the login was made over another connection than this one",
                hint="somebody between client and broker took the login along",
            )
        if not hmac.compare_digest(found["nonce"].encode(), self._combined.encode()):
            raise Denied("the login's messages do not belong together")
        transcript = f"{self._transcript},{found['bare']}".encode()
        proof = _decode(found["proof"])
        signature = _hmac(self._verifier.stored_key, transcript)
        right = len(proof) == len(signature) and hmac.compare_digest(
            _sha256(_xor(proof, signature)), self._verifier.stored_key
        )
        if not (right and self._known):
            raise Denied(WRONG, hint=_WRONG_HINT)
        self._step = Step.DONE
        return "v=" + base64.b64encode(_hmac(self._verifier.server_key, transcript)).decode()


class ScramClient:
    """The client's side of one login: `first()`, then `step` for each answer until `done`."""

    def __init__(
        self,
        user: str,
        password: str,
        *,
        binding: bytes | None = None,
        plus: bool = False,
        nonce: str | None = None,
        keys: Callable[[str, bytes, int], Keys] = remembered_keys,
    ) -> None:
        """`binding` is there over TLS; `plus` says that the server offers -PLUS."""
        self._user = user
        self._password = password
        self._binding = binding if plus else None
        self._nonce = nonce or _new_nonce()
        self._keys = keys
        if self._binding is not None:
            self._header = f"p={BINDING_NAME},,"
        else:
            self._header = "y,," if binding is not None else "n,,"
        self._step = Step.FIRST

    @property
    def mechanism(self) -> str:
        return MECHANISM if self._binding is None else MECHANISM_PLUS

    @property
    def done(self) -> bool:
        """Whether the server showed that it knows the password too."""
        return self._step is Step.DONE

    def first(self) -> bytes:
        self._bare = f"n={_escape(self._user)},r={self._nonce}"
        return (self._header + self._bare).encode()

    def step(self, message: bytes) -> bytes | None:
        """The answer to the server's message; None once the login is done."""
        steps = {Step.FIRST: self._proof, Step.FINAL: self._check}
        take, self._step = steps.get(self._step), Step.FAILED
        if take is None:
            raise Denied("the login is over already")
        return take(_text(message))

    def _proof(self, text: str) -> bytes:
        found = _SERVER_FIRST.fullmatch(text)
        if found is None:
            raise Denied("the broker's answer to the login is malformed")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise Denied("the broker's answer belongs to another login")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise Denied(
                f"the broker asks for {iterations:,} iterations of the password; "
                f"{LEAST_ITERATIONS:,} to {MOST_ITERATIONS:,} are accepted",
                hint="set the password again at the broker: virta user passwd",
            )
        keys = self._keys(self._password, _decode(found["salt"]), iterations)
        bound = base64.b64encode(self._header.encode() + (self._binding or b"")).decode()
        final = f"c={bound},r={nonce}"
        transcript = f"{self._bare},{text},{final}".encode()
        proof = _xor(keys.client_key, _hmac(_sha256(keys.client_key), transcript))
        self._signature = _hmac(keys.server_key, transcript)
        self._step = Step.FINAL
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, text: str) -> None:
        found = _SERVER_FINAL.fullmatch(text)
        if found is None:
            raise Denied("the broker's last answer to the login is malformed")
        if found["error"] is not None:
            raise Denied(f"the broker refused the login: {found['error']}")
        if not hmac.compare_digest(_decode(found["signature"]), self._signature):
            raise Denied(
                "the broker does not know the password it asked for",
                hint="this is not the broker it claims to be; check address and certificate",
            )
        self._step = Step.DONE


def _new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_LIMIT:
        raise Denied(f"a message of a login is at most {MESSAGE_LIMIT} bytes, not {len(message)}")
    try:
        return bytes(message).decode("utf-8")
    except UnicodeDecodeError:
        raise Denied("a message of a login is text, and this one is not") from None


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Denied("a message of the login holds malformed base64") from None


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise Denied("the user name in the login is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")
