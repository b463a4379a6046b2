"""`virta read`: a range of rows, and stop."""

from __future__ import annotations

import sys
from typing import Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_options
from virta.cli.output import Rows, note
from virta.cli.progress import Progress
from virta.cli.ranges import find, open_log, partition_option, select
from virta.cli.text import count


@click.command()
@click.argument("rows", metavar="TOPIC[@FROM:TO]", shell_complete=complete_topics)
@click.option(
    "--where", metavar="EXPRESSION", multiple=True, help="Only rows for which it is true, as in SQL."
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many rows.")
@click.option("--at-version", type=int, metavar="N", help="With the columns that version N of the topic had.")
@click.option("--count", "counting", is_flag=True, help="Print how many rows there are.")
@partition_option
@output_options("the offsets")
@click.pass_obj
def read(
    invocation: Invocation,
    rows: str,
    where: tuple[str, ...],
    limit: int | None,
    counting: bool,
    at_version: int | None,
    partition: int | None,
) -> None:
    """Read a range of rows and stop.

    Either side of a range may be left out: 100 an offset, -10 rows before the end, -15m or
    2026-11-18T10:00Z a moment, #3f9c1a a block, end the end as of now. Without the `:` it is
    one row, or one block. A topic with several partitions is read one after the other; offsets
    need --partition then.

    \b
    Examples:
      virta read orders@-10:
      virta read orders@2026-11-18:2026-11-19 --where 'amount > 50' --columns user,amount
      virta read orders@-15m: -o parquet --out last.parquet
    """
    with open_log(invocation) as log:
        topic, request = find(log, rows)
        selection = select(topic, request, partition)
        if at_version is not None:
            selection = selection.under_schema(topic.schema_version_of(at_version))
        for expression in where:
            selection = selection.where(expression)
        if limit is not None:
            selection = selection.limit(limit)
        print_rows(invocation, selection, counting=counting)


def print_rows(invocation: Invocation, rows: Any, *, counting: bool) -> None:
    """The rows of a selection or a table, in the form that was asked for; or how many there are."""
    if counting:
        print(rows.count())
        return
    if invocation.columns:
        rows = rows.columns(*invocation.columns)
    elif invocation.quiet:
        rows = rows.columns("_offset")
    watched = invocation.out is not None or not sys.stdout.isatty()
    progress = Progress(invocation, "reading", wanted=watched)
    with progress, Rows(invocation, rows.schema) as printed:
        for batch in rows.batches():
            printed.write(batch)
            progress.advance(rows=batch.num_rows, bytes=batch.nbytes)
    if invocation.out is not None:
        note(invocation, f"{count(printed.count, 'row')} in {invocation.out}")
    elif sys.stdout.isatty() and printed.is_table:
        note(invocation, f"({count(printed.count, 'row')})")
