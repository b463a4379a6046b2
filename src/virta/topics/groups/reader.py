"""A reader of a group: it shares the topic's partitions with the others, and remembers how far it came.

    with orders.reader(group="billing") as reader:
        for batch in reader.batches():
            ...

At least once: a batch is finished when the loop asks for the next one, and is committed
then. A body that raised, or was left by `break`, is not finished, and its rows come again
(to this group, whoever reads). `commit()` says by hand that all that was handed out is done.

    for row in reader:
        with reader.attempt():
            ...

What raises inside an attempt is tried again, later and later, and in the end becomes a dead
letter. Its partition rests meanwhile, so that rows keep their order; the others go on.

The steps are taken by whoever iterates; a thread keeps the session alive meanwhile, as long
as a body takes no longer than `processing_timeout`. Partitions move only between two
batches: what is finished is committed before a partition is given up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import Closed, Fenced, HistoryChanged, UsageError, VirtaError
from virta.requests import parse_duration
from virta.topics.groups.coordinator import Coordinator, check_group_name, check_session
from virta.topics.groups.model import (
    DEFAULT_SESSION_SECONDS,
    Assignment,
    Commit,
    GroupKey,
    Heartbeat,
    Lag,
)
from virta.topics.groups.outlet import Outlet
from virta.topics.groups.place import Place
from virta.topics.groups.retry import Retry, failure_of
from virta.topics.read import Moment, Row, rows_of
from virta.types import Token

if TYPE_CHECKING:
    from virta.topics.partition import Partition

_log = logging.getLogger("virta.groups")

DEFAULT_PROCESSING_SECONDS = 300.0
AT_LEAST_ONCE, AT_MOST_ONCE = "at_least_once", "at_most_once"
# Row by row, positions are committed so often at most; a row that was finished is committed at the end.
ROWS_AT_ONCE = 1024

# Waits until one of these has a row at its offset (or a group another generation), or the seconds are over.
Waiting = Callable[[Sequence[tuple[Any, int]], float], bool]


class Attempt:
    """`with reader.attempt():` around the work on what was handed out last."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        # what says that this reader has to stop is for the caller
        if not isinstance(error, Exception) or isinstance(error, Fenced | Closed):
            return False
        self._reader._failed(error)
        return True


class GroupReader:
    """One member of a group on one topic."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        key: GroupKey,
        coordinator: Coordinator,
        waiting: Waiting,
        *,
        now_us: Callable[[], int],
        member: str | None = None,
        start: Moment = "oldest",
        delivery: str = AT_LEAST_ONCE,
        session_timeout: Any = DEFAULT_SESSION_SECONDS,
        processing_timeout: Any = DEFAULT_PROCESSING_SECONDS,
        retry: Retry | None = None,
        outlet: Outlet | None = None,
    ) -> None:
        check_group_name(key.group)
        if delivery not in (AT_LEAST_ONCE, AT_MOST_ONCE):
            raise UsageError(f"delivery is {AT_LEAST_ONCE!r} or {AT_MOST_ONCE!r}, not {delivery!r}")
        self._session = parse_duration(session_timeout)
        check_session(self._session)
        self._processing = parse_duration(processing_timeout)
        self._partitions = partitions
        self._key = key
        self._coordinator = coordinator
        self._waiting = waiting
        self._now_us = now_us
        self._start = start
        self._delivery = delivery
        if outlet is not None and delivery != AT_LEAST_ONCE:
            raise UsageError(f"what goes into a topic goes there exactly once, not {delivery!r}")
        self._retry = retry or Retry()
        self._outlet = outlet
        self._instance = member
        # a member's name tells people where it runs; what makes it one of its kind is the rest
        self.member = f"{member or socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._lock = threading.RLock()
        self._places: dict[int, Place] = {}
        self._current: Place | None = None
        self._sending: Place | None = None  # whose rows caused what was sent last
        self._row: int | None = None  # row by row: which of the batch is being worked on, from 1
        self._turn = 0
        self._generation = -1
        self._beat_at = 0.0
        self._joining = True
        self._stepped_at = time.monotonic()
        self._failure: VirtaError | None = None
        self._closed = False
        self._stop = threading.Event()
        self._follow()
        self._thread = threading.Thread(target=self._keep_alive, name="virta-group", daemon=True)
        self._thread.start()

    # -- what it is ---------------------------------------------------------------------------

    @property
    def group(self) -> str:
        return self._key.group

    @property
    def topic(self) -> str:
        return self._key.topic

    @property
    def partitions(self) -> list[int]:
        """The partitions it reads now."""
        with self._lock:
            return sorted(self._places)

    @property
    def partition(self) -> int | None:
        """The partition of the batch handed out last."""
        return None if self._current is None else self._current.number

    @property
    def epochs(self) -> Mapping[int, int]:
        """By partition, the assignment that it is held by: a higher number for every owner."""
        with self._lock:
            return {number: place.epoch for number, place in self._places.items()}

    @property
    def position(self) -> Mapping[int, Token]:
        """By partition, the token behind what was handed out."""
        with self._lock:
            return {number: place.token for number, place in self._places.items()}

    @property
    def committed(self) -> Mapping[int, Token]:
        """By partition, where the group would go on if this reader ended now."""
        with self._lock:
            return {number: place.committed for number, place in self._places.items()}

    @property
    def lag(self) -> Lag:
        """How far what was handed out is behind the newest rows of its partitions."""
        with self._lock:
            rows, oldest = 0, None
            for place in self._places.values():
                behind = place.partition.next_offset - place.token.offset
                stamp = place.oldest_us if behind else None
                rows += behind
                if stamp is not None:
                    oldest = stamp if oldest is None else min(oldest, stamp)
            seconds = 0.0 if oldest is None else max(0.0, (self._now_us() - oldest) / 1e6)
            return Lag(rows=rows, seconds=seconds)

    # -- reading ------------------------------------------------------------------------------

    def batches(
        self, max_rows: int = 10_000, *, stop_when_idle: float | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows as they are and as they come, at most so many at once and of one partition each."""
        idle_since: float | None = None
        while True:
            batch = self.step(max_rows)
            if batch is not None:
                idle_since = None
                yield batch
                continue
            now = time.monotonic()
            idle_since = now if idle_since is None else idle_since
            left = None if stop_when_idle is None else stop_when_idle - (now - idle_since)
            if left is not None and left <= 0:
                return
            self.pause(left)

    def rows(self, *, stop_when_idle: float | None = None) -> Iterator[Row]:
        """Row by row; a row is finished when the next one is asked for."""
        for batch in self.batches(ROWS_AT_ONCE, stop_when_idle=stop_when_idle):
            yield from self.rows_of(batch)

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The rows of the batch handed out last, each finished when the next one is asked for."""
        place = self._current
        assert place is not None
        for count, row in enumerate(rows_of(batch, None, place.number), 1):
            self._row = count
            yield row
            if self._current is not place:
                return  # it failed: it and the rows behind it come again
            place.finish(count)
            self._row = None
            if self._outlet is not None:
                self._outlet.finish()

    def step(self, max_rows: int) -> pa.RecordBatch | None:
        """Finish what was handed out, follow the group, and take what is there; None if there is nothing."""
        if max_rows < 1:
            raise UsageError("a batch has at least one row")
        with self._lock:
            self._check_open()
            self._stepped_at = time.monotonic()
            self._row = None
            self._finish_current()
            self._commit_done()
            self._follow()
            return self._take(max_rows)

    def _take(self, max_rows: int) -> pa.RecordBatch | None:
        """The partitions take turns, so that none is kept waiting by a busy one."""
        now = time.monotonic()
        places = [self._places[n] for n in sorted(self._places) if self._places[n].not_before <= now]
        for count in range(len(places)):
            place = places[(self._turn + count) % len(places)]
            batch = self._next(place, max_rows)
            if batch is None:
                continue
            self._turn = (self._turn + count + 1) % len(places)
            if self._delivery == AT_MOST_ONCE:
                place.finish()
                self._commit([place])
            else:
                self._current = self._sending = place
            return batch
        return None

    def _next(self, place: Place, max_rows: int) -> pa.RecordBatch | None:
        try:
            return place.next(max_rows)
        except HistoryChanged as error:
            error.hint = (
                f"to go on with what is there: virta group reset {self.group} {self.topic} --to oldest"
            )
            raise

    def pause(self, most: float | None) -> None:
        """Wait for rows or a change of the group, but no longer than this."""
        places, seconds = self.waits_for(most)
        if places:
            self._waiting(places, seconds)
        else:
            self._stop.wait(seconds)

    def waits_for(self, most: float | None) -> tuple[list[tuple[Any, int]], float]:
        """Partitions with the offset of the next row of each, what tells of the group; and how long."""
        with self._lock:
            now = time.monotonic()
            resting = [place.not_before - now for place in self._places.values() if place.not_before > now]
            places: list[tuple[Any, int]] = [
                (place.partition.stored, place.token.offset)
                for place in self._places.values()
                if place.not_before <= now
            ]
            places += self._coordinator.watched(self._key, self._generation)
            until = min([max(0.05, self._beat_at - now), *resting])
        seconds = self._coordinator.pause_seconds(until)
        return places, seconds if most is None else min(seconds, most)

    # -- exactly once ---------------------------------------------------------------------------

    def send(self, rows: Any) -> None:
        """What the rows at hand cause in the topic of `into`: a row, a list of them, or Arrow.

        It is appended when they are finished, and together with how far they reach.
        """
        self._check_open()
        if self._outlet is None:
            raise UsageError("send() goes to a topic that was named: reader(group=…, into=topic)")
        if self._current is None:
            raise UsageError("what is sent is caused by rows: send() inside the loop's body")
        self._outlet.send(rows)

    # -- rows that fail -----------------------------------------------------------------------

    def attempt(self) -> Attempt:
        """Work on what was handed out last: what raises inside is tried again, and at last set aside."""
        if self._delivery == AT_MOST_ONCE:
            raise UsageError("at most once means that nothing is tried again", hint="use at_least_once")
        if self._current is None:
            raise UsageError("there is nothing to try: attempt() goes around the loop's body")
        return Attempt(self)

    def _failed(self, error: Exception) -> None:
        """What was handed out last failed: rest and try again, or set it aside."""
        with self._lock:
            place, self._current = self._current, None
            if place is None:
                return  # it was committed by hand meanwhile
            if self._outlet is not None:
                self._outlet.forget()
            offset, rows = place.failing
            together = self._row is None and rows > 1
            finished, self._row = self._row or 1, None
            attempts = place.attempts + 1 if place.failing_at == place.done.offset else 1
            if not self._retry.is_over(attempts, error):
                place.fail()
                seconds = self._retry.delay_seconds(attempts)
                place.not_before = time.monotonic() + seconds
                _log.info(
                    "group %r on %r: offset %d of partition %d failed %s, and is tried again in %.1f s: %r",
                    *(self.group, self.topic, offset, place.number),
                    *("once" if attempts == 1 else f"{attempts} times", seconds, error),
                )
                self._note_attempts(place)
            elif together:
                place.one_by_one()
                place.fail()
                self._note_attempts(place)
            else:
                self._set_aside(place, offset, attempts, error)
                place.pass_over(finished)

    def _set_aside(self, place: Place, offset: int, attempts: int, error: Exception) -> None:
        failure = failure_of(
            error, partition=place.number, epoch=place.epoch, offset=offset, attempts=attempts
        )
        try:
            self._coordinator.set_aside(self._key, self.member, [failure])
        except Fenced as lost:
            self._lose(place, lost)
            return
        _log.warning(
            "group %r on %r: offset %d of partition %d failed %d times and is a dead letter now: %r",
            *(self.group, self.topic, offset, place.number, attempts, error),
        )

    def _note_attempts(self, place: Place) -> None:
        """Whoever reads next goes on counting."""
        commit = Commit(token=place.done, epoch=place.epoch, attempts=place.attempts)
        try:
            self._coordinator.commit(self._key, self.member, {place.number: commit})
            place.committed = place.done
        except Fenced as lost:
            self._lose(place, lost)

    def _lose(self, place: Place, lost: Fenced) -> None:
        _log.warning("group %r on %r: %s", self.group, self.topic, lost)
        self._places.pop(place.number, None)
        self._let_go(place)
        self._beat_at = 0.0

    def _let_go(self, place: Place) -> None:
        if self._outlet is not None:
            self._outlet.drop(place.number)
            if place is self._sending:
                self._outlet.clear()

    # -- committing ---------------------------------------------------------------------------

    def commit(self) -> None:
        """All that was handed out is done; Fenced when a part of it has been given to another reader."""
        with self._lock:
            self._check_open()
            self._finish_current()
            self._commit(list(self._places.values()))

    def _finish_current(self) -> None:
        if self._current is not None:
            self._current.finish()
            self._current = None
            if self._outlet is not None:
                self._outlet.finish()

    def _commit(self, places: Sequence[Place]) -> None:
        if self._outlet is not None:
            for place in places:
                if place is self._sending:
                    self._outlet.deliver(place.number, place.done)
        commits = {
            place.number: Commit(token=place.done, epoch=place.epoch)
            for place in places
            if place.done != place.committed
        }
        if not commits:
            return
        self._coordinator.commit(self._key, self.member, commits)
        for place in places:
            place.committed = place.done

    def _commit_done(self) -> None:
        """Commit what is finished; a partition that was lost does not keep the others from it."""
        try:
            self._commit(list(self._places.values()))
        except Fenced:
            for place in list(self._places.values()):
                try:
                    self._commit([place])
                except Fenced as lost:
                    self._lose(place, lost)

    # -- the group ------------------------------------------------------------------------------

    def _heartbeat(self, *, leaving: bool = False) -> Assignment:
        owned = {number: place.epoch for number, place in self._places.items()}
        said = Heartbeat(
            member=self.member,
            instance=self._instance,
            owned=owned,
            session_seconds=self._session,
            joining=self._joining,
            leaving=leaving,
        )
        told = self._coordinator.heartbeat(self._key, len(self._partitions), said)
        self._joining = False
        self._beat_at = time.monotonic() + told.heartbeat_seconds
        return told

    def _follow(self) -> None:
        """Take what the group gives, and give up what it wants back."""
        if time.monotonic() < self._beat_at and self._coordinator.generation(self._key) == self._generation:
            return
        told = self._heartbeat()
        self._drop_lost(told)
        if told.revoked:
            for number in told.revoked:
                place = self._places.pop(number, None)
                if place is not None:
                    self._let_go(place)
            told = self._heartbeat()
        self._generation = told.generation
        fresh = [n for n in told.partitions if n not in self._places and n not in told.revoked]
        if fresh:
            self._begin(fresh, told)

    def _drop_lost(self, told: Assignment) -> None:
        for number, place in list(self._places.items()):
            if told.partitions.get(number) != place.epoch:
                _log.warning(
                    "group %r on %r: partition %d was given to another reader meanwhile; "
                    "its rows since offset %d are read again",
                    self.group,
                    self.topic,
                    number,
                    place.committed.offset,
                )
                del self._places[number]
                self._let_go(place)

    def _begin(self, fresh: Sequence[int], told: Assignment) -> None:
        positions = self._coordinator.positions(self._key)
        for number in fresh:
            position = positions.get(number)
            token = None if position is None else position.token
            attempts = 0 if position is None else position.attempts
            place = Place(
                self._partitions[number], told.partitions[number], token or self._first(number), attempts
            )
            self._places[number] = place
            if self._outlet is not None:
                self._go_on_behind(place, self._outlet)
            if token is None and self._start != "oldest":
                # a group that begins at the end must not lose what comes before its first commit
                self._coordinator.commit(
                    self._key, self.member, {number: Commit(token=place.done, epoch=place.epoch)}
                )

    def _go_on_behind(self, place: Place, outlet: Outlet) -> None:
        """The target may be ahead of the group: its last reader died before it had committed."""
        ahead = [token for token in outlet.begin(place.number) if token.offset > place.done.offset]
        if ahead and outlet.is_single:
            place.go_to(ahead[-1])
            self._commit([place])
        else:
            place.cuts = [token.offset for token in ahead]

    def _first(self, number: int) -> Token:
        partition = self._partitions[number]
        if self._start == "oldest":
            return partition.first_token
        if self._start == "newest":
            return partition.last_token
        return partition.token_since(self._start)

    def _keep_alive(self) -> None:
        """Heartbeats while the body works; none when it takes too long, so that others may go on."""
        while not self._stop.wait(max(0.05, self._beat_at - time.monotonic())):
            with self._lock:
                if self._closed or time.monotonic() < self._beat_at:
                    continue
                if time.monotonic() - self._stepped_at > self._processing:
                    self._beat_at = time.monotonic() + self._session
                    continue
                try:
                    told = self._heartbeat()
                except VirtaError as error:
                    # whoever iterates meets it too, and is told; until then it is tried again
                    _log.warning("group %r on %r: no heartbeat: %s", self.group, self.topic, error)
                    self._beat_at = time.monotonic() + self._session / 3
                else:
                    if told.generation != self._generation:
                        self._generation = -1

    # -- the end ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the reader was closed")

    def close(self) -> None:
        """Commit what is finished, and give the partitions to the others."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        try:
            self._commit_done()
        finally:
            with contextlib.suppress(Fenced):
                self._heartbeat(leaving=True)

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except VirtaError:
            if kind is None:
                raise
            # the caller's own error matters more; what was not committed comes again

    def __repr__(self) -> str:
        return f"GroupReader({self.group!r} on {self.topic!r}, partitions {self.partitions})"
