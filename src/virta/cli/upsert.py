"""`virta upsert` and `virta delete`: rows of an update topic by their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from virta.cli.append import FORMS, total_size
from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, quiet_option
from virta.cli.keys import typed_keys
from virta.cli.output import note, print_record
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.text import count
from virta.errors import SchemaMismatch, TooLarge, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.exchange.input import Chunk, Source
    from virta.topics.topic import Topic

_format_option = click.option(
    "--format",
    "form",
    metavar="FORM",
    type=click.Choice(FORMS),
    help=f"{', '.join(FORMS)}; without it the file's ending or its first bytes tell.",
)
_batch_option = click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Rows written at once, at most.",
)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", metavar="[FILE…|-]", nargs=-1, type=click.Path(allow_dash=True))
@_format_option
@_batch_option
@click.option("--dry-run", is_flag=True, help="Read and check the rows, and write nothing.")
@quiet_option("Say nothing.")
@output_option("json", "jsonl", text="json or jsonl: print what was written.")
@click.pass_obj
def upsert(
    invocation: Invocation, topic: str, files: tuple[str, ...], form: str | None, batch: int, dry_run: bool
) -> None:
    """Set columns of rows by their key: named columns are set, the others stay.

    A key that has no row gets one. Rows name their key; `virta append` sets whole rows.

    \b
    Examples:
      echo '{"id": 7, "email": "a@b"}' | virta upsert users -
      virta upsert users changes.csv
      virta upsert users changes.parquet --dry-run
    """
    with open_log(invocation) as log:
        found = log.topic(topic)
        rows = 0
        for chunk in _chunks(invocation, found, files, form, batch, "setting"):
            _placed(chunk, rows, found.check_upsert if dry_run else found.upsert, chunk.rows)
            rows += chunk.rows.num_rows
        _report(invocation, found, rows, "set", dry_run)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("keys", metavar="[KEY…]", nargs=-1)
@click.option(
    "--from",
    "files",
    metavar="FILE|-",
    multiple=True,
    type=click.Path(allow_dash=True),
    help="Keys from a file or a pipe: rows with the key columns; others are passed over.",
)
@_format_option
@_batch_option
@click.option("--dry-run", is_flag=True, help="Say how many of them are there, and delete nothing.")
@quiet_option("Say nothing.")
@output_option("json", "jsonl", text="json or jsonl: print what was written.")
@click.pass_obj
def delete(
    invocation: Invocation,
    topic: str,
    keys: tuple[str, ...],
    files: tuple[str, ...],
    form: str | None,
    batch: int,
    dry_run: bool,
) -> None:
    """Delete the rows of keys from an update topic's table.

    A deletion is a row like any other: what was there before stays readable until compaction.
    `virta topic erase` takes the bytes out of the files.

    \b
    Examples:
      virta delete users region=eu,id=7
      virta table users --where "age < 18" -o jsonl | virta delete users --from -
      virta delete accounts 17 18 19 --dry-run
    """
    if not keys and not files:
        raise UsageError("say which keys", hint="virta delete TOPIC KEY…, or --from FILE")
    with open_log(invocation) as log:
        found = log.topic(topic)
        rows = 0
        for wanted in _wanted(invocation, found, keys, files, form, batch):
            if dry_run:
                rows += sum(found.get(each) is not None for each in wanted.to_pylist())
            else:
                found.delete(wanted)
                rows += wanted.num_rows
        _report(invocation, found, rows, "deleted", dry_run)


def _wanted(
    invocation: Invocation,
    topic: Topic,
    keys: Sequence[str],
    files: Sequence[str],
    form: str | None,
    batch: int,
) -> Iterator[pa.RecordBatch]:
    """Batches of the key columns."""
    import pyarrow as pa  # not for --help

    names = list(topic.config.keys)
    if keys:
        schema = pa.schema([topic.schema.field(name) for name in names])
        yield pa.RecordBatch.from_pylist(typed_keys(topic, keys), schema=schema)
    if not files:
        return
    for chunk in _chunks(invocation, topic, files, form, batch, "deleting"):
        for name in names:
            if name not in chunk.rows.schema.names:
                raise SchemaMismatch(f"{chunk.place(0)}: the key column {name!r} is missing", column=name)
        yield chunk.rows.select(names)


def _chunks(
    invocation: Invocation, topic: Topic, files: Sequence[str], form: str | None, batch: int, doing: str
) -> Iterator[Chunk]:
    from virta.exchange.input import Source  # Arrow is not for --help

    sources: list[Source] = [Source(name, form) for name in files or ("-",)]
    with Progress(invocation, doing, total_bytes=total_size(sources)) as progress:
        for source in sources:
            for chunk in source.chunks(topic.schema, batch, by_shape=True):
                yield chunk
                progress.advance(rows=chunk.rows.num_rows, bytes=chunk.bytes)


def _placed(chunk: Chunk, done: int, act: Callable[[Any], Any], rows: Any) -> None:
    """A refusal names the file and line instead of the row in the batch."""
    try:
        act(rows)
    except (SchemaMismatch, TooLarge) as error:
        row = error.row or 0  # what is wrong with all rows of a shape is so with the first
        error.message = f"{chunk.place(row)}: {error.message.removeprefix(f'row {row}: ')}"
        if done:
            error.message += f"; {count(done, 'row')} before it were set"
        raise


def _report(invocation: Invocation, topic: Topic, rows: int, word: str, dry_run: bool) -> None:
    if invocation.output:
        print_record(invocation, {"topic": topic.name, word: rows, "dry_run": dry_run})
    elif dry_run:
        note(
            invocation,
            f'{count(rows, "row")} of "{topic.name}" would be {word}; nothing was done (--dry-run)',
        )
    else:
        note(invocation, f'{word} {count(rows, "row")} of "{topic.name}"')
