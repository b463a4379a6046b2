"""`virta gen`: made-up rows into a topic, from a template or from its columns."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_options
from virta.cli.output import Rows, note
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.text import count, rate
from virta.errors import UsageError
from virta.exchange.templates import BUILT_IN, Maker, maker_of_schema, read_template

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.log import Log
    from virta.topics.topic import Topic

_DEFAULT_COUNT = 100
_BATCH_ROWS = 5_000
# Slow rates are appended row by row, fast ones this many times a second.
_TICKS_PER_SECOND = 20


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--template",
    metavar="T",
    help=f"JSON with functions, @FILE, or a built-in one: {', '.join(BUILT_IN)}. Else from the columns.",
)
@click.option("--count", "rows", type=click.IntRange(0), metavar="N", help="How many rows.  [default: 100]")
@click.option("--rate", "speed", metavar="R", help="Rows per second, for ever unless there is a --count.")
@click.option("--seed", type=int, metavar="S", help="The same seed gives the same rows.")
@click.option("--create", is_flag=True, help="Make the topic if it is missing, for a built-in template.")
@click.option("--dry-run", is_flag=True, help="Print the rows, and append nothing.")
@output_options("the first column")
@click.pass_obj
def gen(
    invocation: Invocation,
    topic: str,
    template: str | None,
    rows: int | None,
    speed: str | None,
    seed: int | None,
    create: bool,
    dry_run: bool,
) -> None:
    """Make up rows from a template or from the topic's columns.

    Functions: count, int 1 9, float 0 1, normal 20 4, bool, choice a b, name, email, word,
    words 5, city, country, path, ip, uuid, bytes 16, now, maybe 0.5 name.

    \b
    Examples:
      virta gen orders --template orders --create --count 1000
      virta gen orders --template '{"id": "{{count}}", "user": "{{name}}", "amount": "{{float 1 9}}"}'
      virta gen orders --rate 50 --seed 7
    """
    make, columns = read_template(template) if template is not None else (None, None)
    if create and columns is None:
        raise UsageError(
            "--create needs a built-in template",
            hint=f"--template {'|'.join(BUILT_IN)}, or `virta topic create` first",
        )
    per_second = _per_second(speed)
    wanted = rows if rows is not None else (None if per_second else _DEFAULT_COUNT)
    with open_log(invocation, create=create) as log:
        found = _topic(log, topic, columns if create else None)
        batches = _batches(found.schema, make or maker_of_schema(found.schema), wanted, per_second, seed)
        if dry_run:
            _print(invocation, found.schema, batches)
        else:
            _append(invocation, found, batches, wanted)


def _per_second(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k|M)?(?:/s)?", text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f'"{text}" is not a rate', hint="write rows per second: --rate 50 or 10k")
    return float(match[1]) * {"k": 1e3, "M": 1e6}.get(match[2] or "", 1.0)


def _topic(log: Log, name: str, columns: tuple[str, ...] | None) -> Topic:
    if columns is None:
        return log.topic(name)
    from virta.exchange.schema_text import schema_of_words  # Arrow is not for --help

    return log.create_topic(name, schema_of_words(columns), if_missing=True)


def _batches(
    schema: pa.Schema, make: Maker, wanted: int | None, per_second: float | None, seed: int | None
) -> Iterator[pa.RecordBatch]:
    """Made-up rows, in time."""
    from virta.exchange.input import Builder

    builder = Builder(schema, "template")
    chance = random.Random(seed)
    begun, done = time.monotonic(), 0
    while wanted is None or done < wanted:
        size = _BATCH_ROWS
        if per_second is not None:
            size = max(1, min(size, int(per_second / _TICKS_PER_SECOND)))
        size = size if wanted is None else min(size, wanted - done)
        made = [make(chance, done + row) for row in range(size)]
        yield builder.from_rows(made, range(done + 1, done + size + 1), 0).rows
        done += size
        if per_second is not None:
            time.sleep(max(0.0, begun + done / per_second - time.monotonic()))


def _print(invocation: Invocation, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    from virta.topics.rows import RowConverter  # Arrow is not for --help

    converter = RowConverter(schema)
    with Rows(invocation, schema) as printed:
        for batch in batches:
            for checked in converter.batches(batch):
                printed.write(checked)
            printed.flush()
    note(invocation, f"{count(printed.count, 'row')} made up; nothing was appended (--dry-run)")


def _append(
    invocation: Invocation, found: Topic, batches: Iterator[pa.RecordBatch], wanted: int | None
) -> None:
    done, begun = 0, time.monotonic()
    try:
        with Progress(invocation, "making rows", total_rows=wanted) as progress:
            for batch in batches:
                found.append(batch)
                done += batch.num_rows
                progress.advance(rows=batch.num_rows)
    finally:
        seconds = time.monotonic() - begun
        speed = f", {rate(done, seconds)} rows/s" if seconds > 1 else ""
        note(invocation, f'appended {count(done, "row")} to "{found.name}"{speed}')
