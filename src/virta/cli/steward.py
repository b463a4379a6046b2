"""`virta steward`: what neither producers nor consumers do: retention, compaction, clearing up."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_options
from virta.cli.output import note, print_records
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.report import Exit
from virta.cli.text import count
from virta.errors import UsageError
from virta.requests import format_size, parse_duration

if TYPE_CHECKING:
    from virta.steward.steward import StewardReport

_COLUMNS = ("topic", "partition", "rows", "bytes", "segments", "from_offset", "to_offset", "reason", "error")


@click.command()
@click.option("--once", is_flag=True, help="One round, then stop.")
@click.option("--interval", metavar="TIME", help="Time between two rounds.  [default: 1m]")
@click.option("--topic", metavar="TOPIC", help="Only this one.", shell_complete=complete_topics)
@click.option("--force", is_flag=True, help="Compact and join at once, also where it does not pay yet.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, once, and do nothing.")
@output_options("the topics")
@click.pass_context
def steward(
    context: click.Context,
    once: bool,
    interval: str | None,
    topic: str | None,
    force: bool,
    dry_run: bool,
) -> None:
    """Look after the topics: retention, compaction and small blocks, once or for ever.

    Retention removes whole segments from the old end; a reader that stands there gets a clear
    answer. Topics say what they keep: virta topic alter TOPIC --retention-age 7d. Update topics
    are compacted to the newest row of each key, and many small blocks become large ones, while
    others append and read.

    \b
    Examples:
      virta steward --once --dry-run
      virta steward --once --topic users --force
      virta steward --interval 10m
    """
    invocation: Invocation = context.obj
    if once and interval is not None:
        raise UsageError("--once and --interval cannot go together")
    pause = parse_duration(interval) if interval is not None else 60.0
    if pause <= 0:
        raise UsageError("the time between two rounds is more than nothing")
    from virta.steward.steward import Steward  # Arrow is not for --help

    with open_log(invocation) as log:
        looking_after = Steward(log)
        while True:
            with Progress(invocation, "looking after the topics") as progress:
                report = looking_after.run_once(
                    dry_run=dry_run, topic=topic, force=force, progress=_advancing(progress)
                )
            print_report(invocation, report)
            if once or dry_run:
                break
            time.sleep(pause)
    if not report.ok:
        context.exit(Exit.FAILED)


def _advancing(progress: Progress) -> Callable[[Any], None]:
    """Each partition counts from the start; the line shows them all."""
    told: dict[tuple[str, int, str], int] = {}

    def advance(step: Any) -> None:
        key = step.topic, step.partition, step.reason
        progress.advance(bytes=step.bytes - told.get(key, 0))
        told[key] = step.bytes

    return advance


def print_report(invocation: Invocation, report: StewardReport) -> None:
    records = [_plain(dataclasses.asdict(part)) for part in report.partitions]
    if records:
        print_records(
            invocation, records, key="topic", names=_COLUMNS, shown={"bytes": format_size, "rows": count}
        )
    word = "would remove" if report.dry_run else "removed"
    size = f"{format_size(report.bytes)} " if report.bytes or not report.dry_run else ""
    note(
        invocation,
        f"{count(report.topics, 'topic')}: {word} {count(report.rows, 'row')}, "
        f"{size}in {count(report.segments, 'segment')}"
        + ("; nothing was done (--dry-run)" if report.dry_run else ""),
    )


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}
