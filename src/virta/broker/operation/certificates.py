"""The broker's certificate: the one that was configured, or one of its own that is made once.

A made one stays as it is, even when its time is over: clients know it by its fingerprint, and a
new one would lock them all out. Delete the files to have another made.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from virta.broker.operation.settings import BrokerSettings
from virta.clock import Clock
from virta.errors import UsageError
from virta.security.development_certificate import make_certificate
from virta.security.private_files import write_private
from virta.security.tls import ServerTls, server_tls

CERTIFICATE, KEY = "certificate.pem", "key.pem"


def broker_tls(settings: BrokerSettings, directory: Path, clock: Clock) -> ServerTls:
    """What the broker shows, ready to be used."""
    certificate, key = _files(settings, directory, clock)
    client_ca = settings["tls.client_ca_file"]
    return server_tls(
        certificate,
        key,
        client_ca_file=None if client_ca is None else Path(client_ca),
        client_certificates_required=settings["tls.client_certificates_required"],
    )


def is_made_here(settings: BrokerSettings) -> bool:
    return settings["tls.certificate_file"] is None


def _files(settings: BrokerSettings, directory: Path, clock: Clock) -> tuple[Path, Path]:
    configured, key = settings["tls.certificate_file"], settings["tls.key_file"]
    if configured is not None:
        return Path(configured), Path(key or configured)
    if key is not None:
        raise UsageError("there is a key and no certificate", hint="give tls.certificate_file too")
    files = directory / CERTIFICATE, directory / KEY
    if not all(file.exists() for file in files):
        made = make_certificate(_hosts(address.host for address in settings.listen), now_us=clock.now_us())
        # The key first: a certificate without one would be taken for whole.
        write_private(files[1], made.key_pem)
        write_private(files[0], made.certificate_pem)
    return files


def _hosts(listen: Iterable[str]) -> list[str]:
    """The names a client may call this machine by."""
    anywhere = ("0.0.0.0", "::", "")
    names = [*(host for host in listen if host not in anywhere), "localhost", "127.0.0.1", "::1"]
    own = [name for name in (socket.gethostname(), socket.getfqdn()) if name.isascii() and name]
    return list(dict.fromkeys([*names, *own]))
