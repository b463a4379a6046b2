"""The broker as a whole: it listens, keeps its sessions, commits what came, and stops in order.

    server = Server(log)
    await server.start("127.0.0.1", 7400)
    await server.stop()

One turn of the event loop: everything that is readable has been read; then all partitions
with new rows commit, each once; then all sessions write what they have to say, each once.
The log, the guard and the loop's clock are passed in.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from virta.broker.desk import Desk
from virta.broker.faults import Faults
from virta.broker.service import Service
from virta.broker.session import Session
from virta.broker.tally import Tally
from virta.clock import SystemClock
from virta.errors import UnavailableError, UsageError, VirtaError
from virta.log import Log
from virta.security.access import Access
from virta.security.guard import Authentication, Guard, is_loopback
from virta.security.tls import ServerTls
from virta.types import Problem

_LOG = logging.getLogger("virta.broker")

_SWEEP_SECONDS = 2.0
_LOOK_SECONDS = 0.005
_TURNS_TO_ACCEPT = 4
# What was acknowledged is finished within this time when the broker stops.
GRACE_SECONDS = 10.0
# Threads for what waits for files or other processes. Waiting for rows takes none.
THREADS = 16


# What was looked at, in words, and what is wrong with it.
OwnReport = tuple[Sequence[str], Sequence[Problem]]


class Server:
    """Serves one log."""

    def __init__(
        self, log: Log, *, guard: Guard | None = None, observe: Callable[[str, Any], None] | None = None
    ) -> None:
        self.log = log
        self.guard = guard or open_guard()
        self.tally = Tally()
        # What goes wrong on purpose; None wherever nobody develops.
        self.faults: Faults | None = None
        self._numbers = itertools.count(1)
        self.look_at_itself: Callable[[], OwnReport] = lambda: ((), ())  # what it says to a doctor
        self.certificate: bytes | None = None  # DER, over TLS: logins are bound to it
        self.log_id = log._catalog.log_id
        self.is_stopping = False
        self.sessions: set[Session] = set()
        self._observe = observe
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="virta-broker")
        self._listeners: list[asyncio.Server] = []
        self._gathered: list[Desk] = []
        self._written: list[Session] = []
        self._has_turn = False
        self._is_alone = False  # while something is read that need not wait for others
        self._tasks: set[asyncio.Task[None]] = set()

    # -- starting and stopping ----------------------------------------------------------------

    async def start(self, host: str, port: int, *, tls: ServerTls | None = None) -> int:
        """Listen there; gives the port, which for 0 is one that was free."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self._check_place(host)
        if tls is not None:
            self.certificate = tls.certificate
        if not hasattr(self, "service"):
            self.service = Service(self, self.log, self._threads)
            self.keep(self.loop.create_task(self._sweep()))
        try:
            listener = await self.loop.create_server(
                lambda: Session(self),
                host,
                port,
                ssl=None if tls is None else tls.context,
                backlog=1024,
                reuse_address=True,
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="another broker may be there already; choose another port",
            ) from error
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    def _check_place(self, host: str) -> None:
        """Without users a broker serves this machine only."""
        if is_loopback(host) or self.guard.access.is_set_up:
            return
        if self.guard.policy.authentication is Authentication.AUTO:
            raise UsageError(
                f"{host!r} is reached from other machines, and this broker knows no users yet",
                hint="listen on 127.0.0.1, or make a user known first: virta user add",
            )

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Tell the clients, finish what was begun, close everything but the log."""
        self.is_stopping = True
        for listener in self._listeners:
            listener.close()
        for session in list(self.sessions):
            session.say_goodbye()
        deadline = self.loop.time() + grace_seconds
        await self._until(self._is_quiet, deadline)
        # what the listener had taken just before it was closed becomes a session within some turns
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        for session in list(self.sessions):
            session.leave()
        await self._until(lambda: not self.sessions, max(deadline, self.loop.time() + 0.1))
        for session in list(self.sessions):
            session.drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.service.close()
        self._threads.shutdown(wait=False)

    async def _until(self, holds: Callable[[], bool], deadline: float) -> None:
        while not holds() and self.loop.time() < deadline:  # noqa: ASYNC110 - only when it stops
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_quiet(self) -> bool:
        return self.service.is_idle and all(session.is_quiet for session in self.sessions)

    # -- sessions ---------------------------------------------------------------------------------

    def name_connection(self) -> str:
        """What the next connection is called in logs; its requests are name/channel."""
        return f"c{next(self._numbers)}"

    def connected(self, session: Session) -> None:
        self.tally.connections += 1
        self.sessions.add(session)
        self.note("connected", session)

    def disconnected(self, session: Session) -> None:
        self.sessions.discard(session)
        self.note("disconnected", session)

    def refused(self, session: Session, error: VirtaError) -> None:
        self.tally.refused += 1
        who = {"connection": session.name, "address": session.peer.address, "client": session.client or None}
        _LOG.info(
            "connection refused", extra={"fields": {**who, "error": error.code, "message": error.message}}
        )
        self.note("refused", error)

    def unexpected(self, error: BaseException, *, request: str | None = None) -> None:
        """An error that no verb raises on purpose: it is ours, and is kept whole in the log."""
        _LOG.error(
            "unexpected %s", type(error).__name__, exc_info=error, extra={"fields": {"request": request}}
        )
        self.note("unexpected", error)

    def note(self, what: str, value: Any) -> None:
        if self._observe is not None:
            self._observe(what, value)

    async def _sweep(self) -> None:
        """Let go of connections that only hold a place."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now, limits = self.now(), self.guard.limits
            for session in list(self.sessions):
                silent = now - session.heard_at
                is_late = not session.is_greeted and now - session.connected_at > limits.hello_seconds
                is_stuck = session.is_mid_frame and silent > limits.frame_seconds
                is_silent = limits.idle_seconds is not None and silent > limits.idle_seconds
                if is_late or is_stuck or (is_silent and session.is_idle):
                    session.drop()

    # -- turns of the event loop --------------------------------------------------------------------

    def gathered(self, desk: Desk) -> None:
        """The partition has rows to commit at the end of this turn."""
        self._gathered.append(desk)
        self._take_turn()

    def written(self, session: Session) -> None:
        """The session has something to say at the end of this turn."""
        self._written.append(session)
        self._take_turn()

    def _take_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            if not self._is_alone:
                self.loop.call_soon(self._turn)

    @property
    def is_alone(self) -> bool:
        """Whether what is looked at is all that was read in this turn of the loop."""
        return self._is_alone

    def begin_alone(self) -> bool:
        """What is read now is all there is: its turn ends with the read. False where others may come."""
        if self._has_turn or len(self.sessions) > 1:
            return False
        self._is_alone = True
        return True

    def end_alone(self) -> None:
        self._is_alone = False
        if self._has_turn:
            self._turn()

    def _turn(self) -> None:
        try:
            gathered, self._gathered = self._gathered, []
            for desk in gathered:
                desk.commit()
            written, self._written = self._written, []
            for session in written:
                session.flush()
        finally:
            # whatever went wrong with one, the others have their turns
            self._has_turn = False
            if self._gathered or self._written:
                self._take_turn()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def open_guard() -> Guard:
    """The guard of a broker without users: whoever is on this machine may do everything."""
    nobody = Access.empty()
    return Guard(access=lambda _: nobody, clock=SystemClock())
