"""The network campaign: a broker that is killed, and a proxy before it that cuts, delays and freezes.

A broker runs as a process of its own, over a directory. Producers and consumers reach it
through the proxy, each over connections of its own, and note what they asked and what they
were told. Meanwhile connections are reset in the middle of frames, held, delayed and frozen,
answers are lost, and the broker is killed, or told to stop, and started again. Then all of it
ends; everybody has to come to an end within a time, and the directory is held against the notes:

 - every acknowledged row is there, once, at the offset that was acknowledged;
 - what was not acknowledged is there once or not at all;
 - the rows of a producer are in its order, in every partition;
 - named producers go on behind what is there, whatever they were told: exactly 0, 1, 2, …;
 - every consumer saw each offset once, in order, without a gap, and the row that is there;
 - no partition is held by two members of a group in one epoch, and the group leaves out no row;
 - every chain verifies.
"""

from __future__ import annotations

import functools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import virta
from virta.errors import UnavailableError
from virta.testing.faults.brokers import Broker
from virta.testing.faults.history import Acknowledged, Held, History, Seen, check
from virta.testing.faults.report import Report
from virta.testing.faults.rounds import in_rounds
from virta.testing.proxy import Proxy

ROUND_SECONDS = 12.0
PARTITIONS = 2
PRODUCERS = 4
CONSUMERS = 3
MEMBERS = 2
_SCHEMA = {"producer": str, "n": int, "text": str}
# A client that cannot go on within this time, once nothing is in its way, is stuck.
_LIVENESS_SECONDS = 40.0
_PATIENCE = "30s"


def run(seed: int, seconds: float) -> Report:
    report = Report("network", seed)

    def one_round(root: Path, number: int, seconds: float) -> None:
        Round(report, root, seed, number).run(seconds)

    return in_rounds(report, seconds, ROUND_SECONDS, one_round)


@dataclass(slots=True)
class Chaos:
    """What happens between clients and broker, one thing after the other."""

    rng: random.Random
    proxy: Proxy
    broker: Broker
    report: Report

    def go_on_until(self, end: float) -> None:
        acts: list[tuple[str, Callable[[], None]]] = [
            ("connections cut", self._cut),
            ("connections cut in a frame", self._cut_in_frame),
            ("connections whose answers were lost", self._lose),
            ("freezes", self._freeze),
            ("delays", self._delay),
            ("connections made in the other order", self._reorder),
            ("brokers killed", functools.partial(self._restart, signal.SIGKILL)),
            ("brokers stopped", functools.partial(self._restart, signal.SIGTERM)),
        ]
        weights = [4, 4, 3, 2, 2, 2, 2, 1]
        must = ["brokers stopped", "brokers killed"]
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(0.02, 0.3))
            name, act = self.rng.choices(acts, weights)[0]
            if must and self.rng.random() < 0.2:
                name = must.pop()
                act = dict(acts)[name]
            act()
            self.report.counts[name] += 1
        self.proxy.heal()

    def _cut(self) -> None:
        self.proxy.cut(self.rng.choice((1, 1, None)))

    def _cut_in_frame(self) -> None:
        self.proxy.cut_after(self.rng.choice((3, 17, 90, 400, 3000, 40_000)))
        self.proxy.cut(1)

    def _lose(self) -> None:
        self.proxy.lose_answers(1)
        self.proxy.cut(1)
        time.sleep(self.rng.uniform(0.0, 0.3))
        self.proxy.heal()

    def _freeze(self) -> None:
        """Half-open: both sides believe in the connection; what was under way is gone."""
        self.proxy.freeze()
        time.sleep(self.rng.uniform(0.05, 0.5))
        self.proxy.cut()
        self.proxy.thaw()

    def _delay(self) -> None:
        self.proxy.delay(self.rng.uniform(0.001, 0.05))
        time.sleep(self.rng.uniform(0.05, 0.4))
        self.proxy.delay(0)

    def _reorder(self) -> None:
        self.proxy.hold(2)
        self.proxy.cut()

    def _restart(self, number: signal.Signals) -> None:
        code = self.broker.end(number)
        if number is signal.SIGTERM and code:
            self.report.violated(f"a broker told to stop ended with {code}", "--only network")
        time.sleep(self.rng.uniform(0.0, 0.2))
        self.broker.start()


class Round:
    """One broker, and everybody who uses it."""

    def __init__(self, report: Report, root: Path, seed: int, number: int) -> None:
        self.report = report
        self.rng = random.Random(f"{seed}/{number}")
        self.root = root
        self.replay = f"--only network --seed {seed} (round {number}; real processes, it may take some tries)"
        self.history = History()
        self.stopping = threading.Event()
        self.ends: dict[int, int] = {}  # of the partitions, once nobody produces any more
        self.finished = threading.Event()

    def run(self, seconds: float) -> None:
        broker = Broker(self.root / "events")
        broker.start()
        try:
            with Proxy(broker.port) as proxy:
                self.address = f"virta://127.0.0.1:{proxy.port}?timeout={_PATIENCE}"
                with virta.open(self.address) as log:
                    log.create_topic("orders", _SCHEMA, partitions=PARTITIONS)
                producers, others = self._clients()
                for thread in producers + others:
                    thread.start()
                Chaos(self.rng, proxy, broker, self.report).go_on_until(time.monotonic() + seconds)
                self.stopping.set()
                self._join(producers)
                with virta.open(self.address) as log:
                    self.ends.update(log.topic("orders").next_offsets)
                self.finished.set()
                self._join(others)
        finally:
            broker.end(signal.SIGKILL)
        for complaint in check(self.root / "events", self.history, group=MEMBERS > 0):
            self.report.violated(complaint, self.replay)
        self.report.counts["rows acknowledged"] += sum(each.rows for each in self.history.acknowledged)
        self.report.counts["rows seen by consumers"] += len(self.history.seen)
        self.report.counts["rows given to members of a group"] += sum(
            held.last - held.first + 1 for held in self.history.held
        )

    def _clients(self) -> tuple[list[threading.Thread], list[threading.Thread]]:
        acts = [self._single, self._batches, self._written, self._named]
        producers = [(f"p{at}", acts[at % len(acts)]) for at in range(PRODUCERS)]
        consumers = [(f"c{at}", (self._poll, self._tail, self._select)[at % 3]) for at in range(CONSUMERS)]
        members = [(f"m{at}", self._member) for at in range(MEMBERS)]
        return self._threads(producers), self._threads(consumers + members)

    def _threads(self, wanted: Sequence[tuple[str, Callable[[str], None]]]) -> list[threading.Thread]:
        return [threading.Thread(target=self._live, args=each, name=each[0], daemon=True) for each in wanted]

    def _live(self, name: str, act: Callable[[str], None]) -> None:
        """One client, from life to life: what cannot be reached is tried again."""
        while True:
            try:
                return act(name)
            except UnavailableError:
                if self.finished.is_set():
                    raise
            except Exception as error:
                self.report.violated(f"{name} met {type(error).__name__}: {error}", self.replay)
                return None

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + _LIVENESS_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.report.violated(f"{thread.name} does not go on although it could", self.replay)

    # -- producers -------------------------------------------------------------------------------

    def _rows(self, name: str, start: int, count: int) -> list[dict[str, Any]]:
        return [{"producer": name, "n": n, "text": "x" * (n % 50)} for n in range(start, start + count)]

    def _noted(self, name: str, n: int, rows: int, ack: Any) -> None:
        self.history.acknowledged.append(
            Acknowledged(producer=name, n=n, rows=rows, partition=ack.partition, offset=ack.first_offset)
        )

    def _appends(self, name: str, counts: Iterator[int]) -> None:
        n = self.history.next_of(name)
        partition = int(name[1:]) % PARTITIONS
        with virta.open(self.address) as log:
            orders = log.topic("orders")
            while not self.stopping.is_set():
                count = next(counts)
                self.history.tried[name] = n + count
                ack = orders.append(self._rows(name, n, count), partition=partition)
                self._noted(name, n, count, ack)
                n += count

    def _single(self, name: str) -> None:
        self._appends(name, iter(lambda: 1, 0))

    def _batches(self, name: str) -> None:
        rng = random.Random(name)
        self._appends(name, iter(lambda: rng.choice((2, 10, 300)), 0))

    def _written(self, name: str) -> None:
        """A buffered writer: what `flush` came back from is acknowledged."""
        n = self.history.next_of(name)
        with virta.open(self.address) as log, log.topic("orders").writer(partition=0, max_rows=20) as writer:
            while not self.stopping.is_set():
                self.history.tried[name] = n + 100
                for row in self._rows(name, n, 100):
                    writer.send(row)
                writer.flush()
                self.history.acknowledged.append(
                    Acknowledged(producer=name, n=n, rows=100, partition=0, offset=-1)
                )
                n += 100

    def _named(self, name: str) -> None:
        """Exactly once: each life goes on where the directory says that the last one stopped."""
        with virta.open(self.address) as log:
            orders = log.topic("orders")
            while not self.stopping.is_set():
                with orders.writer(producer=name, partition=1) as writer:
                    first = writer.last_sequence + 1
                    if first < self.history.flushed.get(name, 0):
                        self.report.violated(
                            f"{name} is told {first - 1} after more was flushed", self.replay
                        )
                    self.history.tried[name] = max(self.history.tried.get(name, 0), first + 60)
                    for row in self._rows(name, first, 60):
                        writer.send(row)
                self.history.flushed[name] = first + 60
                self.history.named.add(name)

    # -- consumers -------------------------------------------------------------------------------

    def _is_done(self, partition: int, offset: int) -> bool:
        return self.finished.is_set() and offset >= self.ends[partition]

    def _saw(self, name: str, partition: int, offset: int, row: Any) -> None:
        self.history.seen.append(
            Seen(consumer=name, partition=partition, offset=offset, producer=row["producer"], n=row["n"])
        )

    def _poll(self, name: str) -> None:
        """Tokens, blocks and waits."""
        with virta.open(self.address) as log:
            partition = log.topic("orders").partition(0)
            token = self.history.tokens.get(name, partition.first_token)
            while not self._is_done(0, token.offset):
                blocks, following = partition.long_poll(token, timeout=0.2)
                for block in blocks:
                    for row in block.to_arrow().to_pylist():
                        if row["_offset"] >= token.offset:
                            self._saw(name, 0, row["_offset"], row)
                self.history.tokens[name] = token = following

    def _tail(self, name: str) -> None:
        """A selection that goes on: pushed blocks, then waits."""
        with virta.open(self.address) as log:
            orders = log.topic("orders")
            at = dict.fromkeys(range(PARTITIONS), 0) | self.history.places.get(name, {})
            while not all(self._is_done(number, at[number]) for number in at):
                for number in at:
                    for row in orders.partition(number)[at[number] :].tail(stop_when_idle=0.05):
                        self._saw(name, number, row.offset, row)
                        at[number] = row.offset + 1
                        self.history.places[name] = dict(at)

    def _select(self, name: str) -> None:
        """Columns and a filter that keeps all, judged at the broker."""
        with virta.open(self.address) as log:
            orders = log.topic("orders")
            at = self.history.places.get(name, {}).get(1, 0)
            while not self._is_done(1, at):
                chosen = orders.partition(1)[at:].where("n >= 0").columns("_offset", "producer", "n")
                for batch in chosen.batches():
                    for row in batch.to_pylist():
                        self._saw(name, 1, row["_offset"], row)
                        at = row["_offset"] + 1
                    self.history.places[name] = {1: at}
                time.sleep(0.01)

    # -- members of a group --------------------------------------------------------------------------

    def _member(self, name: str) -> None:
        """Members come and go; at least once means that no row is left out."""
        with virta.open(self.address) as log:
            orders = log.topic("orders")
            while not self._group_is_done():
                with orders.reader(group="everybody", session_timeout="3s") as reader:
                    for batch in reader.batches(max_rows=500, stop_when_idle=0.3):
                        self._hold(name, reader, batch.column("_offset").to_pylist())
                        if not self.stopping.is_set() and len(self.history.held) % 40 == 0:
                            break  # it leaves, and comes again

    def _hold(self, name: str, reader: Any, offsets: list[int]) -> None:
        place = reader._current
        self.history.held.append(
            Held(
                member=f"{name}/{reader.member}",
                partition=place.number,
                epoch=place.epoch,
                first=offsets[0],
                last=offsets[-1],
            )
        )

    def _group_is_done(self) -> bool:
        return self.finished.is_set() and self.history.group_covers(self.ends)
