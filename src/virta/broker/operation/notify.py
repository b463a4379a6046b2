"""Telling systemd how it goes (sd_notify): ready, reloading, stopping, alive. Elsewhere: nothing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notify:
    """Sends words to the socket that `$NOTIFY_SOCKET` names."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading @ is a name of Linux's own that no file has.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog(environment)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.connect(self._address)
                sender.sendall(text.encode())
            except OSError:
                # systemd is a listener, not a need; a unit that waits for it will say so itself.
                return


def _watchdog(environment: Mapping[str, str]) -> float | None:
    """How often to say that we are alive: twice in the time that systemd allows."""
    us, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not us.isdigit() or int(us) == 0 or (process.isdigit() and int(process) != os.getpid()):
        return None
    return int(us) / 2e6
