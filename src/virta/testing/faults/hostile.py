"""The hostile campaign: clients that keep to nothing, and a broker that must not mind.

A broker runs as a process of its own. One attack after the other comes over it, several at a
time (`attacks`), while a good client appends and reads. What must hold:

 - the broker lives, and meets no error that it did not expect (it counts them);
 - its memory stays within a bound;
 - the good client is served all the time, and its rows are there, once, in order;
 - connections that only hold a place are let go of;
 - every chain verifies afterwards.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import virta
from virta.testing.faults.attacks import ATTACKS, COLUMNS, SANDBOX, TABLE, TOPIC
from virta.testing.faults.brokers import Broker, free_port
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch

# Frames of 64 MiB, some at once, and what a bomb may become before it is refused.
MEMORY_BYTES = 768 << 20
AT_ONCE = 3
# A good client is never kept waiting so long; not a matter of speed, but of being served at all.
_PATIENCE_SECONDS = 30.0
_SETTINGS = ("limits.hello_seconds=1s", "limits.frame_seconds=1s", "limits.connections=5000")


def run(seed: int, seconds: float) -> Report:
    report = Report("hostile", seed)
    _raise_descriptors()
    replay = f"--only hostile --seed {seed}"
    with scratch("virta-hostile") as root:
        broker = HostileBroker(root / "events")
        with broker.running():
            good = GoodClient(broker.port)
            before = broker.memory()
            with good.at_work():
                _attack(report, broker, seed, time.monotonic() + seconds)
            for complaint in [*good.complaints, *broker.complaints()]:
                report.violated(complaint, replay)
            grown = broker.peak() - before
            if grown > MEMORY_BYTES:
                report.violated(f"the broker's memory grew by {grown >> 20} MiB", replay)
            report.counts["MiB more memory at most"] = max(0, grown >> 20)
            report.counts["rows of the good client"] = good.sent
        with virta.open(root / "events") as log:
            mine = log.topic(TABLE)[:].columns("id").to_arrow().column(0).to_pylist()
            if mine != list(range(good.sent)):
                report.violated("the good client's rows are not there, each once, in order", replay)
            for problem in log.topic(TOPIC).verify().problems:
                report.violated(str(problem), replay)
    return report


def _raise_descriptors() -> None:
    """Half-open connections are descriptors, here and at the broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _attack(report: Report, broker: HostileBroker, seed: int, end: float) -> None:
    """Several threads, each with attacks of its own; which ones follows from the seed."""
    lock = threading.Lock()

    def attacker(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        # each kind at least once, however short the time is
        first = [name for at, name in enumerate(ATTACKS) if at % AT_ONCE == number]
        while first or time.monotonic() < end:
            weights = [weight for _, weight in ATTACKS.values()]
            name = first.pop() if first else rng.choices(list(ATTACKS), weights)[0]
            ATTACKS[name][0](broker.port, random.Random(rng.getrandbits(64)))
            with lock:
                report.counts[name] += 1
            if not broker.is_alive():
                report.violated(f"the broker died of {name}", f"--only hostile --seed {seed}")
                return

    threads = [threading.Thread(target=attacker, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class HostileBroker(Broker):
    """A broker that is looked at while it works."""

    def __init__(self, path: Path) -> None:
        self.http = free_port()
        options = [word for setting in _SETTINGS for word in ("--set", setting)]
        super().__init__(path, "--http", f"127.0.0.1:{self.http}", *options)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.end(signal.SIGKILL)

    def _page(self, name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{name}", timeout=20) as answer:
            return str(answer.read().decode())

    def _status(self, field: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) << 10 if found else 0

    def memory(self) -> int:
        return self._status("VmRSS")

    def peak(self) -> int:
        return self._status("VmHWM")

    def complaints(self) -> Iterator[str]:
        """What the broker's own numbers say that may not be."""
        if not self.is_alive():
            yield "the broker is dead"
            return
        metrics = self._page("metrics")
        for count in re.findall(r'^virta_errors_total\{code="unexpected"\} (\d+)', metrics, re.MULTILINE):
            yield f"{count} errors that the broker did not expect:\n{self.told()}"
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = re.search(r"^virta_connections (\d+)", self._page("metrics"), re.MULTILINE)
            if found is not None and int(found[1]) <= 1:
                return
            time.sleep(0.2)
        yield "connections that only hold a place are not let go of"


class GoodClient:
    """Appends and reads while others rage."""

    def __init__(self, port: int) -> None:
        self.address = f"virta://127.0.0.1:{port}?timeout=0s"
        self.sent = 0
        self.complaints: list[str] = []
        self._stopping = threading.Event()
        with virta.open(self.address) as log:
            log.create_topic(TOPIC, COLUMNS).append(
                [{"id": n, "text": "x" * 100_000, "tags": None} for n in range(40)]
            )
            log.create_topic(TABLE, {"id": int}, kind="update", keys="id")
            log.create_topic(SANDBOX, {"id": int}, kind="update", keys="id")

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, name="good-client")
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(_PATIENCE_SECONDS)
            if thread.is_alive():
                self.complaints.append("the good client is not served")

    def _work(self) -> None:
        try:
            with virta.open(self.address) as log:
                ledger: Any = log.topic(TABLE)
                while not self._stopping.wait(0.005):
                    began = time.monotonic()
                    ledger.append({"id": self.sent})
                    self.sent += 1
                    if ledger[-1:].to_arrow().num_rows != 1:
                        self.complaints.append("the good client does not read what it appended")
                    if time.monotonic() - began > _PATIENCE_SECONDS:
                        self.complaints.append("the good client was kept waiting")
        except Exception as error:
            self.complaints.append(f"the good client met {type(error).__name__}: {error}")
