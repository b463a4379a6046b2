"""Bytes to and from a broker: a TCP connection, plain or in TLS.

TLS is done in memory, under a lock of its own: one thread may send while another one
receives, and OpenSSL does not stand both at once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any, Protocol

from virta.errors import Unreachable, VirtaError
from virta.security.address import Address
from virta.security.credentials import Credentials
from virta.security.tls import ClientTls, client_tls, explain

# A read ends by itself after so long, so that silence is noticed.
QUIET_SECONDS = 5
_CONNECT_SECONDS = 10.0
# Parts smaller than this are put together for one call.
_JOIN_BYTES = 64 * 1024
_TLS_READ_BYTES = 256 * 1024

HINT = "is the broker running? `virta serve ./events --listen virta://127.0.0.1:7400` starts one"


class Transport(Protocol):
    """`receive` gives None when nothing came for a while, and nothing at the end."""

    binding: bytes | None  # what a login is bound to, over TLS

    def send(self, parts: list[Any], while_waiting: Callable[[], None]) -> None: ...

    def receive(self, most: int) -> bytes | None: ...

    def close(self) -> None: ...


class PlainTransport:
    """A TCP connection."""

    binding: bytes | None = None

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # a blocking read that ends by itself costs one call, a timeout of Python's two
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", QUIET_SECONDS, 0))

    def send(self, parts: list[Any], while_waiting: Callable[[], None]) -> None:
        """Write all of it; while the broker takes nothing, its answers are read."""
        if len(parts) > 1 and sum(map(len, parts)) <= _JOIN_BYTES:
            parts = [b"".join(parts)]
        sock = self._socket
        for part in parts:
            view = memoryview(part)
            while view:
                try:
                    view = view[sock.send(view, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    self._wait(while_waiting)

    def _wait(self, while_waiting: Callable[[], None]) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | select.POLLOUT)
        for _, event in poller.poll(QUIET_SECONDS * 1000):
            if event & select.POLLIN:
                while_waiting()

    def receive(self, most: int) -> bytes | None:
        try:
            return self._socket.recv(most)
        except BlockingIOError:
            return None

    def close(self) -> None:
        with contextlib.suppress(OSError):  # whoever waits in a read is let go
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class TlsTransport(PlainTransport):
    """TLS over a TCP connection."""

    def __init__(self, sock: socket.socket, tls: ClientTls) -> None:
        super().__init__(sock)
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_hostname=tls.server_hostname)
        self._shake_hands()
        self.binding = tls.check(self._tls)

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                self._flush(_nothing)
                return
            except ssl.SSLWantReadError:
                self._flush(_nothing)
                data = super().receive(_TLS_READ_BYTES)
                if not data:
                    raise OSError("no TLS is spoken there") from None
                self._incoming.write(data)

    def _flush(self, while_waiting: Callable[[], None]) -> None:
        data = self._outgoing.read()
        if data:
            super().send([data], while_waiting)

    def send(self, parts: list[Any], while_waiting: Callable[[], None]) -> None:
        with self._lock:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[self._tls.write(view) :]
            data = self._outgoing.read()
        super().send([data], while_waiting)

    def receive(self, most: int) -> bytes | None:  # noqa: ARG002 - records have sizes of their own
        data = super().receive(_TLS_READ_BYTES)
        if not data:
            return data
        found = []
        with self._lock:
            self._incoming.write(data)
            try:
                while piece := self._tls.read(_TLS_READ_BYTES):
                    found.append(piece)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return b"".join(found)
        # part of a record only: something will follow, but nothing is there yet
        return b"".join(found) or None


def dial(address: Address, credentials: Credentials) -> Transport:
    """A connection to this address."""
    try:
        sock = socket.create_connection((address.host, address.port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        raise Unreachable(f"{address} cannot be reached: {error.strerror or error}", hint=HINT) from error
    try:
        if not address.tls:
            return PlainTransport(sock)
        return TlsTransport(sock, client_tls(address.host, credentials.trust))
    except (OSError, ssl.SSLError) as error:
        sock.close()
        explained = explain(error, host=address.host)
        if explained is not None:
            raise explained from error
        raise Unreachable(f"{address} cannot be reached: {error.strerror or error}", hint=HINT) from error
    except BaseException:
        sock.close()
        raise


def greeting_failed(error: OSError | None, address: Address, credentials: Credentials) -> VirtaError:
    """What it means that a connection ended before the broker said a word. (None: it just ended.)"""
    explained = None if error is None else explain(error, host=address.host)
    if explained is not None:
        return explained
    if address.tls and credentials.trust.certificate_file is not None:
        # The broker looks at a client's certificate after the handshake; its answer may get lost.
        return Unreachable(
            f"{address} ended the connection when it saw the client certificate",
            hint="have it signed by an authority in the broker's client_ca_file",
        )
    hint = "is it stopping?" if address.tls else "a broker that speaks TLS is reached by virtas:// instead"
    return Unreachable(f"{address} ended the connection before it said a word", hint=hint)


def _nothing() -> None:
    return None
