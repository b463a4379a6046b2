"""`virta backup` and `virta restore`: a verified copy of a log, brought up to date again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, quiet_option
from virta.cli.output import note, print_record
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.text import count
from virta.contexts import resolve
from virta.requests import format_size

if TYPE_CHECKING:
    from virta.exchange.backup import BackupReport, RestoreReport

_PLACE = click.Path(file_okay=False, path_type=Path)
_topics = click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Only this topic; may be given several times.",
)


@click.command()
@click.argument("destination", metavar="DEST", type=_PLACE)
@_topics
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and copy nothing.")
@output_option("json", "jsonl", text="json or jsonl: print what was copied.")
@quiet_option("Say nothing.")
@click.pass_obj
def backup(invocation: Invocation, destination: Path, topics: tuple[str, ...], dry_run: bool) -> None:
    """Copy what is new in a log into a backup, every block verified.

    Writers go on meanwhile. The backup is an ordinary log directory: `virta -l DEST read` works.
    Run it again to bring it up to date; sealed segments that are there are not copied again.

    \b
    Examples:
      virta backup /mnt/backup/events
      virta backup /mnt/backup/events --dry-run
      virta backup ./copy --topic orders --topic users
    """
    from virta.exchange.backup import backup as run  # Arrow is not for --help

    with open_log(invocation) as log, _progress(invocation, "copying") as told:
        report = run(log, destination, topics=topics or None, dry_run=dry_run, progress=told)
    _print(invocation, report, [])


@click.command()
@click.argument("source", type=_PLACE)
@click.argument("destination", metavar="[DEST]", required=False, type=_PLACE)
@_topics
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and copy nothing.")
@output_option("json", "jsonl", text="json or jsonl: print what was copied.")
@quiet_option("Say nothing.")
@click.pass_obj
def restore(
    invocation: Invocation, source: Path, destination: Path | None, topics: tuple[str, ...], dry_run: bool
) -> None:
    """Make a log from a backup, and verify every byte of it; exit 5 on damage.

    DEST, or without it the log that -l or VIRTA_LOG names, must be new or empty. A restore
    that was interrupted is finished by running it again.

    \b
    Examples:
      virta restore /mnt/backup/events ./events
      virta restore /mnt/backup/events ./orders-only --topic orders
      virta restore /mnt/backup/events --dry-run
    """
    from virta.exchange.backup import restore as run  # Arrow is not for --help

    target = destination or Path(resolve(invocation.log).address)
    with _progress(invocation, "restoring") as told:
        report = run(source, target, topics=topics or None, dry_run=dry_run, progress=told)
    _print(invocation, report.copied, _verified(report))


@contextmanager
def _progress(invocation: Invocation, what: str) -> Iterator[Any]:
    with Progress(invocation, what) as progress:
        seen: dict[str, int] = {}

        def told(step: Any) -> None:
            progress.advance(bytes=step.bytes - seen.get(step.topic, 0))
            seen[step.topic] = step.bytes

        yield told


def _verified(report: RestoreReport) -> list[str]:
    if not report.verified:
        return []
    blocks = sum(each.blocks for each in report.verified.values())
    rows = sum(each.rows for each in report.verified.values())
    return [f"verified {count(blocks, 'block')}, {count(rows, 'row')}: ok"]


def _print(invocation: Invocation, report: BackupReport, more: list[str]) -> None:
    if invocation.output:
        print_record(invocation, _record(report))
        return
    word = "would copy" if report.dry_run else "copied"
    for topic in report.topics:
        text = "up to date"
        if topic.segments or topic.is_new:
            text = f"{word} {count(topic.segments, 'segment')}, {count(topic.blocks, 'block')}"
            text += f", {format_size(topic.bytes)}; {count(topic.segments_kept, 'segment')} there already"
        note(invocation, f"{topic.topic}: {text}")
    note(invocation, f"{word} {format_size(report.bytes)} to {report.destination}")
    for line in more:
        note(invocation, line)


def _record(report: BackupReport) -> dict[str, Any]:
    topics = [
        {
            "topic": topic.topic,
            "is_new": topic.is_new,
            "segments": topic.segments,
            "segments_kept": topic.segments_kept,
            "blocks": topic.blocks,
            "bytes": topic.bytes,
            "rows": topic.rows,
            "heads": {str(number): head for number, head in topic.heads.items()},
        }
        for topic in report.topics
    ]
    return {
        "destination": str(report.destination),
        "log": report.log_id,
        "bytes": report.bytes,
        "dry_run": report.dry_run,
        "topics": topics,
    }
