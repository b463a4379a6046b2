"""What a de-promotion did, as a statement that can be checked later.

    format      "virta de-promotion statement 1"
    from, to    context, environment, rank
    policy      the hash of the rules;  key  the fingerprint of the masking key
    topics      for each: the source's position (tokens, which hold the hash of all history
                before them), rows read and written, what became of each column, and the
                target's heads afterwards
    signature   algorithm, key, value

The signature is over the JSON of all the rest: keys sorted, no spaces, UTF-8. It is
Ed25519 where a signing key is given, which anybody can check who has the public key;
else keyed BLAKE3 under the masking key, which its holders can check.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import virta
from virta.errors import DamageError, NotFound, UnavailableError, UsageError
from virta.security.masking import MaskingKey

FORMAT = "virta de-promotion statement 1"
_ED25519, _KEYED = "ed25519", "blake3-keyed"


def _message(statement: Mapping[str, Any]) -> bytes:
    rest = {name: value for name, value in statement.items() if name != "signature"}
    return json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


# -- signing ------------------------------------------------------------------------------------------


def signed(
    statement: Mapping[str, Any], *, signing_key: str | None, masking_key: MaskingKey | None
) -> dict[str, Any]:
    """The statement with its signature."""
    if signing_key is not None:
        private = _private_key(Path(signing_key))
        return {
            **statement,
            "signature": {
                "algorithm": _ED25519,
                "key": _text(private.public_key().public_bytes_raw()),
                "value": _text(private.sign(_message(statement))),
            },
        }
    if masking_key is None:
        raise UsageError(
            "a statement is signed with a signing key, or with the masking key",
            hint='sign = { file = "signing.pem" }; make one: virta pipeline key --signing signing.pem',
        )
    return {
        **statement,
        "signature": {
            "algorithm": _KEYED,
            "key": masking_key.fingerprint,
            "value": _text(_keyed(masking_key, statement)),
        },
    }


def _keyed(key: MaskingKey, statement: Mapping[str, Any]) -> bytes:
    from blake3 import blake3

    return blake3(_message(statement), key=key.purpose("statement")).digest()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cryptography() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UnavailableError(
            "signing needs the package cryptography", hint="pip install cryptography"
        ) from error
    return serialization, ed25519


def _private_key(path: Path) -> Any:
    serialization, ed25519 = _cryptography()
    key = _loaded(path, lambda data: serialization.load_pem_private_key(data, password=None))
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UsageError(f"{path} is no Ed25519 key", hint="make one: virta pipeline key --signing FILE")
    return key


def _loaded(path: Path, load: Any) -> Any:
    try:
        return load(path.expanduser().read_bytes())
    except OSError as error:
        raise NotFound(f"the key {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no key in PEM: {error}") from error


def new_signing_key(path: Path) -> str:
    """Make an Ed25519 key in a file of one's own; the public half as PEM."""
    serialization, ed25519 = _cryptography()
    private = ed25519.Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_secret(path, pem)
    public: bytes = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public.decode()


def write_secret(path: Path, data: bytes) -> None:
    """A new file that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and a key is not overwritten") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


# -- checking -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCheck:
    """What was checked of a statement, in words; what was not is not in it."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    notices: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.failed


def load_statement(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        statement = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(f"the statement {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no statement: {error}") from error
    if not isinstance(statement, dict) or statement.get("format") != FORMAT:
        raise UsageError(f"{path} is no statement of a de-promotion that this Virta knows")
    return statement


def check_statement(
    statement: Mapping[str, Any],
    *,
    public_key: str | os.PathLike[str] | None = None,
    masking_key: MaskingKey | None = None,
    policy_hash: str | None = None,
    source: str | None = None,
    target: str | None = None,
) -> StatementCheck:
    """Hold a statement against a key, a policy, and the logs it tells of."""
    checking = _Checking(statement)
    checking.signature(public_key, masking_key)
    if policy_hash is not None:
        checking.note(statement.get("policy") == policy_hash, "the policy is the one of this pipeline")
    if source is not None:
        checking.against(source, "source", _source_matches)
    if target is not None:
        checking.against(target, "target", _target_matches)
    return StatementCheck(
        passed=tuple(checking.passed), failed=tuple(checking.failed), notices=tuple(checking.notices)
    )


class _Checking:
    def __init__(self, statement: Mapping[str, Any]) -> None:
        self._statement = statement
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.notices: list[str] = []

    def note(self, good: bool, what: str) -> None:
        (self.passed if good else self.failed).append(what if good else f"not so: {what}")

    def signature(self, public_key: str | os.PathLike[str] | None, masking_key: MaskingKey | None) -> None:
        signature = self._statement.get("signature", {})
        if signature.get("algorithm") == _KEYED:
            if masking_key is None:
                self.failed.append("the signature is keyed: checking it needs the masking key")
                return
            good = signature.get("value") == _text(_keyed(masking_key, self._statement))
            self.note(good, "signed under this masking key, and unchanged since")
            return
        if signature.get("algorithm") != _ED25519:
            self.failed.append("the statement is not signed")
            return
        named = base64.b64decode(signature["key"])
        if public_key is None:
            self.notices.append("the key is the statement's own: give the one you trust to know who signed")
        else:
            self.note(named == _public_key(Path(public_key)), "the key is the one you trust")
        self.note(self._is_signed(named, signature["value"]), "signed by this key, and unchanged since")

    def _is_signed(self, key: bytes, value: str) -> bool:
        _, ed25519 = _cryptography()
        from cryptography.exceptions import InvalidSignature

        try:
            ed25519.Ed25519PublicKey.from_public_bytes(key).verify(
                base64.b64decode(value), _message(self._statement)
            )
        except (InvalidSignature, ValueError):
            return False
        return True

    def against(self, address: str, side: str, matches: Any) -> None:
        with virta.open(address, create=False) as log:
            for told in self._statement["topics"]:
                what = f"{side} topic {told['topic']} still has the history that is told"
                try:
                    matches(log.topic(told["topic"]), told[side])
                    self.passed.append(what)
                except (NotFound, UsageError, DamageError) as error:
                    self.failed.append(f"not so: {what}: {error.message}")


def _public_key(path: Path) -> bytes:
    serialization, ed25519 = _cryptography()
    key = _loaded(path, serialization.load_pem_public_key)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise UsageError(f"{path} is no public Ed25519 key")
    return bytes(key.public_bytes_raw())


def _source_matches(topic: Any, told: Mapping[str, Any]) -> None:
    """The tokens still stand on the history they stood on."""
    _same_topic(topic, told)
    for number, position in (told["position"] or {}).items():
        topic.partition(int(number)).poll(position["token"], max_bytes=1)


def _target_matches(topic: Any, told: Mapping[str, Any]) -> None:
    """The heads are still in the history, and every byte before them is what was written."""
    _same_topic(topic, told)
    report = topic.verify(against={int(number): head for number, head in told["heads"].items()})
    if not report.ok:
        worst = next(problem for problem in report.problems if problem.severity == "damage")
        raise DamageError(worst.message)


def _same_topic(topic: Any, told: Mapping[str, Any]) -> None:
    if topic.id != told["topic_id"]:
        raise UsageError("it is another topic of the same name")
