"""What the console's Broker page shows of a running broker, as plain values; and its faults on purpose."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from virta import __version__
from virta.broker.faults import Faults
from virta.broker.operation.logs import Recent
from virta.broker.operation.numbers import process_numbers
from virta.broker.tally import LATENCY_SECONDS, SLOW_SECONDS
from virta.protocol.codes import FrameType

if TYPE_CHECKING:
    from virta.broker.server import Server
    from virta.broker.session import Session

# Beyond it a page would be of no use to anybody.
_MOST_CONNECTIONS = 500


class Status:
    """Asked in the broker's own event loop, but for `sizes`."""

    def __init__(self, server: Server, *, recent: Recent, started_at: float) -> None:
        self._server = server
        self._recent = recent
        self._started_at = started_at

    @property
    def log(self) -> Any:
        """The log that the broker serves."""
        return self._server.log

    @property
    def faults(self) -> Faults | None:
        """None unless this broker is for development."""
        return self._server.faults

    def look(self, *, after: int = 0) -> dict[str, Any]:
        """Everything but what takes files; log lines after a number."""
        server, tally = self._server, self._server.tally
        sessions = sorted(server.sessions, key=lambda each: each.connected_at)
        return {
            "version": __version__,
            "uptime": time.time() - self._started_at,
            "stopping": server.is_stopping,
            "connections": [self._connection(each) for each in sessions[:_MOST_CONNECTIONS]],
            "open": len(sessions),
            "taken": tally.connections,
            "refused": tally.refused,
            "failed_logins": tally.failed_logins,
            "received": tally.received_bytes,
            "sent": tally.sent_bytes,
            "requests": {FrameType(type_).name.lower(): n for type_, n in list(tally.requests.items())},
            "errors": dict(tally.errors),
            "bounds": list(LATENCY_SECONDS),
            "latency": {FrameType(type_).name.lower(): list(n) for type_, n in list(tally.latency.items())},
            "slow_bound": SLOW_SECONDS,
            "slow": [
                {
                    "at": each.at,
                    "connection": each.connection,
                    "verb": FrameType(each.type).name.lower(),
                    "topic": each.topic,
                    "seconds": each.seconds,
                }
                for each in reversed(tally.slow)
            ],
            "lines": self._recent.after(after),
            "faults": self._faults(),
        }

    def _connection(self, session: Session) -> dict[str, Any]:
        now = self._server.now()
        return {
            "name": session.name,
            "address": session.peer.address,
            "client": session.client,
            "user": "" if session.seat is None else str(session.seat.principal),
            "encrypted": session.peer.encrypted,
            "seconds": now - session.connected_at,
            "silent": now - session.heard_at,
            "in_flight": len(session.tasks),
            "appending": session.appending_bytes,
        }

    def _faults(self) -> dict[str, Any] | None:
        faults = self.faults
        if faults is None:
            return None
        return {
            "delay_seconds": faults.delay_seconds,
            "paused": faults.paused,
            "disk_full": faults.disk_full,
            "drop_percent": faults.drop_percent,
        }

    def drop(self, name: str | None = None) -> int:
        """Cut a connection, or all of them; how many."""
        chosen = [each for each in self._server.sessions if name is None or each.name == name]
        for session in chosen:
            session.drop()
        return len(chosen)

    @staticmethod
    async def process() -> dict[str, float]:
        """Memory, processor time and descriptors of the broker's process."""
        return await asyncio.to_thread(process_numbers)
