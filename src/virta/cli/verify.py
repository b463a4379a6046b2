"""`virta verify`: every byte against the hash chain; exit 5 when something is not what was written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, quiet_option
from virta.cli.output import choose_form, print_record, target
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.report import Exit
from virta.cli.table import Layout
from virta.cli.text import count
from virta.errors import UsageError
from virta.exchange.sinks import to_json
from virta.requests import format_moment, format_size

if TYPE_CHECKING:
    from virta.log import Log
    from virta.types import Problem, Receipt, VerifyReport

_REWRITES = ("compacted", "erased", "joined")
# A topic that is compacted for years has many; all of them are in the JSON.
_SHOWN_RECEIPTS = 5


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.option(
    "--against",
    metavar="HEAD",
    multiple=True,
    help="A head noted earlier must be in the history: finds what was rewritten or cut off.",
)
@output_option("table", "json", "jsonl")
@quiet_option("Say nothing; only the exit code tells.")
@click.pass_context
def verify(context: click.Context, topic: str | None, against: tuple[str, ...]) -> None:
    """Check every byte of a topic, or of all, against the hash chain; exit 5 on damage.

    Names the file, position and offset of what is wrong, and up to where rows can still be
    trusted. Writers and readers go on meanwhile.

    \b
    Examples:
      virta verify
      virta verify orders -o json
      virta verify orders --against 3f9c1a2b…
    """
    invocation: Invocation = context.obj
    if against and topic is None:
        raise UsageError(
            "--against needs the topic whose head it is", hint="virta verify TOPIC --against HEAD"
        )
    with open_log(invocation) as log:
        names = [topic] if topic is not None else log.topics()
        reports = {name: _verify(invocation, log, name, against) for name in names}
        print_reports(invocation, reports)
    if not all(report.ok for report in reports.values()):
        context.exit(Exit.DAMAGED)


def _verify(invocation: Invocation, log: Log, name: str, against: tuple[str, ...]) -> VerifyReport:
    topic = log.topic(name)
    total = topic.stats().bytes
    with Progress(invocation, f"verifying {name}", total_bytes=total) as progress:
        seen = 0

        def advance(step: Any) -> None:
            nonlocal seen
            progress.advance(bytes=step.bytes - seen)
            seen = step.bytes

        reports = [topic.verify(against=head, progress=advance) for head in against or (None,)]
    return reports[0] if len(reports) == 1 else _all_heads(reports)


def _all_heads(reports: list[VerifyReport]) -> VerifyReport:
    """One walk's figures with the problems of all: each head was looked for in a walk of its own."""
    problems = tuple(dict.fromkeys(problem for report in reports for problem in report.problems))
    return dataclasses.replace(reports[0], problems=problems)


# -- saying it --------------------------------------------------------------------------------


def as_record(name: str, report: VerifyReport) -> dict[str, Any]:
    return {
        "topic": name,
        "ok": report.ok,
        "blocks": report.blocks,
        "rows": report.rows,
        "bytes": report.bytes,
        "heads": {str(number): head for number, head in report.heads.items()},
        "trustworthy_until": {
            str(number): offset for number, offset in (report.trustworthy_until or {}).items()
        },
        "receipts": [dataclasses.asdict(receipt) for receipt in report.receipts],
        "problems": [problem_record(problem) for problem in report.problems],
    }


def problem_record(problem: Problem) -> dict[str, Any]:
    return dataclasses.asdict(problem)


def print_reports(invocation: Invocation, reports: Mapping[str, VerifyReport]) -> None:
    if invocation.quiet:
        return
    form = choose_form(invocation)
    records = [as_record(name, report) for name, report in reports.items()]
    if form == "json":
        print_record(invocation, {"ok": all(record["ok"] for record in records), "topics": records})
        return
    with target(invocation.out) as file:
        if form == "jsonl":
            lines = [to_json(record) for record in records]
        else:
            layout = Layout.of(invocation, True, {})
            lines = [line for name, report in reports.items() for line in lines_of(layout, name, report)]
            lines = lines or ["no topics to verify"]
        file.write("".join(line + "\n" for line in lines).encode())


def lines_of(layout: Layout, name: str, report: VerifyReport) -> list[str]:
    """The report for people."""
    sizes = f"{count(report.blocks, 'block')}, {count(report.rows, 'row')}, {format_size(report.bytes)}"
    mark = layout.good("ok     ") if report.ok else layout.bad("DAMAGED")
    lines = [f"{mark}  {layout.bold(name)}  {sizes}"]
    for number, head in report.heads.items():
        partition = f" of partition {number}" if len(report.heads) > 1 else ""
        lines.append(f"         {layout.dim('head' + partition)}  {head}")
    lines += receipt_lines(layout, report.receipts)
    for problem in report.problems:
        lines += ["", *problem_lines(layout, problem)]
    if not report.ok and report.trustworthy_until:
        lines.append("")
        for number, offset in report.trustworthy_until.items():
            partition = f"partition {number}: " if len(report.trustworthy_until) > 1 else ""
            lines.append(f"         {partition}{_trust(offset)}")
    return lines


def receipt_lines(layout: Layout, receipts: Sequence[Receipt]) -> list[str]:
    """What was removed or rewritten, the newest first, as far as it fits."""
    lines = []
    for receipt in reversed(receipts[-_SHOWN_RECEIPTS:]):
        word = "removed" if receipt.reason not in _REWRITES else receipt.reason
        reason = f" by {receipt.reason}" if word == "removed" else ""
        gone = f", {count(receipt.rows_removed, 'row')} less" if receipt.rows_removed else ""
        where = f"offsets {receipt.from_offset} to {receipt.to_offset - 1}{reason}{gone}"
        lines.append(f"         {layout.dim(word)}  {where}, {format_moment(receipt.timestamp_us)}")
    if len(receipts) > _SHOWN_RECEIPTS:
        lines.append(f"         {layout.dim(f'and {len(receipts) - _SHOWN_RECEIPTS} more (-o json)')}")
    if receipts:
        text = "of these offsets the chain vouches for what is there, not for what went"
        lines.append(f"         {layout.dim(text)}")
    return lines


def _trust(offset: int) -> str:
    if offset == 0:
        return "no row can be trusted"
    return f"rows before offset {offset} are what was written"


def problem_lines(layout: Layout, problem: Problem) -> list[str]:
    label = layout.bad(problem.severity) if problem.severity == "damage" else layout.warn(problem.severity)
    lines = [f"         {label}: {problem.message}"]
    places = (("file", problem.file), ("position", problem.position), ("offset", problem.offset))
    lines += [
        f"           {layout.dim(word.ljust(8))}  {value}" for word, value in places if value is not None
    ]
    if problem.cure:
        lines.append(f"           {layout.dim('try'.ljust(8))}  {problem.cure}")
    return lines
