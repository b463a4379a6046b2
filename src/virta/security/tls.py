"""TLS contexts: which certificates count, on both sides. The sockets are somebody else's.

TLS 1.2 is the least. A broker's certificate is trusted because the system's or the given
authorities signed it for that host, or because it is exactly the one whose fingerprint is known
(then name and dates say nothing: whoever has the key is the broker).
"""

from __future__ import annotations

import hmac
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta.errors import Denied, UsageError
from virta.security import binding
from virta.security.credentials import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A client's context, and the name to look for in the certificate."""

    context: ssl.SSLContext
    server_hostname: str
    fingerprint: str | None = None

    def check(self, tls: ssl.SSLObject | ssl.SSLSocket | Any) -> bytes:
        """To be called once the handshake is done and before a byte is sent: what a login is bound to."""
        certificate = tls.getpeercert(binary_form=True)
        if not certificate:
            raise Denied("the broker showed no certificate")
        if self.fingerprint is not None:
            found = binding.fingerprint(certificate)
            if not hmac.compare_digest(found, self.fingerprint):
                raise Denied(
                    f"the broker's certificate is another one: {found} instead of {self.fingerprint}",
                    hint="somebody is in between, or the certificate was renewed: compare with what `virta "
                    "serve` prints, then give the new fingerprint",
                )
        return binding.end_point(certificate)


def client_tls(host: str, trust: Trust) -> ClientTls:
    """How a client talks TLS to a host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust.fingerprint is not None:
        # The certificate is compared whole, so who signed it does not matter.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif trust.ca_file is not None:
        _load(lambda: context.load_verify_locations(cafile=trust.ca_file), trust.ca_file, "authorities")
    else:
        context.load_default_certs()
    if trust.certificate_file is not None:
        certificate, key = trust.certificate_file, trust.key_file
        _load(lambda: context.load_cert_chain(certificate, key, _no_password), certificate, "certificate")
    return ClientTls(context=context, server_hostname=host, fingerprint=trust.fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """A broker's context and its certificate (DER), which logins are bound to."""

    context: ssl.SSLContext
    certificate: bytes

    @property
    def fingerprint(self) -> str:
        return binding.fingerprint(self.certificate)


def server_tls(
    certificate_file: Path,
    key_file: Path,
    *,
    client_ca_file: Path | None = None,
    client_certificates_required: bool = False,
) -> ServerTls:
    """How a broker talks TLS; with `client_ca_file`, clients may show certificates signed by it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that begins again and again would have the broker do the work of it.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load(
        lambda: context.load_cert_chain(certificate_file, key_file, _no_password),
        certificate_file,
        "certificate",
    )
    if client_ca_file is not None:
        _load(lambda: context.load_verify_locations(cafile=client_ca_file), client_ca_file, "authorities")
        context.verify_mode = ssl.CERT_REQUIRED if client_certificates_required else ssl.CERT_OPTIONAL
    elif client_certificates_required:
        raise UsageError(
            "client certificates are asked for, and nothing says who may sign them",
            hint="give the authorities' file: [tls] client_ca_file",
        )
    return ServerTls(context=context, certificate=_first_certificate(certificate_file))


def _no_password() -> str:
    raise UsageError("the private key is encrypted", hint="store it decrypted, readable by the broker only")


def _load(act: Any, path: Any, what: str) -> None:
    try:
        act()
    except FileNotFoundError:
        raise UsageError(
            f"the file of the {what} (or of its key) is not there: {path}", hint="PEM files are wanted"
        ) from None
    except ssl.SSLError as error:
        raise UsageError(
            f"the {what} in {path} cannot be used: {error.reason or error}",
            hint="PEM files are wanted: the certificate with those that signed it, and the key that fits",
        ) from None
    except OSError as error:
        raise UsageError(f"the {what} in {path} cannot be read: {error.strerror or error}") from None


def _first_certificate(path: Path) -> bytes:
    text = path.read_text(encoding="ascii", errors="replace")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start = text.find(begin)
    stop = text.find(end, start)
    if start < 0 or stop < 0:
        raise UsageError(f"{path} holds no certificate")
    return ssl.PEM_cert_to_DER_cert(text[start : stop + len(end)])


def explain(error: BaseException, *, host: str) -> Denied | None:
    """A failed handshake in words, with what to do; None when it is none that we know."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Denied(
            f"the certificate of {host} is not trusted: {error.verify_message}",
            hint="?ca_file=… with the authority that signed it, or ?fingerprint=… as `virta serve` prints it",
        )
    if not isinstance(error, ssl.SSLError):
        return None
    said = getattr(error, "reason", None) or str(error)  # some are made without one
    reason = said.upper()
    for mark, message, hint in _REASONS:
        if mark in reason:
            return Denied(message.format(host=host), hint=hint)
    return Denied(f"the TLS handshake with {host} failed: {said.lower()}")


_REASONS = (
    (
        "WRONG_VERSION_NUMBER",
        "{host} does not speak TLS on this port",
        "a broker without TLS is reached by virta:// instead of virtas://",
    ),
    (
        "RECORD_LAYER_FAILURE",
        "{host} does not speak TLS on this port",
        "a broker without TLS is reached by virta:// instead of virtas://",
    ),
    (
        "CERTIFICATE_REQUIRED",
        "{host} asks for a client certificate",
        "VIRTA_CERTIFICATE_FILE and VIRTA_KEY_FILE name yours",
    ),
    (
        "UNKNOWN_CA",
        "{host} does not know who signed the client certificate",
        "have it signed by an authority in the broker's client_ca_file",
    ),
    ("CERTIFICATE_EXPIRED", "the certificate has expired", "renew it"),
    ("UNSUPPORTED_PROTOCOL", "{host} speaks too old a version of TLS", "TLS 1.2 is the least"),
    ("PROTOCOL_VERSION", "{host} speaks no version of TLS that this side does", "TLS 1.2 is the least"),
    ("HANDSHAKE_FAILURE", "{host} and this side have no cipher in common", None),
)

# The first bytes of a TLS handshake: what a plain port sees when a client talks TLS to it.
TLS_HELLO = b"\x16\x03"
_TLS_ALERT = b"\x15\x03"


def looks_like_tls_alert(data: bytes) -> bool:
    """Whether a plain client was answered by somebody who speaks TLS."""
    return bytes(data[:2]) == _TLS_ALERT


def looks_like_tls(data: bytes) -> bool:
    """Whether a connection to a plain port begins with a TLS handshake."""
    return bytes(data[:2]) == TLS_HELLO
