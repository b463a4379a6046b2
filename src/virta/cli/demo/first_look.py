"""The demo's first half: what one directory does with no daemon at all.

Three processes append at once while a fourth tails; then what came is read, queried,
drawn and verified, and in a copy one byte is changed to see that it is found.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import virta
from virta.cli.demo import feeds
from virta.cli.demo.children import Children
from virta.cli.demo.life import HEIGHT, WIDTH, drawn
from virta.cli.demo.stage import Stage
from virta.cli.text import count, rate, span
from virta.cli.verify import lines_of
from virta.requests import format_size

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.topic import Topic

_BATCH_ROWS = 1000
# How long the tailing process may take to print the last row once it is appended.
_PATIENCE_SECONDS = 30.0
_END = "the end"
_QUERY = """
select country, count(*) as orders, round(sum(amount), 2) as total
from orders group by country order by total desc limit 3"""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The steps that need nothing but the directory."""

    stage: Stage
    children: Children

    def play(self, log: Log, seconds: float) -> None:
        orders = log.topic("orders")
        self._live(log, orders, seconds)
        self._look(log, orders)
        self._draw_life(log.topic("life"))
        self._verify(log)
        self._change_a_byte(log, orders)

    # -- several processes ------------------------------------------------------------------------

    def _live(self, log: Log, orders: Topic, seconds: float) -> None:
        stage = self.stage
        stage.step("Four processes, one directory, no daemon", "three append, one tails")
        makers = [
            self.children.start("virta.cli.demo.feeds", name, str(log.path), str(seconds))
            for name in ("sensors", "life")
        ]
        tailer = _start_tail(log)
        watch = _Watch(tailer)
        try:
            orders.append(_order("the first"))
            watch.first.wait(_PATIENCE_SECONDS)
            rows, taken, single = _append_orders(orders, seconds)
            sent = time.monotonic()
            orders.append(_order(_END))
            watch.end.wait(_PATIENCE_SECONDS)
            for maker in makers:
                maker.wait(_PATIENCE_SECONDS)
        finally:
            tailer.kill()
            tailer.wait()
            watch.join()
        total = rows + len(single) + 2
        stage.fact("appended", f"{count(rows, 'order')} in batches: {rate(rows, taken)} rows/s")
        typical = sorted(single)[len(single) // 2]
        stage.fact("", f"{count(len(single), 'order')} one by one: {span(typical)} each")
        sensors, life = log.topic("sensors").next_offset, log.topic("life").next_offset
        stage.fact("meanwhile", f"{count(sensors, 'row')} of sensors and {count(life, 'row')} of life")
        stage.check(
            watch.seen == total, f"the tail printed {count(watch.seen)} of {count(total)} as they came"
        )
        if watch.end.is_set():
            stage.fact("", f"the last one {span(watch.ended - sent)} after its append began")
        good = all(maker.returncode == 0 for maker in makers) and sensors > 0 and life > 0
        stage.check(good, "the other processes ended well")

    # -- reading ------------------------------------------------------------------------------------

    def _look(self, log: Log, orders: Topic) -> None:
        self.stage.step("Any Arrow reader takes it", "virta read orders@-500: --where 'amount > 100'")
        found = orders[-500:].where("amount > 100").to_arrow()
        self.stage.arrow(found.slice(max(0, found.num_rows - 3)).combine_chunks())
        begun = time.perf_counter()
        rows = orders[:].to_arrow().num_rows
        taken = time.perf_counter() - begun
        self.stage.fact(
            "replay", f"{count(rows, 'row')} into Arrow in {span(taken)}: {rate(rows, taken)} rows/s"
        )
        self._query(log, rows)

    def _query(self, log: Log, rows: int) -> None:
        try:
            begun = time.perf_counter()
            found = log.sql(_QUERY).to_arrow()
        except virta.VirtaError as error:  # the extra `sql` may be missing
            self.stage.fact("sql", f"left out: {error}")
            return
        self.stage.step("SQL over topics, in process", f"virta sql '{' '.join(_QUERY.split())}'")
        self.stage.arrow(found)
        self.stage.fact("asked", f"{count(rows, 'row')} in {span(time.perf_counter() - begun)}")

    def _draw_life(self, life: Topic) -> None:
        """An update topic: many rows, and the newest of each key is what is true now."""
        self.stage.step(
            "A topic can be a table", "life: kind update, keys x and y; the newest row of a cell wins"
        )
        now = life.table().where("alive").columns("x", "y").to_arrow()
        cells = frozenset(zip(now.column("x").to_pylist(), now.column("y").to_pylist(), strict=True))
        self.stage.lines(drawn(cells))
        generation = max(life[-1:].to_arrow().column("generation").to_pylist())
        table_rows = life.table().count()
        self.stage.fact(
            "life",
            f"generation {generation}: {count(life.next_offset, 'row')} tell {count(table_rows, 'cell')}",
        )
        self.stage.check(
            0 < table_rows <= WIDTH * HEIGHT, "the table has one row for each cell that ever lived"
        )

    # -- trust ----------------------------------------------------------------------------------------

    def _verify(self, log: Log) -> None:
        self.stage.step("Every byte is in a hash chain", "virta verify")
        begun = time.perf_counter()
        reports = {name: log.topic(name).verify() for name in log.topics()}
        taken = time.perf_counter() - begun
        for name, report in reports.items():
            self.stage.lines(lines_of(self.stage.layout, name, report))
        size = sum(report.bytes for report in reports.values())
        self.stage.fact("speed", f"{format_size(int(size / taken))}/s")
        self.stage.check(all(report.ok for report in reports.values()), "all topics verify")

    def _change_a_byte(self, log: Log, orders: Topic) -> None:
        """In a copy: what verification says when history is not what was written."""
        self.stage.step("One changed byte is found", "in a copy of this log")
        log.sync()
        with tempfile.TemporaryDirectory(prefix="virta-demo-changed-") as other:
            copy = Path(other) / "copy"
            shutil.copytree(log.path, copy)
            place, position = _flip_a_byte(copy)
            self.stage.fact("changed", f"the byte at {count(position)} of {place.name}")
            with virta.open(copy, create=False) as changed:
                report = changed.topic("orders").verify(against=orders.head)
        self.stage.lines(lines_of(self.stage.layout, "orders", report))
        found = any(problem.severity == "damage" for problem in report.problems)
        self.stage.check(found and not report.ok, "the change was found")


def _order(user: str) -> dict[str, Any]:
    return {"id": 0, "user": user, "email": "", "amount": 0.0, "country": "FI"}


def _start_tail(log: Log) -> subprocess.Popen[str]:
    words = ("--log", str(log.path), "tail", "orders", "--columns", "id,user", "-o", "jsonl")
    return subprocess.Popen([sys.executable, "-m", "virta", *words], stdout=subprocess.PIPE, text=True)


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

    make = feeds.order_maker(seed=1)
    made = [make(row) for row in range(_BATCH_ROWS)]
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
        row = make(rows + len(single))
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
