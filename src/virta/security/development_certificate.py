"""A certificate that signs itself, for brokers that nobody made one for.

Clients cannot know it beforehand, so they are told its fingerprint. Good for development and for
small networks; where there are authorities, use theirs. Needs `cryptography` (extra `serve`).
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

# Long enough that nobody's broker stops over it, short enough that it is not for ever.
VALID_DAYS = 730
# Clocks differ; a certificate that begins in the client's future would be refused.
_EARLIER_DAYS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAndKey:
    certificate_pem: str
    key_pem: str = field(repr=False)


def make_certificate(hosts: Sequence[str], *, now_us: int) -> CertificateAndKey:
    """A certificate for these names and addresses, and its key (ECDSA, P-256)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "virta development broker")])
    now = datetime.datetime.fromtimestamp(now_us / 1e6, datetime.UTC).replace(microsecond=0)
    alternatives = [_general_name(host) for host in dict.fromkeys(hosts)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=_EARLIER_DAYS))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return CertificateAndKey(
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    )


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def valid_until_us(certificate: bytes) -> int:
    """When a certificate (DER) ends."""
    from cryptography import x509

    end = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    return int(end.timestamp() * 1e6)
