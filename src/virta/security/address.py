"""The address of a broker as people write it.

    virta://host:7400                        plain: for this machine and networks you trust
    virtas://host:7400                       TLS, the certificate checked as for a web site
    virtas://host:7400?fingerprint=sha256:…  TLS, exactly this certificate
    virtas://ada@host                        as user ada; the port is 7400 unless it is named
    virta://host?acks=none&timeout=5s        appends that wait for no answer; give up after 5 seconds

`virta://…?fingerprint=…` means `virtas://`. A password or token has no place in an address: it
would stand in the shell's history, in the list of processes and in logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from virta.errors import UsageError
from virta.requests import parse_duration
from virta.security.binding import parse_fingerprint
from virta.security.principal import check_user_name

DEFAULT_PORT = 7400
PLAIN, TLS = "virta", "virtas"
# A broker that is started again is back within this time, or somebody should be told.
PATIENCE_SECONDS = 30.0
ACKS = ("leader", "none", "all")
_NO_SECRETS = "give it as VIRTA_PASSWORD_FILE or VIRTA_TOKEN_FILE, or keep it with: virta login"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a broker is, and how to talk to it."""

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    user: str | None = None
    fingerprint: str | None = None
    ca_file: str | None = None
    # What an append waits for: "leader" and "all" are the same on a broker that is alone.
    acks: str = "leader"
    # How long a broker that went away is waited for.
    patience_seconds: float = PATIENCE_SECONDS

    @property
    def name(self) -> str:
        """Host and port: what credentials are kept under."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        options = "&".join(
            f"{name}={value}"
            for name, value in (("fingerprint", self.fingerprint), ("ca_file", self.ca_file))
            if value
        )
        return f"{TLS if self.tls else PLAIN}://{user}{self.name}{'?' if options else ''}{options}"


def is_broker_address(text: str) -> bool:
    return text.partition("://")[0].lower() in (PLAIN, TLS)


def parse_address(text: str) -> Address:
    """An address, or a UsageError that never repeats what could be a secret."""
    scheme, found, _ = text.partition("://")
    if not found or scheme.lower() not in (PLAIN, TLS):
        raise UsageError("this is no address of a broker", hint=f"virta://host:{DEFAULT_PORT} or virtas://…")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError as error:
        raise UsageError("the address of the broker is malformed", hint=str(error)[:100]) from None
    if parts.password is not None:
        raise UsageError("an address holds no password", hint=_NO_SECRETS)
    for secret in ("password", "token", "secret"):
        if secret in options:
            raise UsageError(f"an address holds no {secret}", hint=_NO_SECRETS)
    if not host:
        raise UsageError("the address names no host", hint=f"virta://host:{DEFAULT_PORT}")
    if parts.path not in ("", "/") or parts.fragment:
        raise UsageError("the address of a broker ends with its port", hint="a topic is named after it")
    fingerprint, ca_file = options.pop("fingerprint", None), options.pop("ca_file", None)
    acks = options.pop("acks", "leader")
    if acks not in ACKS:
        raise UsageError(f"acks is one of {', '.join(ACKS)}, not {acks[:40]!r}")
    timeout = options.pop("timeout", None)
    if options:
        raise UsageError(
            f"an address has no option {min(options)[:40]!r}",
            hint="there are fingerprint=, ca_file=, acks= and timeout=",
        )
    return Address(
        host=host,
        port=DEFAULT_PORT if port is None else port,
        tls=scheme.lower() == TLS or fingerprint is not None or ca_file is not None,
        user=check_user_name(unquote(parts.username)) if parts.username else None,
        fingerprint=parse_fingerprint(fingerprint) if fingerprint else None,
        ca_file=ca_file,
        acks=acks,
        patience_seconds=PATIENCE_SECONDS if timeout is None else max(0.0, parse_duration(timeout)),
    )
