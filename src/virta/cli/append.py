"""`virta append`: rows from files or a pipe into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, quiet_option
from virta.cli.output import note, print_record
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.text import count, rate
from virta.errors import Conflict, SchemaMismatch, TooLarge, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.exchange.input import Chunk, Source
    from virta.topics.topic import Topic
    from virta.types import Ack

FORMS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow")


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", metavar="[FILE…|-]", nargs=-1, type=click.Path(allow_dash=True))
@click.option(
    "--format",
    "form",
    metavar="FORM",
    type=click.Choice(FORMS),
    help=f"{', '.join(FORMS)}; without it the file's ending or its first bytes tell.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Rows appended at once, at most; a pipe's rows are appended as they come.",
)
@click.option(
    "--if-offset",
    type=click.IntRange(0),
    metavar="N",
    help="Append only if the next offset is N, and nobody appends in between; else exit 7.",
)
@click.option(
    "--producer",
    metavar="NAME",
    help="Exactly once: run again with the same name and input, rows that are there are left out.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Append to this partition, instead of where the keys say.",
)
@click.option("--dry-run", is_flag=True, help="Read and check the rows, and append nothing.")
@quiet_option("Say nothing.")
@output_option("json", "jsonl", text="json or jsonl: print the acknowledgement.")
@click.pass_obj
def append(
    invocation: Invocation,
    topic: str,
    files: tuple[str, ...],
    form: str | None,
    batch: int,
    if_offset: int | None,
    producer: str | None,
    partition: int | None,
    dry_run: bool,
) -> None:
    """Append rows from files or a pipe.

    What `read` and `tail` print is taken back: rows get a new offset and time.

    \b
    Examples:
      virta append orders rows.jsonl more.parquet
      seq 1 1000 | jq -c '{id: .}' | virta append orders -
      virta tail orders -o jsonl | virta append copy --producer copier
    """
    if producer is not None and if_offset is not None:
        raise UsageError("--producer and --if-offset cannot go together")
    from virta.exchange.input import Source  # Arrow is not for --help

    with open_log(invocation) as log:
        found = log.topic(topic)
        sources = [Source(name, form) for name in files or ("-",)]
        if sys.stdin.isatty() and any(source.is_stdin for source in sources):
            note(invocation, "type rows as JSON, one per line; Ctrl-D ends")
        total = total_size(sources)
        with Progress(invocation, "appending", total_bytes=total) as progress:
            run = _Run(found, progress, partition, expected=if_offset)
            if dry_run:
                run.check(sources, batch)
            elif producer is None:
                run.append(sources, batch)
            else:
                run.append_as(producer, sources, batch)
        _report(invocation, run, dry_run)


def total_size(sources: list[Source]) -> int | None:
    """Of files; unknown where one is a pipe."""
    sizes = [source.size for source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(slots=True)
class _Run:
    """One run over all inputs, and what came of it."""

    topic: Topic
    progress: Progress
    partition: int | None = None
    expected: int | None = None
    rows: int = 0
    known: int = 0  # rows that a producer had appended before
    first: int | None = None
    partitions: set[int] = field(default_factory=set)
    ack: Ack | None = None
    begun: float = field(default_factory=time.monotonic)

    def _chunks(self, sources: list[Source], batch: int) -> Iterator[Chunk]:
        for source in sources:
            for chunk in source.chunks(self.topic.schema, batch):
                yield chunk
                self.progress.advance(rows=chunk.rows.num_rows, bytes=chunk.bytes)

    def append(self, sources: list[Source], batch: int) -> None:
        for chunk in self._chunks(sources, batch):
            self._took(_placed(chunk, self._append, self))
        if self.ack is None and self.expected is not None:
            self._append(
                self.topic.schema.empty_table()
            )  # nothing came; the expectation is held all the same

    def _append(self, rows: pa.RecordBatch | pa.Table) -> Ack:
        return self.topic.append(rows, partition=self.partition, if_next_offset=self.expected)

    def _took(self, ack: Ack) -> None:
        self.ack = ack
        self.rows += ack.rows
        self.partitions |= {part.partition for part in ack.parts}
        self.first = ack.parts[0].first_offset if self.first is None else self.first
        if self.expected is not None:
            self.expected = ack.last_offset + 1

    def append_as(self, producer: str, sources: list[Source], batch: int) -> None:
        """Rows are numbered as they are read; those the producer has appended are left out."""
        with self.topic.writer(producer=producer, partition=self.partition, linger=0) as writer:
            done = writer.last_sequence + 1
            for chunk in self._chunks(sources, batch):
                new = chunk.rows.num_rows - max(0, min(done - self.known, chunk.rows.num_rows))
                skipped = chunk.rows.num_rows - new
                self.known += skipped
                if new:
                    rows = chunk.rows.slice(skipped)
                    _placed(chunk, writer.send_batch, self, rows, skipped)
                    self.rows += new
                    self.ack = writer.last_ack
                    if self.ack is not None:
                        self.partitions |= {part.partition for part in self.ack.parts}
                        if self.first is None:
                            self.first = self.ack.parts[-1].last_offset - new + 1

    def check(self, sources: list[Source], batch: int) -> None:
        from virta.topics.rows import RowConverter

        config = self.topic.config
        converter = RowConverter(self.topic.schema, row_limit_bytes=config.row_limit_bytes, keys=config.keys)
        for chunk in self._chunks(sources, batch):
            _placed(chunk, converter.batches, self)
            self.rows += chunk.rows.num_rows


def _placed(chunk: Chunk, act: Any, run: _Run, rows: Any = None, skipped: int = 0) -> Any:
    """Act on the chunk's rows; a refusal names the file and line instead of the row in the batch."""
    try:
        return act(chunk.rows if rows is None else rows)
    except (SchemaMismatch, TooLarge) as error:
        if error.row is not None:
            place = chunk.place(error.row + skipped)
            error.message = f"{place}: {error.message.removeprefix(f'row {error.row}: ')}"
        error.message += _so_far(run)
        raise
    except Conflict as error:
        error.message += _so_far(run)
        raise


def _so_far(run: _Run) -> str:
    """A long input is appended piece by piece, so a refusal says how far it came."""
    return f"; {count(run.rows, 'row')} before it were appended" if run.rows and run.ack else ""


def _report(invocation: Invocation, run: _Run, dry_run: bool) -> None:
    if dry_run:
        note(invocation, f"{count(run.rows, 'row')} would fit; nothing was appended (--dry-run)")
        return
    ack = run.ack
    if invocation.output and ack is not None and len(run.partitions) > 1:
        print_record(
            invocation,
            {
                "topic": run.topic.name,
                "partitions": sorted(run.partitions),
                "rows": run.rows,
                "already_there": run.known,
                "durability": str(ack.durability),
            },
        )
        return
    if invocation.output and ack is not None:
        print_record(
            invocation,
            {
                "topic": run.topic.name,
                "partition": ack.partition,
                "rows": run.rows,
                "already_there": run.known,
                "first_offset": run.first,
                "last_offset": ack.last_offset,
                "head": ack.head,
                "durability": str(ack.durability),
            },
        )
        return
    seconds = time.monotonic() - run.begun
    text = f'appended {count(run.rows, "row")} to "{run.topic.name}"'
    if ack is not None and run.rows and len(run.partitions) > 1:
        text += f", to {len(run.partitions)} partitions, {_DURABLE[str(ack.durability)]}"
    elif ack is not None and run.rows:
        text += f": offsets {run.first} to {ack.last_offset}, {_DURABLE[str(ack.durability)]}"
    if run.known:
        text += f"; {count(run.known, 'row')} were there already"
    if run.rows and seconds > 1:
        text += f"; {rate(run.rows, seconds)} rows/s"
    note(invocation, text)


_DURABLE = {"memory": "in memory", "os": "written", "disk": "synced to disk"}
