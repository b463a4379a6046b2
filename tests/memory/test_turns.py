"""Who leads, who waits, and what each is told: with a commit and a sync of our own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from virta.errors import StorageFailed
from virta.memory.turns import Turns, _Ticket
from virta.storage.commit import Append
from virta.storage.encode import prepare

_ROW = prepare(pa.RecordBatch.from_pydict({"n": [1]}))
_LONG = 30.0


class Partition:
    """Settles by marking blocks as sent before, and syncs when it is let through."""

    def __init__(self) -> None:
        self.turns = Turns(self.settle, self.sync)
        self.syncs = 0
        self.in_sync = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def settle(self, appends: list[Append]) -> None:
        for append in appends:
            append.duplicate = True

    def sync(self, offset: int | None) -> None:
        assert offset is None
        self.syncs += 1
        self.in_sync.release()
        assert self.gate.acquire(timeout=_LONG)
        if self.failure is not None:
            raise self.failure

    def append(self) -> Append:
        append = Append(_ROW, 1)
        self.turns.append([append])
        return append

    def waiting(self) -> int:
        return len(self.turns._waiting)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def start(count: int, run: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def until(true: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(30_000):
        if true():
            return
        tick.wait(0.001)
    raise AssertionError("it never came to that")


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(_LONG)
        assert not thread.is_alive()


def test_who_comes_during_a_sync_shares_the_next_one(partition: Partition) -> None:
    first = start(1, partition.append)
    assert partition.in_sync.acquire(timeout=_LONG)
    rest = start(5, partition.append)
    until(lambda: partition.waiting() == 5)
    partition.gate.release()
    partition.gate.release()
    joined(first + rest)
    assert partition.syncs == 2
    assert partition.turns.begin_alone(), "nobody leads any more"


def test_a_failed_sync_fails_all_who_relied_on_it(partition: Partition) -> None:
    told: list[BaseException | None] = []
    first = start(1, lambda: told.append(partition.append().error))
    assert partition.in_sync.acquire(timeout=_LONG)
    rest = start(3, lambda: told.append(partition.append().error))
    until(lambda: partition.waiting() == 3)
    partition.gate.release()
    until(lambda: partition.syncs == 2)
    partition.failure = StorageFailed("the disk is gone")
    partition.gate.release()
    joined(first + rest)
    assert told[0] is None
    assert told[1:] == [partition.failure] * 3


def test_when_the_leader_is_interrupted_the_others_sync_for_themselves(partition: Partition) -> None:
    interrupted: list[bool] = []

    def lead() -> None:
        try:
            partition.append()
        except KeyboardInterrupt:
            interrupted.append(True)

    told: list[BaseException | None] = []
    first = start(1, partition.append)
    assert partition.in_sync.acquire(timeout=_LONG)
    leader = start(1, lead)
    until(lambda: partition.waiting() == 1)
    rest = start(2, lambda: told.append(partition.append().error))
    until(lambda: partition.waiting() == 3)
    partition.gate.release()
    until(lambda: partition.syncs == 2)
    partition.failure = KeyboardInterrupt()
    partition.gate.release()
    joined(leader)
    partition.failure = None
    for _ in range(2):
        partition.gate.release()
    joined(first + rest)
    assert interrupted == [True]
    assert told == [None, None]
    assert partition.syncs == 4


def waiting_ticket(turns: Turns) -> _Ticket:
    ticket = _Ticket([Append(_ROW, 1)])
    turns._waiting.append(ticket)
    return ticket


def test_who_gave_up_waiting_is_not_asked_to_lead(partition: Partition) -> None:
    turns = partition.turns
    assert turns.begin_alone()
    gone, following = waiting_ticket(turns), waiting_ticket(turns)
    turns._give_up(gone)
    turns.end()
    assert following.leads
    assert not gone.leads
    assert not turns.begin_alone()


def test_who_is_to_lead_and_gives_up_hands_the_lead_on(partition: Partition) -> None:
    turns = partition.turns
    assert turns.begin_alone()
    first, following = waiting_ticket(turns), waiting_ticket(turns)
    turns.end()
    assert first.leads
    assert not following.leads
    turns._give_up(first)
    assert following.leads


def test_when_all_gave_up_anybody_may_lead(partition: Partition) -> None:
    turns = partition.turns
    assert turns.begin_alone()
    turns._give_up(waiting_ticket(turns))
    turns.end()
    assert turns.begin_alone()
