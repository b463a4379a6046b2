"""Appends at `disk` take turns: the thread that leads commits and syncs for all who wait.

While one group is being synced the next one gathers. A thread that waits sleeps once,
on a lock of its own, and is woken when its rows are durable or when it is to lead:
passing one lock from thread to thread would cost each of them a turn at the
interpreter. Knows nothing of files: how to commit and to sync is passed in.

A caller has queued its blocks before it comes here. `settle` commits what is queued
until these blocks have their place or their error; `sync` makes rows durable up to an
offset, or all there are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from virta.storage.commit import Append


class _Ticket:
    """One caller's blocks, and how it is woken."""

    __slots__ = ("appends", "is_durable", "is_gone", "leads", "wake")

    def __init__(self, appends: list[Append]) -> None:
        self.appends = appends
        self.is_durable = False
        self.is_gone = False  # interrupted while it waited: it cannot lead
        self.leads = False
        self.wake = threading.Lock()
        self.wake.acquire()


class Turns:
    """Joins concurrent appends of one partition into groups, each with one sync."""

    def __init__(self, settle: Callable[[list[Append]], None], sync: Callable[[int | None], None]) -> None:
        self._settle = settle
        self._sync = sync
        self._leading = threading.Lock()  # held by the thread that leads, handed on without letting go
        self._waiting: deque[_Ticket] = deque()
        self._handing = threading.Lock()  # who leads next, against who gives up waiting

    def begin_alone(self) -> bool:
        """Lead without a ticket, if nobody else is at it; `end` has to follow."""
        return not self._waiting and self._leading.acquire(blocking=False)

    def append(self, appends: list[Append]) -> None:
        """Make these queued blocks durable. What went wrong with one stands in its `error`."""
        ticket = _Ticket(appends)
        self._waiting.append(ticket)  # before the try: who leads now looks here when it ends
        if not self._leading.acquire(blocking=False):
            try:
                ticket.wake.acquire()
            except BaseException:
                self._give_up(ticket)
                raise
            if not ticket.leads:
                if not ticket.is_durable:  # who led was interrupted
                    self._finish([ticket])
                return
        self._lead()

    def _lead(self) -> None:
        waiting = self._waiting
        group = [waiting.popleft() for _ in range(len(waiting))]
        try:
            self._finish(group)
        except Exception as error:
            self._fail(group, error)
        finally:
            for ticket in group:
                ticket.wake.release()
            self.end()

    def _finish(self, group: list[_Ticket]) -> None:
        for ticket in group:
            if not ticket.appends[-1].done:
                self._settle(ticket.appends)
        if any(append.error is None for ticket in group for append in ticket.appends):
            self._sync(_reach(group))
        for ticket in group:
            ticket.is_durable = True

    @staticmethod
    def _fail(group: list[_Ticket], error: Exception) -> None:
        """A sync failed: nobody in the group may believe that its rows will last."""
        for ticket in group:
            ticket.is_durable = True  # nothing is left to try
            for append in ticket.appends:
                if append.error is None:
                    append.error = error

    def end(self) -> None:
        """Hand the lead on to who has waited longest."""
        self._leading.release()
        while self._waiting and self._leading.acquire(blocking=False):
            if self._hand_on():
                return
            self._leading.release()

    def _hand_on(self) -> bool:
        """Wake who leads next; those who gave up waiting are passed over, their rows are queued."""
        waiting = self._waiting
        with self._handing:
            while waiting and waiting[0].is_gone:
                waiting.popleft()
            if not waiting:
                return False
            waiting[0].leads = True
            waiting[0].wake.release()
            return True

    def _give_up(self, ticket: _Ticket) -> None:
        with self._handing:
            ticket.is_gone = True
            leads = ticket.leads
        if leads:
            self.end()


def _reach(group: list[_Ticket]) -> int | None:
    """The offset up to which a sync has to reach; None where rows were sent before, by whomever."""
    end = 0
    for ticket in group:
        last = ticket.appends[-1]
        if last.duplicate:
            return None
        if last.block is not None:
            end = max(end, last.block.header.end_offset)
    return end
