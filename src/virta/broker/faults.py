"""Faults on purpose, for whoever develops against a broker: slowness, a full disk, lost connections.

A broker has them only in development mode. They are met where a request is about to be handled,
so what clients see is what a slow network, a full disk or a dying broker shows them.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from virta.errors import NoSpace, UsageError
from virta.protocol.codes import FrameType
from virta.protocol.frames import Frame

if TYPE_CHECKING:
    from virta.broker.session import Session

MOST_DELAY_SECONDS = 60.0
# A pause is looked at again after so long, so that it ends soon after it was ended.
_PAUSE_LOOK_SECONDS = 0.1


@dataclass(slots=True, kw_only=True)
class Faults:
    """What goes wrong now; all of it at once, if so wished."""

    delay_seconds: float = 0.0
    paused: bool = False
    disk_full: bool = False
    drop_percent: float = 0.0  # of requests: their connection is cut instead of an answer

    def change(self, *, delay_seconds: float, paused: bool, disk_full: bool, drop_percent: float) -> None:
        if not 0 <= delay_seconds <= MOST_DELAY_SECONDS:
            raise UsageError(f"a delay is 0 to {MOST_DELAY_SECONDS:.0f} seconds")
        if not 0 <= drop_percent <= 100:
            raise UsageError("a share is 0 to 100 percent")
        self.delay_seconds, self.paused = delay_seconds, paused
        self.disk_full, self.drop_percent = disk_full, drop_percent

    @property
    def are_on(self) -> bool:
        return bool(self.paused or self.disk_full or self.delay_seconds or self.drop_percent)

    def meet(self, session: Session, frame: Frame) -> bool:
        """Whether the request was dealt with, or put off to be looked at once more."""
        if not self.are_on:
            return False
        if self.drop_percent and random.uniform(0, 100) < self.drop_percent:
            session.drop()
            return True
        if self.paused or self.delay_seconds:
            session.hold(self._put_off(session, frame))
            return True
        return self._refused(session, frame)

    def _refused(self, session: Session, frame: Frame) -> bool:
        if not self.disk_full or frame.type != FrameType.APPEND:
            return False
        session.fail(
            frame.channel, NoSpace("the disk is full (a fault on purpose: the console's Broker page)")
        )
        return True

    async def _put_off(self, session: Session, frame: Frame) -> None:
        await asyncio.sleep(self.delay_seconds)
        while self.paused:  # noqa: ASYNC110 - it is looked at, not told
            await asyncio.sleep(_PAUSE_LOOK_SECONDS)
        if not self._refused(session, frame):
            session.spared = True
            session.put_back(frame, counted=False)
