"""The coordinator over a store and positions in memory: who may commit, and what is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virta.errors import Fenced, UsageError
from virta.topics.groups.coordinator import GroupCoordinator
from virta.topics.groups.model import Commit, GroupKey, Heartbeat
from virta.topics.groups.offsets import Known
from virta.topics.groups.store import MemoryStore
from virta.types import Token

KEY = GroupKey(group="g", topic="t", topic_id="00")
PARTITIONS = 3


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Rows:
    """Positions as `__offsets` would have them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Token, int, str | None]] = []

    def catch_up(self, _: GroupKey, known: Known) -> Known:
        tokens = dict(known.tokens)
        epoch = known.epoch
        for partition, token, held, _member in self.rows[known.seen :]:
            tokens[partition] = str(token)
            epoch = max(epoch, held)
        return Known(tokens=tokens, seen=len(self.rows), epoch=epoch)

    def commit(self, key: GroupKey, known: Known, commits: Mapping[int, Commit], member: str | None) -> Known:
        self.rows += [(number, each.token, each.epoch, member) for number, each in commits.items()]
        return self.catch_up(key, known)


def token(partition: int, offset: int) -> Token:
    return Token(partition=partition, offset=offset, hash=bytes(32))


def coordinator(store: MemoryStore, rows: Rows, time: Time) -> GroupCoordinator:
    unused: Any = None
    fake: Any = rows
    clock: Any = time
    return GroupCoordinator(store, fake, clock, unused)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from("abc")),
        st.tuples(st.just("commit"), st.sampled_from("abc")),
        st.tuples(st.just("stale"), st.sampled_from("abc")),
        st.tuples(st.just("forget the file"), st.just("")),
        st.tuples(st.just("time"), st.sampled_from(["1", "4", "11"])),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS)
def test_positions_never_go_back_and_only_owners_move_them(steps: list[tuple[str, str]]) -> None:
    store, rows, time = MemoryStore(), Rows(), Time()
    group = coordinator(store, rows, time)
    owned: dict[str, dict[int, int]] = {name: {} for name in "abc"}
    old: dict[str, dict[int, int]] = {name: {} for name in "abc"}
    done = dict.fromkeys(range(PARTITIONS), 0)
    for what, name in steps:
        if what == "time":
            time.now += float(name)
        elif what == "forget the file":
            # as after a boot: members join again, and their epochs are new
            store.put(KEY, None)
        elif what == "beat":
            told = group.heartbeat(KEY, PARTITIONS, Heartbeat(member=name, owned=owned[name]))
            old[name] |= owned[name]
            owned[name] = {n: e for n, e in told.partitions.items() if n not in told.revoked}
        else:
            held = owned[name] if what == "commit" else old[name]
            for number, epoch in held.items():
                commit = Commit(token=token(number, done[number] + 1), epoch=epoch)
                before = list(rows.rows)
                try:
                    group.commit(KEY, name, {number: commit})
                except Fenced:
                    assert rows.rows == before
                else:
                    done[number] += 1
    epochs: dict[int, int] = {}
    holders: dict[tuple[int, int], str | None] = {}
    for number, _, epoch, member in rows.rows:
        assert epoch >= epochs.get(number, 0)
        epochs[number] = epoch
        assert holders.setdefault((number, epoch), member) == member
    assert {n: at.token.offset for n, at in group.positions(KEY).items()} == {
        n: o for n, o in done.items() if o
    }


def test_attempts_stand_beside_the_position_they_are_of() -> None:
    store, rows, time = MemoryStore(), Rows(), Time()
    group = coordinator(store, rows, time)
    epoch = group.heartbeat(KEY, 1, Heartbeat(member="a", joining=True)).partitions[0]
    group.commit(KEY, "a", {0: Commit(token=token(0, 5), epoch=epoch, attempts=2)})
    assert group.positions(KEY)[0].attempts == 2
    group.commit(KEY, "a", {0: Commit(token=token(0, 6), epoch=epoch)})
    assert group.positions(KEY)[0].attempts == 0
    with pytest.raises(UsageError, match="is none of 0"):
        group.commit(KEY, "a", {0: Commit(token=token(1, 6), epoch=epoch)})


def test_all_is_noted_or_nothing() -> None:
    store, rows, time = MemoryStore(), Rows(), Time()
    group = coordinator(store, rows, time)
    owned = group.heartbeat(KEY, 2, Heartbeat(member="a", joining=True)).partitions
    with pytest.raises(Fenced):
        group.commit(
            KEY,
            "a",
            {
                0: Commit(token=token(0, 5), epoch=owned[0]),
                1: Commit(token=token(1, 5), epoch=owned[1] + 1),
            },
        )
    assert group.positions(KEY) == {}


def test_who_could_not_be_heard_is_not_gone() -> None:
    store, rows, time = MemoryStore(), Rows(), Time()
    group = coordinator(store, rows, time)
    owned = group.heartbeat(KEY, 1, Heartbeat(member="a", joining=True)).partitions
    time.now = 100.0
    group.give_time()
    assert group.heartbeat(KEY, 1, Heartbeat(member="a", owned=owned)).partitions == owned
