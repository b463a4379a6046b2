"""`virta changes` and `virta diff`: what became of the rows of each key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.current import moment_of, topic_at
from virta.cli.invocation import Invocation, output_options
from virta.cli.output import Rows, note
from virta.cli.ranges import find, open_log
from virta.cli.report import Exit
from virta.cli.text import count
from virta.errors import UsageError
from virta.requests import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

# Differences are printed in pieces of so many rows.
_ROWS_AT_ONCE = 8192


@click.command()
@click.argument("rows", metavar="TOPIC[@FROM:]", shell_complete=complete_topics)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes; Ctrl-C ends it.")
@click.option("--stop-when-idle", metavar="TIME", help="With --follow: stop when nothing came so long: 10s.")
@output_options("the kinds")
@click.pass_obj
def changes(invocation: Invocation, rows: str, follow: bool, stop_when_idle: str | None) -> None:
    """What was inserted, updated (before and after) and deleted in an update topic.

    Each change names the partition, the offset and the time of the row that made it.

    \b
    Examples:
      virta changes users@-1h:
      virta changes users@-10: -o jsonl
      virta changes users@end --follow -o jsonl | jq .after
    """
    if stop_when_idle is not None and not follow:
        raise UsageError("--stop-when-idle goes with --follow")
    idle = parse_duration(stop_when_idle) if stop_when_idle is not None else None
    with open_log(invocation) as log:
        topic, request = find(log, rows)
        if request.end is not None:
            raise UsageError("changes go on to the end", hint=f"virta changes {topic.name}@FROM:")
        from virta import requests

        if isinstance(request.start, requests.End):
            start: Any = dict(topic.next_offsets)
        else:
            start = moment_of(topic, request.start)
        wanted = topic.changes(start)
        with Rows(invocation, wanted.schema) as printed:
            for batch in wanted.tail_batches(stop_when_idle=idle) if follow else wanted.batches():
                printed.write(batch)
                printed.flush()
        if sys.stdout.isatty() and printed.is_table:
            note(invocation, f"({count(printed.count, 'change')})")


@click.command()
@click.argument("first", metavar="TOPIC[@MOMENT]", shell_complete=complete_topics)
@click.argument("second", metavar="TOPIC[@MOMENT]", shell_complete=complete_topics)
@click.option("--key", "keys", metavar="A,B", help="The columns to go by; without it the first topic's keys.")
@click.option("--summary", is_flag=True, help="Say how many rows differ, and print none.")
@output_options("the kinds")
@click.pass_context
def diff(context: click.Context, first: str, second: str, keys: str | None, summary: bool) -> None:
    """What is different between two topics, or one topic at two moments, by key.

    Exit 0 where nothing is, 1 where something is. An update topic is its table; of any other
    topic the newest row of each key counts. A side may be of a moment: users@-1h, users@100.

    \b
    Examples:
      virta diff users@-1d users
      virta diff orders orders-copy --key id
      virta diff users@-1h users --summary && echo nothing changed
    """
    invocation: Invocation = context.obj
    with open_log(invocation) as log:
        (one, before), (two, after) = topic_at(log, first), topic_at(log, second)
        chosen = [name.strip() for name in keys.split(",")] if keys else None
        found = log.diff(one.name, two.name, keys=chosen, first_as_of=before, second_as_of=after)
        if found and not summary:
            difference: pa.Table = found.to_arrow()
            with Rows(invocation, difference.schema) as printed:
                for batch in difference.to_batches(max_chunksize=_ROWS_AT_ONCE):
                    printed.write(batch)
        counted = [(found.inserted, "inserted"), (found.updated, "updated"), (found.deleted, "deleted")]
        said = ", ".join(f"{number:,} {word}" for number, word in counted if number)
        note(invocation, f"{first} → {second}: {said or 'no difference'}")
        if found:
            context.exit(Exit.FAILED)
