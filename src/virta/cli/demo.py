"""`virta demo`: see it work. A log of its own, live topics, several processes, and a changed byte."""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virta
from virta.cli.invocation import Invocation
from virta.cli.report import Exit
from virta.cli.table import Layout, Table
from virta.cli.text import count, rate, span
from virta.cli.verify import lines_of
from virta.errors import UsageError
from virta.exchange.templates import BUILT_IN, compile_template
from virta.requests import format_size

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.topic import Topic

_SENSORS_PER_SECOND = 200
_BATCH_ROWS = 1000
# How long the other process may take to end once the last row is appended.
_PATIENCE_SECONDS = 30.0
_END = "the end"


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=3.0,
    show_default=True,
    metavar="N",
    help="How long the live part runs.",
)
@click.pass_context
def demo(context: click.Context, directory: Path | None, seconds: float) -> None:
    """See it work: a log with sample data, several processes, and what to do next.

    Makes a log in a temporary directory, or in the one given; writes, reads, tails from
    another process, verifies, and changes a byte in a copy to show that `verify` finds it.

    \b
    Examples:
      virta demo
      virta demo --seconds 10
      virta demo ./demo-events
    """
    place = _place(directory)
    run = _Demo(context.obj, place)
    run.play(seconds)
    run.say_what_next()
    if run.failures:
        context.exit(Exit.FAILED)


def _place(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="virta-demo-"))
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory} is there already", hint="give the demo a directory that is new or empty"
        )
    return directory.absolute()


@dataclass(slots=True)
class _Demo:
    invocation: Invocation
    place: Path
    failures: list[str] = field(default_factory=list)
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.invocation, True, {})

    def play(self, seconds: float) -> None:
        with virta.open(self.place) as log:
            self._step("A log is a directory", str(log.path))
            orders = _make_topics(log)
            self._live(log, orders, seconds)
            self._look(orders)
            self._verify(log)
            self._change_a_byte(log, orders)

    # -- the steps ------------------------------------------------------------------------------

    def _live(self, log: Log, orders: Topic, seconds: float) -> None:
        """This process appends orders, one makes up sensors, one tails; all at once, no daemon."""
        self._step("Three processes at once", "this one appends orders, one sensors, one tails")
        makers = _start(
            log,
            *("gen", "sensors", "--template", "sensors", "--seed", "7", "-q"),
            *("--rate", str(_SENSORS_PER_SECOND)),
            *("--count", str(max(1, int(seconds * _SENSORS_PER_SECOND)))),
            stdout=subprocess.DEVNULL,
        )
        tailer = _start(log, "tail", "orders", "--columns", "id,user", "-o", "jsonl")
        watch = _Watch(tailer)
        try:
            orders.append(_order("the first", 0))
            watch.first.wait(_PATIENCE_SECONDS)
            rows, taken, single = _append_orders(orders, seconds)
            sent = time.monotonic()
            orders.append(_order(_END, 0))
            watch.end.wait(_PATIENCE_SECONDS)
            makers.wait(_PATIENCE_SECONDS)
        finally:
            _end(tailer, makers)
            watch.join()
        total = rows + len(single) + 2
        typical = sorted(single)[len(single) // 2]
        self._fact("appended", f"{count(rows, 'order')} in batches: {rate(rows, taken)} rows/s")
        self._fact("", f"{count(len(single), 'order')} one by one: {span(typical)} each")
        sensors = log.topic("sensors").next_offset
        self._fact("meanwhile", f"{count(sensors, 'row')} of sensors from the second process")
        self._check(watch.seen == total, f"the third read {count(watch.seen)} of {count(total)} as they came")
        if watch.end.is_set():
            self._fact("", f"the last one was printed {span(watch.ended - sent)} after its append began")
        self._check(makers.returncode == 0 and sensors > 0, "the second process ended well")

    def _look(self, orders: Topic) -> None:
        self._step("Any Arrow reader takes it", "virta read orders@-500: --where 'amount > 100'")
        self._table(orders[-500:].where("amount > 100"))
        total = orders[:].columns("amount").to_arrow()
        begun = time.perf_counter()
        rows = orders[:].to_arrow().num_rows
        taken = time.perf_counter() - begun
        self._fact("replay", f"{count(rows, 'row')} into Arrow in {span(taken)}: {rate(rows, taken)} rows/s")
        import pyarrow.compute as pc  # not for --help

        self._fact("sum", f"{pc.sum(total.column('amount')).as_py():,.2f} over all orders")

    def _table(self, selection: Any) -> None:
        from virta.exchange.json_values import json_columns  # not for --help

        table = Table(selection.schema.names, self.layout, header=True)
        last = selection.to_arrow().slice(max(0, selection.count() - 3)).combine_chunks().to_batches()
        rows = [row for batch in last for row in zip(*json_columns(batch), strict=True)]
        for line in [*table.add(rows), *table.settle()]:
            print(f"    {line}")

    def _verify(self, log: Log) -> None:
        self._step("Every byte is in a hash chain", "virta verify")
        begun = time.perf_counter()
        reports = {name: log.topic(name).verify() for name in log.topics()}
        taken = time.perf_counter() - begun
        for name, report in reports.items():
            self._lines(lines_of(self.layout, name, report))
        size = sum(report.bytes for report in reports.values())
        self._fact("speed", f"{format_size(int(size / taken))}/s")
        self._check(all(report.ok for report in reports.values()), "all topics verify")

    def _change_a_byte(self, log: Log, orders: Topic) -> None:
        """In a copy: what verification says when history is not what was written."""
        self._step("One changed byte is found", "in a copy of this log")
        log.sync()
        with tempfile.TemporaryDirectory(prefix="virta-demo-changed-") as other:
            copy = Path(other) / "copy"
            shutil.copytree(log.path, copy)
            place, position = _flip_a_byte(copy)
            self._fact("changed", f"the byte at {count(position)} of {place.name}")
            with virta.open(copy, create=False) as changed:
                report = changed.topic("orders").verify(against=orders.head)
        self._lines(lines_of(self.layout, "orders", report))
        found = any(problem.severity == "damage" for problem in report.problems)
        self._check(found and not report.ok, "the change was found")

    # -- saying it ----------------------------------------------------------------------------------

    def _step(self, title: str, detail: str) -> None:
        print(f"\n{self.layout.bold(title)}  {self.layout.dim(detail)}", flush=True)

    def _fact(self, name: str, text: str) -> None:
        print(f"    {self.layout.dim(name.ljust(10))}{text}", flush=True)

    def _lines(self, lines: list[str]) -> None:
        print("\n".join(f"    {line}" if line else "" for line in lines), flush=True)

    def _check(self, good: bool, what: str) -> None:
        mark = self.layout.good("ok") if good else self.layout.bad("FAILED")
        print(f"    {mark}{' ' * (8 if good else 4)}{what}", flush=True)
        if not good:
            self.failures.append(what)

    def say_what_next(self) -> None:
        if self.failures:
            print(f"\n{self.layout.bad('Something went wrong:')} {'; '.join(self.failures)}")
        else:
            print(f"\n{self.layout.good('All of it worked.')}", end=" ")
        where = shlex.quote(str(self.place))
        print("The log is yours to try:\n")
        print(f"    export VIRTA_LOG={where}")
        print("    virta tail orders@-5: sensors@-5:")
        print("    virta gen orders --template orders --rate 5")
        print("    virta verify\n")
        print(self.layout.dim(f"It goes with: rm -r {where}"))


def _make_topics(log: Log) -> Topic:
    from virta.exchange.schema_text import schema_of_words  # Arrow is not for --help

    log.create_topic("sensors", schema_of_words(BUILT_IN["sensors"][0]))
    return log.create_topic("orders", schema_of_words(BUILT_IN["orders"][0]))


def _order(user: str, number: int) -> dict[str, Any]:
    return {"id": number, "user": user, "amount": 0.0, "country": "FI"}


def _start(log: Log, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "virta", "--log", str(log.path), *arguments]
    return subprocess.Popen(command, stdout=stdout, text=True)


def _end(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.wait()


class _Watch(threading.Thread):
    """Counts what a tail prints, and sees when the first and the last row come."""

    def __init__(self, tailer: subprocess.Popen[str]) -> None:
        super().__init__(name="demo-watch", daemon=True)
        assert tailer.stdout is not None
        self._lines = tailer.stdout
        self.seen = 0
        self.ended = 0.0
        self.first, self.end = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._lines:
            for line in self._lines:
                self.seen += 1
                self.first.set()
                if _END in line:
                    self.ended = time.monotonic()
                    self.end.set()


def _append_orders(orders: Topic, seconds: float) -> tuple[int, float, list[float]]:
    """Batches for most of the time, then row by row: rows, the time in append, and that of each row."""
    from virta.exchange.input import Builder  # Arrow is not for --help

    chance, make = random.Random(1), compile_template(BUILT_IN["orders"][1])
    made = [make(chance, row) for row in range(_BATCH_ROWS)]
    batch = Builder(orders.schema, "demo").from_rows(made, range(_BATCH_ROWS), 0).rows
    rows, taken = 0, 0.0
    end = time.monotonic() + seconds * 0.7
    while time.monotonic() < end or not rows:
        begun = time.perf_counter()
        rows += orders.append(batch).rows
        taken += time.perf_counter() - begun
        time.sleep(0.01)  # leave the other processes a turn on a small machine
    single: list[float] = []
    end = time.monotonic() + seconds * 0.3
    while time.monotonic() < end or not single:
        row = make(chance, rows + len(single))
        begun = time.perf_counter()
        orders.append(row)
        single.append(time.perf_counter() - begun)
        time.sleep(0.001)
    return rows, taken, single


def _flip_a_byte(copy: Path) -> tuple[Path, int]:
    """Change one byte in the middle of the orders' data."""
    from virta.storage.layout import DATA_SUFFIX, LogPaths

    data = sorted(LogPaths(root=copy).topic("orders").partition(0).root.glob(f"*{DATA_SUFFIX}"))[0]
    position = data.stat().st_size // 2
    with data.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 1]))
    return data, position
