"""`virta tail`: what is there, then what comes."""

from __future__ import annotations

import contextlib
import os
import queue
import select as polling
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_options
from virta.cli.output import MixedRows, Rows
from virta.cli.ranges import find, open_log, partition_option, select
from virta.requests import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.log import Log
    from virta.topics.read import Selection
    from virta.topics.topic import Topic

# Batches that wait to be printed, over all topics: a slow terminal holds the readers up.
_QUEUE_LENGTH = 16


@click.command()
@click.argument("ranges", metavar="TOPIC[@FROM:]…", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--since", metavar="MOMENT", help="Begin there: -5m, 2026-11-18T10:00Z.")
@click.option(
    "--where", metavar="EXPRESSION", multiple=True, help="Only rows for which it is true, as in SQL."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after so many rows (of each topic).")
@click.option("--stop-when-idle", metavar="TIME", help="Stop when nothing came for so long: 10s.")
@partition_option
@output_options("the offsets")
@click.pass_obj
def tail(
    invocation: Invocation,
    ranges: tuple[str, ...],
    since: str | None,
    where: tuple[str, ...],
    limit: int | None,
    stop_when_idle: str | None,
    partition: int | None,
) -> None:
    """Read what is there, then what comes.

    `orders@end` begins with what comes, `orders@-10:` ten rows earlier. Several topics are
    read at once, as they come; each row says its topic then. Ctrl-C ends it.

    \b
    Examples:
      virta tail orders@-10:
      virta tail orders payments --since -5m --where 'amount > 50'
      virta tail orders -o jsonl --stop-when-idle 10s | jq .amount
    """
    idle = parse_duration(stop_when_idle) if stop_when_idle is not None else None
    with open_log(invocation) as log:
        chosen = [_selection(log, text, since, where, limit, partition) for text in ranges]
        with _noticing_that_nobody_reads():
            if len(chosen) == 1:
                _follow(invocation, chosen[0][1], idle)
            else:
                _follow_all(invocation, chosen, idle)


def _selection(
    log: Log,
    text: str,
    since: str | None,
    where: Sequence[str],
    limit: int | None,
    partition: int | None,
) -> tuple[Topic, Selection]:
    topic, request = find(log, text)
    selection = select(topic, request, partition)
    if since is not None:
        selection = selection.since(since)
    for expression in where:
        selection = selection.where(expression)
    return topic, selection if limit is None else selection.limit(limit)


def _follow(invocation: Invocation, selection: Selection, idle: float | None) -> None:
    with Rows(invocation, selection.schema) as rows:
        for batch in selection.tail_batches(stop_when_idle=idle):
            rows.write(batch)
            rows.flush()


# -- several at once --------------------------------------------------------------------------


def _follow_all(
    invocation: Invocation, chosen: Sequence[tuple[Topic, Selection]], idle: float | None
) -> None:
    """A thread reads each topic; this one prints."""
    arrived: queue.Queue[Any] = queue.Queue(_QUEUE_LENGTH)
    for topic, selection in chosen:
        threading.Thread(
            target=_pump, args=(topic.name, selection, idle, arrived), name=f"tail-{topic.name}", daemon=True
        ).start()
    schemas = [selection.schema for _, selection in chosen]
    with MixedRows(invocation, schemas) as rows:
        for name, batch in _until_all_end(arrived, len(chosen)):
            rows.write(name, batch)
            rows.flush()


def _pump(name: str, selection: Selection, idle: float | None, arrived: queue.Queue[Any]) -> None:
    try:
        for batch in selection.tail_batches(stop_when_idle=idle):
            arrived.put((name, batch))
    except BaseException as error:
        arrived.put(error)
    else:
        arrived.put(None)


def _until_all_end(arrived: queue.Queue[Any], readers: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    while readers:
        item = arrived.get()
        if item is None:
            readers -= 1
        elif isinstance(item, BaseException):
            raise item
        else:
            yield item


# -- the other end of the pipe ----------------------------------------------------------------------


@contextlib.contextmanager
def _noticing_that_nobody_reads() -> Iterator[None]:
    """End when the reader of our pipe has gone, even while no row comes that would tell."""
    stop_reading, stop_writing = os.pipe()
    watcher = threading.Thread(target=_watch_stdout, args=(stop_reading,), name="tail-pipe", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.write(stop_writing, b"x")
        watcher.join()
        os.close(stop_writing)
        os.close(stop_reading)


def _watch_stdout(stop: int) -> None:
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    poll = polling.poll()
    poll.register(stop, polling.POLLIN)
    poll.register(output, 0)  # errors and hang-ups are always told
    for descriptor, _ in poll.poll():
        if descriptor == output:
            # a tail only reads, so there is nothing to finish
            os._exit(0)
