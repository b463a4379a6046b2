"""Brokers with users, TLS and limits for tests: in a thread of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import virta
from tests.served import Served
from virta.clock import SystemClock
from virta.log import Log
from virta.security.access import Access, User
from virta.security.audit import AuditEntry
from virta.security.guard import Guard, Policy
from virta.security.limits import Limits
from virta.security.permissions import Permission, parse_grant
from virta.security.scram import Verifier, make_verifier
from virta.security.tls import ServerTls

PASSWORD = "correct horse"
VERIFIER = make_verifier(PASSWORD, iterations=4096)


class Secured(Served):
    """A broker whose list of users a test can change while it runs."""

    def __init__(
        self,
        path: Path,
        *,
        tls: ServerTls | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.access = Access.empty()
        self.written: list[AuditEntry] = []
        self.tls = tls
        guard = Guard(
            access=lambda _: self.access,
            clock=SystemClock(),
            limits=limits,
            policy=policy,
            write_audit=self.written.append,
        )
        super().__init__(path, guard=guard)

    async def _start(self) -> int:
        return await self.server.start("127.0.0.1", self.port, tls=self.tls)

    def add(self, name: str, *grants: str, verifier: Verifier | None = VERIFIER) -> None:
        self.change(lambda access: access.with_user(User(name=name, created_us=0, verifier=verifier)))
        for grant in grants:
            self.allow(name, grant)

    def allow(self, who: str, grant: str, *, denies: bool = False) -> None:
        rule = Permission(who=who, grant=parse_grant(grant), denies=denies)
        self.change(lambda access: access.with_permission(rule))

    def change(self, act: Callable[[Access], Access]) -> None:
        self.access = act(self.access)

    def open(self, user: str | None = None, password: str = PASSWORD, **given: Any) -> Log:
        if user is not None:
            given |= {"user": user, "password": password}
        return virta.open(self.address, **given)

    @property
    def address(self) -> str:
        if self.tls is None:
            return f"virta://127.0.0.1:{self.port}"
        return f"virtas://127.0.0.1:{self.port}?fingerprint={self.tls.fingerprint}"


def talk(port: int, data: bytes, *, patience: float = 5.0) -> bytes:
    """Send bytes to a port and take what comes until the end."""

    async def talking() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), patience)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    return asyncio.run(talking())
