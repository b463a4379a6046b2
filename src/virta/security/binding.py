"""Channel binding `tls-server-end-point` (RFC 5929): ties a login to the certificate it was made over.

Whoever sits between two TLS connections has another certificate, so a login over them does
not pass. Both sides hash the broker's certificate with the hash of its own signature. The
little DER that takes is read here, because the client should not need `cryptography`.
"""

from __future__ import annotations

import hashlib

from virta.errors import UsageError

NAME = "tls-server-end-point"

# Object identifiers of signatures, as DER bytes → the hash to bind with. MD5 and SHA-1 are
# replaced by SHA-256 (RFC 5929); what has no hash of its own (Ed25519, RSA-PSS) takes it too.
_HASHES = {
    bytes.fromhex("2a864886f70d01010c"): "sha384",  # sha384WithRSAEncryption
    bytes.fromhex("2a864886f70d01010d"): "sha512",  # sha512WithRSAEncryption
    bytes.fromhex("2a8648ce3d040303"): "sha384",  # ecdsa-with-SHA384
    bytes.fromhex("2a8648ce3d040304"): "sha512",  # ecdsa-with-SHA512
}


def end_point(certificate: bytes) -> bytes:
    """What a login over this server certificate (DER) is bound to."""
    return hashlib.new(_HASHES.get(_signature_algorithm(certificate), "sha256"), certificate).digest()


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 fingerprint of a certificate (DER), as it is printed and pinned."""
    return "sha256:" + hashlib.sha256(certificate).hexdigest()


def parse_fingerprint(text: str) -> str:
    """A fingerprint in any usual way of writing it, in ours; a UsageError when it is none."""
    head, colon, rest = text.strip().lower().partition(":")
    digits = (rest if colon and head in ("sha256", "sha-256") else text.strip().lower()).replace(":", "")
    if len(digits) != 64 or any(each not in "0123456789abcdef" for each in digits):
        raise UsageError(
            f"{text[:100]!r} is no SHA-256 fingerprint",
            hint="64 hexadecimal digits, as `virta serve` prints them: sha256:3f9c…",
        )
    return "sha256:" + digits


def _signature_algorithm(certificate: bytes) -> bytes:
    """Certificate ::= SEQUENCE { tbsCertificate, SEQUENCE { OBJECT IDENTIFIER, … }, … }"""
    start, end = _inside(certificate, 0, 0x30)
    _, start = _inside(certificate[:end], start, 0x30)
    start, end = _inside(certificate[:end], start, 0x30)
    start, end = _inside(certificate[:end], start, 0x06)
    return certificate[start:end]


def _inside(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Where the content of the DER value at a place begins and ends."""
    if len(data) < at + 2 or data[at] != tag:
        raise UsageError("the certificate is not readable")
    length, start = data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + length > len(data):
        raise UsageError("the certificate is not readable")
    return start, start + length
