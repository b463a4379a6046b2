"""A broker from start to stop: what `virta serve` puts together and runs.

    start    lock · users · certificate · listen · pages over HTTP · tell systemd · announce
    SIGHUP   settings, users, certificate, limits and logging are read again; connections stay
    SIGTERM  not ready any more · clients are told · what was begun is finished · all is closed

If any step of the start fails, nothing is left behind. A reload that fails changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta import __version__
from virta.broker.faults import Faults
from virta.broker.operation import logs
from virta.broker.operation.audit import AuditWriter
from virta.broker.operation.certificates import broker_tls, is_made_here
from virta.broker.operation.http import JSON, PROMETHEUS, HttpPages, Page, Pages, PageServer
from virta.broker.operation.lock import BrokerLock
from virta.broker.operation.logs import Events
from virta.broker.operation.notify import Notify
from virta.broker.operation.numbers import broker_numbers
from virta.broker.operation.settings import BrokerSettings
from virta.broker.operation.status import Status
from virta.broker.server import Server
from virta.clock import Clock, SystemClock
from virta.errors import VirtaError
from virta.log import Log
from virta.requests import format_duration
from virta.security.access_file import AccessFile
from virta.security.address import Address
from virta.security.development_certificate import valid_until_us
from virta.security.guard import Authentication, Guard, Policy, is_loopback
from virta.security.tls import ServerTls
from virta.types import Problem

DIRECTORY = "broker"
ACCESS_FILE = "access.toml"
# Warned this long before a certificate ends: time to renew it.
_EXPIRY_WARNING_US = 30 * 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Where a broker can be reached."""

    places: tuple[Address, ...]
    fingerprint: str | None
    http: str | None
    warnings: tuple[str, ...]


# The console is a layer above the broker: whoever starts both puts it in.
MakeSite = Callable[[Status, Guard, Pages], PageServer]


class Operation:
    """One broker over one log."""

    def __init__(
        self,
        log: Log,
        settings: BrokerSettings,
        *,
        reread: Callable[[], BrokerSettings],
        announce: Callable[[Started], None] = lambda _: None,
        make_site: MakeSite | None = None,
        notify: Notify | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.log = log
        self.settings = settings
        self.directory = log.path / DIRECTORY
        self._reread = reread
        self._announce = announce
        self._make_site = make_site
        self._notify = notify or Notify()
        self._clock = clock or SystemClock()
        self._events = Events()
        self._started_at = time.time()
        self._is_ready = False
        self._tls: ServerTls | None = None
        self._running: Server | None = None
        self.stopping: asyncio.Event | None = None

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        async with contextlib.AsyncExitStack() as stack:
            lock = stack.enter_context(BrokerLock(self.directory))
            server = self._server(stack)
            started = await self._listen(server, stack)
            lock.note(tuple(map(str, started.places)))
            self._watch_signals(server, stack)
            self._is_ready = True
            self._tell_started(started)
            self._announce(started)
            assert self.stopping is not None
            await self.stopping.wait()
            self._is_ready = False
            self._notify.stopping()
            self._events("stopping", connections=len(server.sessions))
        self._events("stopped")

    # -- starting --------------------------------------------------------------------------------

    def _server(self, stack: contextlib.AsyncExitStack) -> Server:
        configured = self.settings["security.access_file"]
        self._access = AccessFile(
            Path(configured) if configured else self.directory / ACCESS_FILE, complain=self._complain
        )
        audit = AuditWriter(self.log.record_event)
        stack.callback(audit.close)
        self._guard = Guard(
            access=self._access.current,
            clock=self._clock,
            policy=Policy(authentication=self.settings.authentication),
            limits=self.settings.limits,
            write_audit=audit,
        )
        self._running = Server(self.log, guard=self._guard, observe=self._observed)
        self._running.look_at_itself = self._look_at_itself
        if self.settings["development"]:
            self._running.faults = Faults()
        return self._running

    def _complain(self, error: VirtaError | OSError) -> None:
        self._events("the list of users cannot be read", logging.ERROR, error=str(error))

    async def _listen(self, server: Server, stack: contextlib.AsyncExitStack) -> Started:
        if any(address.tls for address in self.settings.listen):
            self._tls = broker_tls(self.settings, self.directory, self._clock)
        places: list[Address] = []
        for address in self.settings.listen:
            port = await server.start(address.host, address.port, tls=self._tls if address.tls else None)
            if not places:
                stack.push_async_callback(self._stop_server, server)
            places.append(dataclasses.replace(address, port=port))
        return Started(
            places=tuple(places),
            fingerprint=self._tls.fingerprint if self._tls and is_made_here(self.settings) else None,
            http=await self._start_pages(server, stack),
            warnings=tuple(self._warnings()),
        )

    async def _stop_server(self, server: Server) -> None:
        await server.stop(grace_seconds=self.settings["stop.grace_seconds"])

    async def _start_pages(self, server: Server, stack: contextlib.AsyncExitStack) -> str | None:
        place = self.settings["http.listen"]
        if place is None:
            return None
        registry = broker_numbers(server, started_at=self._started_at)
        if self._tls is not None:
            registry.gauge(
                "virta_certificate_expiry_seconds",
                "When the broker's certificate ends, since 1970.",
                lambda: valid_until_us(self._tls.certificate) / 1e6 if self._tls else 0,
            )

        async def metrics() -> Page:
            return Page(body=await asyncio.to_thread(registry.text), kind=PROMETHEUS)

        pages = self._page_server(
            server, {"/metrics": metrics, "/health": self._health, "/ready": self._ready}, stack
        )
        host, _, port = place.rpartition(":")
        stack.push_async_callback(pages.stop)
        return f"http://{host}:{await pages.start(host.strip('[]'), int(port))}"

    def _page_server(self, server: Server, pages: Pages, stack: contextlib.AsyncExitStack) -> PageServer:
        """The console with these pages beside it, or the pages alone."""
        if self._make_site is None:
            return HttpPages(pages)
        recent = logs.Recent()
        logging.getLogger().addHandler(recent)
        stack.callback(logging.getLogger().removeHandler, recent)
        status = Status(server, recent=recent, started_at=self._started_at)
        return self._make_site(status, self._guard, pages)

    async def _health(self) -> Page:
        """Answered by the loop that serves: if it does, it lives."""
        seconds = round(time.time() - self._started_at, 3)
        body = {"status": "alive", "version": __version__, "uptime_seconds": seconds}
        return Page(body=json.dumps(body) + "\n", kind=JSON)

    async def _ready(self) -> Page:
        status = "ready" if self._is_ready else "not ready"
        return Page(
            body=json.dumps({"status": status}) + "\n", kind=JSON, status=200 if self._is_ready else 503
        )

    def _warnings(self) -> list[str]:
        """What whoever runs it should know."""
        found = []
        away = [address for address in self.settings.listen if not is_loopback(address.host)]
        if any(not address.tls for address in away):
            found.append("other machines reach this broker without TLS: rows travel readable")
        if away and self.settings.authentication is Authentication.OFF:
            found.append("other machines reach this broker and nobody is asked for a login")
        http = self.settings["http.listen"]
        if http is not None and not is_loopback(http.rpartition(":")[0].strip("[]")):
            found.append("other machines see names of topics and their sizes at /metrics, without a login")
            if self._make_site is not None:
                found.append(
                    "other machines reach the console over plain HTTP: put a proxy with TLS before it"
                )
        if self.settings["development"]:
            found.append("development mode: the console can make this broker fail on purpose")
        return found + self._certificate_warnings()

    def _certificate_warnings(self) -> list[str]:
        if self._tls is None:
            return []
        left_us = valid_until_us(self._tls.certificate) - self._clock.now_us()
        if left_us <= 0:
            return ["the certificate has expired; only clients that know its fingerprint trust it"]
        if left_us < _EXPIRY_WARNING_US:
            return [f"the certificate expires in {left_us // 86_400_000_000} days"]
        return []

    def _look_at_itself(self) -> tuple[list[str], list[Problem]]:
        """What the doctor hears of the broker."""
        server = self._running
        assert server is not None
        tally, limit = server.tally, self._guard.limits.connections
        where = ", ".join(map(str, self.settings.listen))
        age = format_duration(round(time.time() - self._started_at))
        logins = "asked for" if self._guard.access.is_set_up else "none, only this machine reaches it"
        taken = f"{len(server.sessions)} of {limit:,} connections, {tally.refused:,} refused"
        checked = [
            f"broker: up for {age}, {taken}, {tally.failed_logins:,} failed logins",
            f"listening: {where}; logins: {logins}",
        ]
        findings = [Problem(severity="warning", message=each) for each in self._warnings()]
        if tally.errors["unexpected"]:
            count = tally.errors["unexpected"]
            findings.append(
                Problem(
                    severity="warning",
                    message=f"{count:,} requests met an error that the broker did not expect",
                    cure="the broker's log has them whole; please report them",
                )
            )
        if len(server.sessions) > 0.9 * limit:
            findings.append(
                Problem(
                    severity="warning",
                    message="nearly all places for connections are taken",
                    cure="close some, or raise limits.connections",
                )
            )
        return checked, findings

    def _tell_started(self, started: Started) -> None:
        where = [str(place) for place in started.places]
        self._events(
            "serving",
            log=str(self.log.path),
            listen=where,
            fingerprint=started.fingerprint,
            http=started.http,
            version=__version__,
        )
        for warning in started.warnings:
            self._events(warning, logging.WARNING)
        self._notify.ready(f"serving {', '.join(where)}")

    # -- while it runs ---------------------------------------------------------------------------

    def _watch_signals(self, server: Server, stack: contextlib.AsyncExitStack) -> None:
        loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop, server)
            stack.callback(loop.remove_signal_handler, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        stack.callback(loop.remove_signal_handler, signal.SIGHUP)
        if self._notify.watchdog_seconds is not None:
            alive = loop.create_task(self._stay_alive(self._notify.watchdog_seconds))
            stack.callback(alive.cancel)

    def _asked_to_stop(self, server: Server) -> None:
        assert self.stopping is not None
        if self.stopping.is_set():
            # Asked twice: whoever runs it does not want to wait.
            for session in list(server.sessions):
                session.drop()
        self.stopping.set()

    async def _stay_alive(self, seconds: float) -> None:
        while True:
            self._notify.alive()
            await asyncio.sleep(seconds)

    def reload(self) -> None:
        """Take in what changed; if anything of it is wrong, nothing changes."""
        self._notify.reloading()
        try:
            newer = self._reread()
            tls = broker_tls(newer, self.directory, self._clock) if self._tls is not None else None
            self._access.reload()
        except (VirtaError, OSError) as error:
            self._events("not reloaded", logging.ERROR, error=str(error))
        else:
            self._take_in(newer, tls)
        self._notify.ready("serving")

    def _take_in(self, newer: BrokerSettings, tls: ServerTls | None) -> None:
        for name in self.settings.needing_restart(newer):
            self._events("changed, and taken in by a restart only", logging.WARNING, setting=name)
        self._guard.change_limits(newer.limits)
        logs.set_up(newer["logging.format"], newer["logging.level"])
        if tls is not None and self._tls is not None:
            self._renew(newer, tls)
        self.settings = newer
        self._events("reloaded", users=len(self._guard.access.users))
        for warning in self._certificate_warnings():
            self._events(warning, logging.WARNING)

    def _renew(self, newer: BrokerSettings, tls: ServerTls) -> None:
        """The context that listens takes the new certificate; connections from now on see it."""
        assert self._tls is not None
        certificate = newer["tls.certificate_file"]
        if certificate is None:
            return
        key = newer["tls.key_file"] or certificate
        self._tls.context.load_cert_chain(certificate, key)
        self._tls = dataclasses.replace(self._tls, certificate=tls.certificate)
        assert self._running is not None
        self._running.certificate = tls.certificate

    # -- what the broker notes ---------------------------------------------------------------------

    def _observed(self, what: str, value: Any) -> None:
        """What the broker tells of itself, as events of its log."""
        if what in ("connected", "disconnected"):
            self._events(
                what,
                logging.DEBUG,
                connection=value.name,
                address=value.peer.address,
                client=value.client or None,
            )


def own_name(place: Address) -> Address:
    """The address as somebody elsewhere would write it."""
    if place.host in ("0.0.0.0", "::"):
        return dataclasses.replace(place, host=socket.gethostname())
    return place
