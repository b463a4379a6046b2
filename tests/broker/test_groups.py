"""Consumer groups at a broker: who may, what clients may not say, restarts, and being told of changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.broker.secured import PASSWORD, Secured
from tests.served import Served
from virta.errors import Denied, Fenced, NotFound, UsageError
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.testing.conformance.base import up_to
from virta.testing.conformance.groups import read


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "events") as broker:
        yield broker


@pytest.fixture
def spread(broker: Served) -> Any:
    topic = broker.log.create_topic("spread", {"n": int}, partitions=2)
    for number in range(2):
        topic.append([{"n": 100 * number + n} for n in range(10)], partition=number)
    return topic


def test_who_may_read_may_take_part_and_who_administers_may_reset(tmp_path: Path) -> None:
    with Secured(tmp_path / "events") as broker:
        broker.log.create_topic("orders", {"n": int}).append(up_to(3))
        broker.log.create_topic("other", {"n": int})
        broker.add("ada", "consume:orders")
        broker.add("bob", "produce:orders", "consume:other")
        broker.add("eve", "administer,consume:orders")

        def opened(name: str) -> Any:
            return virta.open(broker.address, user=name, password=PASSWORD)

        with opened("ada") as log:
            with log.topic("orders").reader(group="g") as reader:
                assert read(reader) == [0, 1, 2]
            assert [found.group for found in log.groups()] == ["g"]
            assert log.topic("orders").groups() == ["g"]
            with pytest.raises(Denied):
                log.topic("orders").group("g").reset("oldest")
            with pytest.raises(Denied):
                log.topic("orders").group("g").remove()
        with opened("bob") as log:
            assert log.groups() == []
            for ask in (
                lambda: log.topic("orders").reader(group="g"),
                lambda: log.topic("orders").groups(),
                lambda: log.topic("orders").group("g").describe(),
            ):
                with pytest.raises(Denied):
                    ask()
        with opened("eve") as log:
            log.topic("orders").group("g").reset("oldest")
            assert log.topic("orders").group("g").describe().lag.rows == 3
            log.topic("orders").group("g").remove()
        assert ("reset_group", True) in {(each.action, each.allowed) for each in broker.written}
        assert ("group", False) in {(each.action, each.allowed) for each in broker.written}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"member": ""}, "member's name"),
        ({"member": "m" * 5000}, "member's name"),
        ({"group": ""}, "group's name"),
        ({"session_seconds": 0.0}, "session lasts"),
        ({"session_seconds": float("nan")}, "session lasts"),
        ({"session_seconds": 1e300}, "session lasts"),
        ({"instance": ""}, "member's name"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_heartbeats_that_cannot_be(broker: Served, spread: Any, fields: dict[str, Any], said: str) -> None:
    with virta.open(broker.address) as log:
        header = message("GroupHeartbeat")(
            **{"group": "g", "topic": "spread", "member": "m", "session_seconds": 5.0, **fields}
        )
        with pytest.raises(UsageError, match=said):
            log.wire.call(FrameType.GROUP_HEARTBEAT, header)
        assert log.groups() == []


def test_commits_that_cannot_be(broker: Served, spread: Any) -> None:
    with virta.open(broker.address) as log, log.topic("spread").reader(group="g") as reader:
        (epoch, _) = (place.epoch for place in reader._places.values())
        commit = message("GroupCommit")(group="g", topic="spread", member=reader.member)
        position = commit.positions.add(partition=0, epoch=epoch, offset=3, hash=b"short")
        with pytest.raises(UsageError, match="hash"):
            log.wire.call(FrameType.GROUP_COMMIT, commit)
        position.hash = bytes(32)
        for wrong in ({"epoch": epoch + 1}, {"partition": 7}):
            other = message("GroupCommit")()
            other.CopyFrom(commit)
            for name, value in wrong.items():
                setattr(other.positions[0], name, value)
            with pytest.raises(Fenced):
                log.wire.call(FrameType.GROUP_COMMIT, other)
        commit.member = "somebody else"
        with pytest.raises(Fenced):
            log.wire.call(FrameType.GROUP_COMMIT, commit)
        commit.topic = "nowhere"
        with pytest.raises(NotFound):
            log.wire.call(FrameType.GROUP_COMMIT, commit)


def test_members_go_on_over_a_restart(tmp_path: Path) -> None:
    with Served(tmp_path / "events") as broker:
        broker.log.create_topic("numbers", {"n": int}).append(up_to(10))
        log = virta.open(broker.address)
        reader = log.topic("numbers").reader(group="g", session_timeout=2)
        batches = reader.batches(4, stop_when_idle=5)
        seen = next(batches).column("n").to_pylist()
    with Served(tmp_path / "events", port=broker.port) as broker:
        broker.log.topic("numbers").append(up_to(15, 10))
        while len(seen) < 15:
            seen += next(batches).column("n").to_pylist()
        assert seen == list(range(15))
        reader.commit()
        (found,) = log.groups()
        assert (found.lag.rows, [member.member for member in found.members]) == (0, [reader.member])
        reader.close()
        log.close()


def test_a_long_stop_costs_no_session(tmp_path: Path) -> None:
    """Nobody could be heard meanwhile, so nobody is gone: what was given stays where it is."""
    with Served(tmp_path / "events") as broker:
        broker.log.create_topic("numbers", {"n": int}).append(up_to(10))
        log = virta.open(broker.address)
        reader = log.topic("numbers").reader(group="g", session_timeout=0.5)
        batches = reader.batches(4, stop_when_idle=5)
        next(batches)
        epoch = log.groups()[0].partitions[0].epoch
    time.sleep(0.7)
    with Served(tmp_path / "events", port=broker.port):
        assert next(batches).column("n").to_pylist() == [4, 5, 6, 7]
        assert log.groups()[0].partitions[0].epoch == epoch
        reader.close()
        log.close()


@pytest.mark.parametrize("kind", ["remote", "local"])
def test_a_reader_that_waits_is_told_when_another_one_comes(
    broker: Served, spread: Any, tmp_path: Path, kind: str
) -> None:
    """Its next heartbeat would be seconds away."""
    address: Any = broker.address if kind == "remote" else tmp_path / "events"
    with virta.open(broker.address) as log, virta.open(address) as other:
        waiting = log.topic("spread").reader(group="g", session_timeout=60)
        thread = threading.Thread(target=lambda: list(waiting.batches(stop_when_idle=2)))
        thread.start()
        while waiting.position[0].offset + waiting.position[1].offset < 20:
            time.sleep(0.01)
        time.sleep(0.1)
        with other.topic("spread").reader(group="g", session_timeout=60) as second:
            began = time.monotonic()
            while second.partitions != [1]:
                list(second.batches(stop_when_idle=0))
                assert time.monotonic() - began < 5
                time.sleep(0.01)
            assert waiting.partitions == [0]
        # the partition that came back is read on
        broker.log.topic("spread").append({"n": 7}, partition=1)
        thread.join()
        assert waiting.position[1].offset == 11
        waiting.close()


def test_watches_end_with_their_readers(broker: Served, spread: Any) -> None:
    with virta.open(broker.address) as log:
        with log.topic("spread").reader(group="g") as reader:
            list(reader.batches(stop_when_idle=0.2))
        log.topics()
        assert broker.call(lambda: [s.tasks for s in broker.server.sessions if s.tasks]) == []
        assert broker.call(lambda: dict(broker.server.service._groups._waiting)) == {}
        assert broker.call(lambda: dict(broker.server.service._groups._turns)) == {}


def test_two_readers_of_one_log_hear_of_each_other(broker: Served, spread: Any) -> None:
    """One waits while the other one's heartbeat tells of the change: both hang on one watch."""
    with virta.open(broker.address) as log:
        topic = log.topic("spread")
        waiting = topic.reader(group="g", session_timeout=60)
        thread = threading.Thread(target=lambda: list(waiting.batches(stop_when_idle=2)))
        thread.start()
        while waiting.position[0].offset + waiting.position[1].offset < 20:
            time.sleep(0.01)
        time.sleep(0.1)
        with topic.reader(group="g", session_timeout=60) as second:
            began = time.monotonic()
            while second.partitions != [1]:
                list(second.batches(stop_when_idle=0))
                assert time.monotonic() - began < 10
                time.sleep(0.01)
            assert waiting.partitions == [0]
        thread.join()
        waiting.close()
