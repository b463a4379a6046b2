"""The state machine of groups: by example, and driven at random."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from virta.errors import Fenced
from virta.topics.groups.model import Heartbeat
from virta.topics.groups.state import Grant, GroupState, sticky


class Client:
    """A member that does what it is told."""

    def __init__(self, group: GroupState, name: str, instance: str | None = None) -> None:
        self.group = group
        self.name = name
        self.instance = instance
        self.owned: dict[int, int] = {}
        self.named: dict[int, int] = {}  # what its last heartbeat named
        self.joining = True

    def beat(self, now: float = 0.0, *, keep: bool = False, leaving: bool = False) -> set[int]:
        said = Heartbeat(
            member=self.name,
            instance=self.instance,
            owned=self.owned,
            joining=self.joining,
            leaving=leaving,
        )
        self.joining = False
        self.named = dict(self.owned)
        told = self.group.heartbeat(said, now)
        self.owned = {
            number: epoch for number, epoch in told.partitions.items() if keep or number not in told.revoked
        }
        return set(self.owned)


def test_one_member_has_it_all() -> None:
    group = GroupState(partitions=4)
    assert Client(group, "a").beat() == {0, 1, 2, 3}


def test_a_second_one_waits_for_what_the_first_gives_up() -> None:
    group = GroupState(partitions=4)
    a, b = Client(group, "a"), Client(group, "b")
    a.beat()
    assert b.beat() == set()
    assert a.beat(keep=True) == {0, 1, 2, 3}  # told, but not done yet
    assert b.beat() == set()
    assert a.beat() == {0, 1}
    assert b.beat() == set()  # a has not said so yet
    a.beat()
    assert b.beat() == {2, 3}


def test_commits_are_fenced_by_epochs() -> None:
    group = GroupState(partitions=1)
    a, b = Client(group, "a"), Client(group, "b")
    a.beat(0.0)
    epoch = a.owned[0]
    group.check("a", 0, epoch)
    assert b.beat(5.0) == set()
    assert b.beat(11.0) == {0}  # a's session is over
    for late in (("a", 0, epoch), ("b", 0, epoch), ("a", 0, b.owned[0]), ("b", 1, b.owned[0])):
        with pytest.raises(Fenced):
            group.check(*late)
    group.check("b", 0, b.owned[0])
    assert a.beat(12.0) == set()  # it joins anew, and what it held is not its own


def test_a_member_that_was_away_gets_new_epochs() -> None:
    group = GroupState(partitions=2)
    a = Client(group, "a")
    a.beat(0.0)
    before = dict(a.owned)
    assert a.beat(11.0) == {0, 1}
    assert all(a.owned[number] > before[number] for number in (0, 1))


def test_leaving_gives_up_at_once() -> None:
    group = GroupState(partitions=2)
    a, b = Client(group, "a"), Client(group, "b")
    a.beat()
    b.beat()
    a.beat(leaving=True)
    assert b.beat() == {0, 1}


def test_an_instance_gets_its_own_back() -> None:
    group = GroupState(partitions=4)
    a, b = Client(group, "a1", "pod-a"), Client(group, "b1", "pod-b")
    for _ in range(3):
        a.beat()
        b.beat()
    before = dict(a.owned)
    a.beat(leaving=True)
    assert b.beat() == {2, 3}  # nothing moves
    again = Client(group, "a2", "pod-a")
    assert again.beat(1.0) == set(before)
    assert min(again.owned.values()) > max(before.values())
    with pytest.raises(Fenced):
        group.check("a1", 0, before[0])
    again.beat(leaving=True, now=2.0)
    b.beat(11.0)
    assert b.beat(12.1) == {0, 1, 2, 3}  # it stayed away longer than its session


def test_it_survives_being_written_down() -> None:
    group = GroupState(partitions=3)
    a, b = Client(group, "a", "pod"), Client(group, "b")
    a.beat()
    b.beat()
    assert GroupState.from_dict(group.to_dict()) == group


@given(
    partitions=st.integers(0, 20),
    members=st.sets(st.sampled_from("abcdefg")),
    held=st.dictionaries(st.integers(0, 25), st.sampled_from("abcdefgxyz")),
)
def test_the_target_is_even_and_moves_little(
    partitions: int, members: set[str], held: dict[int, str]
) -> None:
    found = sticky(range(partitions), dict.fromkeys(members), held)
    if not members:
        assert found == {}
        return
    assert sorted(found) == list(range(partitions))
    sizes = [list(found.values()).count(name) for name in members]
    assert max(sizes) - min(sizes) <= 1
    least, more = divmod(partitions, len(members))
    counts = sorted((sum(held.get(n) == name for n in range(partitions)) for name in members), reverse=True)
    best = sum(min(count, least + (place < more)) for place, count in enumerate(counts))
    assert sum(held.get(number) == name for number, name in found.items()) == best
    assert sticky(range(partitions), dict.fromkeys(members), found) == found


class GroupMachine(RuleBasedStateMachine):
    """Members come, go, are told late and stay away; nobody may ever commit beside an owner."""

    @initialize(partitions=st.integers(1, 6))
    def begin(self, partitions: int) -> None:
        self.group = GroupState(partitions=partitions)
        self.now = 0.0
        self.clients: list[Client] = []
        self.made = 0
        self.seen: dict[int, int] = {}
        self.given: dict[int, tuple[int, str]] = {}  # by epoch, for ever
        self.owners: dict[int, Grant] = {}

    @precondition(lambda self: len(self.clients) < 5)
    @rule(instance=st.sampled_from([None, "one", "two"]))
    def join(self, instance: str | None) -> None:
        self.made += 1
        client = Client(self.group, f"m{self.made}", instance)
        self.clients.append(client)
        client.beat(self.now)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), keep=st.booleans())
    def beat(self, data: st.DataObject, keep: bool) -> None:
        self.talk(data.draw(st.sampled_from(self.clients)), keep)

    def talk(self, client: Client, keep: bool = False) -> None:
        try:
            client.beat(self.now, keep=keep)
        except Fenced:  # another has its name: it ends
            assert client.instance is not None
            self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), leaving=st.booleans())
    def go(self, data: st.DataObject, leaving: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if leaving:
            client.beat(self.now, leaving=True)

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def it_settles(self) -> None:
        """When everybody keeps talking, every partition has an owner and the shares are even."""
        for _ in range(2 + self.group.partitions):
            self.now += 3.5
            for client in list(self.clients):
                self.talk(client)
        alive = [client for client in self.clients if client.name in self.group.members]
        if alive:
            owned = [set(client.owned) for client in alive]
            assert sorted(number for each in owned for number in each) == list(range(self.group.partitions))
            assert max(map(len, owned)) - min(map(len, owned)) <= 1

    @invariant()
    def nobody_commits_beside_an_owner(self) -> None:
        if not hasattr(self, "group"):
            return
        for number in range(self.group.partitions):
            holders = []
            for client in self.clients:
                if number in client.owned:
                    try:
                        self.group.check(client.name, number, client.owned[number])
                    except Fenced:
                        continue
                    holders.append(client.name)
            assert len(holders) <= 1
        for number, grant in self.group.owners.items():
            # one epoch is one assignment: of one partition, to one member
            assert self.given.setdefault(grant.epoch, (number, grant.member)) == (number, grant.member)
            assert grant.epoch >= self.seen.get(number, 0)
            self.seen[number] = grant.epoch
            assert grant.member in self.group.members
            self.check_move(number, self.owners.get(number), grant)
        self.owners = dict(self.group.owners)

    def check_move(self, number: int, before: Grant | None, after: Grant) -> None:
        """A partition moves only from who gave it up, or is no member any more."""
        if before is None or before.member == after.member or before.member not in self.group.members:
            return
        (holder,) = (client for client in self.clients if client.name == before.member)
        assert holder.named.get(number) != before.epoch


GroupMachine.TestCase.settings = settings(max_examples=settings().max_examples, deadline=None)
TestGroupMachine = GroupMachine.TestCase
