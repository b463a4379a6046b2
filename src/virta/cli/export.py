"""`virta export` and `virta import`: rows into files and back, streamed, and gone on with after a crash."""

from __future__ import annotations

from pathlib import Path

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, quiet_option
from virta.cli.output import note, print_record
from virta.cli.progress import Progress
from virta.cli.ranges import find, open_log, partition_option, select
from virta.cli.text import count

_EXPORTED = ("parquet", "arrow", "csv", "jsonl")
_IMPORTED = ("jsonl", "json", "csv", "tsv", "parquet", "arrow")


@click.command()
@click.argument("rows", metavar="TOPIC[@FROM:TO]", shell_complete=complete_topics)
@click.option(
    "--out",
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A file, or a folder of files.",
)
@click.option(
    "--format",
    "form",
    metavar="FORM",
    type=click.Choice(_EXPORTED),
    help=f"{', '.join(_EXPORTED)}; without it the file's ending tells, and parquet for a folder.",
)
@click.option(
    "--partition-by",
    metavar="UNIT",
    type=click.Choice(("day", "hour", "month")),
    help="day, hour or month of _timestamp: files in folders like day=2026-11-18.",
)
@click.option("--rows-per-file", type=click.IntRange(1), metavar="N", help="Begin a new file after N rows.")
@click.option(
    "--where", metavar="EXPRESSION", multiple=True, help="Only rows for which it is true, as in SQL."
)
@click.option("--columns", metavar="A,B,…", help="Only these columns, in this order.")
@partition_option
@output_option("json", "jsonl", text="json or jsonl: print what was written.")
@quiet_option("Say nothing.")
@click.pass_obj
def export(
    invocation: Invocation,
    rows: str,
    out: Path,
    form: str | None,
    partition_by: str | None,
    rows_per_file: int | None,
    where: tuple[str, ...],
    columns: str | None,
    partition: int | None,
) -> None:
    """Write a range of rows to a file, or to many in a folder.

    Arrow and Parquet lose nothing: types, null or not, metadata, headers, offset and time.
    With --partition-by or --rows-per-file, run it again after an interruption: it goes on.

    \b
    Examples:
      virta export orders --out orders.parquet
      virta export orders@-7d: --out ./orders --partition-by day
      virta export orders --out ./lines --format jsonl --rows-per-file 1000000
    """
    from virta.exchange.export import export as run  # Arrow is not for --help

    with open_log(invocation) as log:
        topic, request = find(log, rows)
        selection = select(topic, request, partition)
        for expression in where:
            selection = selection.where(expression)
        if columns is not None:
            selection = selection.columns(*filter(None, map(str.strip, columns.split(","))))
        with Progress(invocation, "exporting") as progress:
            report = run(
                selection,
                out,
                form=form,
                partition_by=partition_by,
                rows_per_file=rows_per_file,
                progress=lambda rows, size: progress.advance(rows=rows, bytes=size),
            )
    if invocation.output:
        record = {"out": str(report.out), "rows": report.rows, "files": report.files}
        print_record(invocation, {**record, "already_there": report.resumed_rows})
        return
    text = f"{count(report.rows, 'row')} in {report.out}"
    if partition_by is not None or rows_per_file is not None:
        text += f", {count(report.files, 'file')}"
    if report.resumed_rows:
        text += f"; {count(report.resumed_rows, 'row')} were there already"
    note(invocation, text)


@click.command("import")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    metavar="FORM",
    type=click.Choice(_IMPORTED),
    help=f"{', '.join(_IMPORTED)}; without it the file's ending or its first bytes tell.",
)
@click.option("--create", is_flag=True, help="Make the topic from the first file's schema (parquet, arrow).")
@output_option("json", "jsonl", text="json or jsonl: print what was appended.")
@quiet_option("Say nothing.")
@click.pass_obj
def import_(
    invocation: Invocation, topic: str, files: tuple[Path, ...], form: str | None, create: bool
) -> None:
    """Append the rows of files, and of all files in folders, each exactly once.

    Run it again after an interruption: it goes on where it stopped, because a file's rows are
    known by its name and content. To have a file's rows twice, use `virta append`.

    \b
    Examples:
      virta import orders orders.parquet --create
      virta import orders ./orders
      virta import orders january.csv february.csv
    """
    from virta.exchange.files import files_in  # Arrow is not for --help
    from virta.exchange.load import create_from, load

    with open_log(invocation, create=create) as log:
        found = create_from(log, topic, files[0]) if create else log.topic(topic)
        total = sum(path.stat().st_size for path in files_in(files) if path.exists())
        with Progress(invocation, "importing", total_bytes=total) as progress:
            report = load(
                found, files, form=form, progress=lambda rows, size: progress.advance(rows=rows, bytes=size)
            )
    if invocation.output:
        record = {"topic": topic, "rows": report.rows, "already_there": report.known}
        print_record(invocation, {**record, "files": len(report.files)})
        return
    text = f'imported {count(report.rows, "row")} from {count(len(report.files), "file")} into "{topic}"'
    if report.known:
        text += f"; {count(report.known, 'row')} were there already"
    note(invocation, text)
