"""`virta top`: all topics at a glance, live: where they stand, how fast they go, who is behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from virta.cli.invocation import Invocation, output_options
from virta.cli.output import choose_form, print_records
from virta.cli.ranges import open_log
from virta.cli.table import Layout, Table
from virta.cli.text import count
from virta.requests import format_duration, format_size, parse_duration

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.groups.model import GroupDescription

_COLUMNS = (
    "topic",
    "rows",
    "rows_per_second",
    "bytes",
    "bytes_per_second",
    "age_seconds",
    "lag_rows",
    "group",
)
# Home, and clear what is below: the terminal keeps what was there before.
_REDRAW = "\x1b[H\x1b[J"
_SHORTEST_SECONDS = 0.1


@click.command()
@click.option("--interval", metavar="TIME", default="1s", show_default=True, help="Time between two looks.")
@click.option("--once", is_flag=True, help="One look, over one interval, then stop.")
@output_options("the topics")
@click.pass_obj
def top(invocation: Invocation, interval: str, once: bool) -> None:
    """Watch all topics: rows and bytes, how many come in a second, and the group furthest behind.

    On a terminal it is drawn again and again until Ctrl-C; in a pipe, a line for each topic.

    \b
    Examples:
      virta top
      virta top --interval 5s
      virta top --once -o json
    """
    seconds = max(_SHORTEST_SECONDS, parse_duration(interval))
    drawn = not once and choose_form(invocation) == "table" and sys.stdout.isatty()
    with open_log(invocation) as log:
        for records in _looks(log, seconds):
            if drawn:
                _draw(invocation, records)
            else:
                print_records(invocation, records, key="topic", names=_COLUMNS, shown=_SHOWN)
                sys.stdout.flush()
            if once:
                return


_SHOWN = {
    "rows": count,
    "rows_per_second": lambda value: count(round(value)),
    "bytes": format_size,
    "bytes_per_second": lambda value: format_size(round(value)),
    "age_seconds": lambda value: format_duration(value),
    "lag_rows": count,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One topic at one moment."""

    rows: int
    offsets: int
    bytes: int
    age_seconds: float | None


def _looks(log: Log, seconds: float) -> Iterator[list[dict[str, Any]]]:
    before, began = _standings(log), time.monotonic()
    while True:
        time.sleep(seconds)
        now, at = _standings(log), time.monotonic()
        behind = _furthest_behind(log)
        yield [
            {
                "topic": name,
                "rows": look.rows,
                "rows_per_second": round((look.offsets - before.get(name, look).offsets) / (at - began), 1),
                "bytes": look.bytes,
                # what the steward takes away is no traffic
                "bytes_per_second": round(
                    max(0, look.bytes - before.get(name, look).bytes) / (at - began), 1
                ),
                "age_seconds": look.age_seconds,
                "lag_rows": behind[name].lag.rows if name in behind else None,
                "group": behind[name].group if name in behind else None,
            }
            for name, look in now.items()
        ]
        before, began = now, at


def _standings(log: Log) -> dict[str, _Look]:
    from virta.cli.topic import newest_us

    found = {}
    for name in log.topics():
        topic = log.topic(name)
        stats, newest = topic.stats(), newest_us(topic)
        age = None if newest is None else round(max(0.0, time.time() - newest / 1e6), 1)
        found[name] = _Look(rows=stats.rows, offsets=stats.next_offset, bytes=stats.bytes, age_seconds=age)
    return found


def _furthest_behind(log: Log) -> dict[str, GroupDescription]:
    """Of each topic with groups, the one with the most rows before it."""
    found: dict[str, GroupDescription] = {}
    for each in log.groups():
        if each.topic not in found or each.lag.rows > found[each.topic].lag.rows:
            found[each.topic] = each
    return found


def _draw(invocation: Invocation, records: list[dict[str, Any]]) -> None:
    layout = Layout.of(invocation, True, _SHOWN)
    names = list(invocation.columns or _COLUMNS)
    table = Table(names, layout, header=True)
    lines = [*table.add([tuple(record[name] for name in names) for record in records]), *table.settle()]
    rate = sum(record["rows_per_second"] for record in records)
    summary = f"{count(len(records), 'topic')}, {count(round(rate))} rows/s"
    print(_REDRAW + "\n".join([layout.dim(f"{summary}; Ctrl-C ends"), "", *lines]), flush=True)
