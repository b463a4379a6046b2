"""Looking at a broker's certificate before trusting it: for whoever has to compare its fingerprint."""

from __future__ import annotations

import socket
import ssl

from virta.client.transport import HINT
from virta.errors import Unreachable
from virta.security.address import Address
from virta.security.credentials import Trust
from virta.security.tls import client_tls, explain

_PATIENCE_SECONDS = 10.0


def certificate_of(address: Address, *, trusted: bool) -> bytes:
    """What the broker shows (DER). `trusted`: Denied unless an authority this machine knows signed it."""
    context = client_tls(address.host, Trust()).context
    if not trusted:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address.host, address.port), timeout=_PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=address.host) as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""
    except (OSError, ssl.SSLError) as error:
        explained = explain(error, host=address.host)
        if explained is not None:
            raise explained from error
        raise Unreachable(f"{address} cannot be reached: {error.strerror or error}", hint=HINT) from error
