"""`virta doctor`: this machine and a log, checked; each finding with what cures it."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, quiet_option
from virta.cli.output import choose_form, note, print_record, print_records, target
from virta.cli.ranges import open_log
from virta.cli.report import Exit
from virta.cli.table import Layout
from virta.cli.verify import problem_lines

if TYPE_CHECKING:
    from virta.log import Log
    from virta.steward.doctor import DoctorReport


@click.command()
@click.option(
    "--repair", metavar="TOPIC", shell_complete=complete_topics, help="Cure what has a cure in this topic."
)
@click.option("--dry-run", is_flag=True, help="With --repair: say what was found, and cure nothing.")
@output_option("table", "json", "jsonl")
@quiet_option("Say nothing; only the exit code tells.")
@click.pass_context
def doctor(context: click.Context, repair: str | None, dry_run: bool) -> None:
    """Check this machine and a log; says how to cure what it finds. Exit 5 on damage.

    Looks at free space, limits, the file system, the clock and what crashes left. It reads
    no rows: `virta verify` does.

    \b
    Examples:
      virta doctor
      virta doctor -o json
      virta doctor --repair orders
    """
    invocation: Invocation = context.obj
    with open_log(invocation) as log:
        if repair is not None and not dry_run:
            for line in log.repair(repair) or ["nothing to repair"]:
                note(invocation, line)
        report = log.examine()
        if not invocation.quiet:
            _print(invocation, log, report)
    if not report.ok:
        context.exit(Exit.DAMAGED)


def _print(invocation: Invocation, log: Log, report: DoctorReport) -> None:
    form = choose_form(invocation)
    findings = [dataclasses.asdict(finding) for finding in report.findings]
    if form == "json":
        print_record(invocation, {"ok": report.ok, "checked": list(report.checked), "findings": findings})
        return
    if form == "jsonl":
        print_records(invocation, findings, key="message")
        return
    layout = Layout.of(invocation, True, {})
    lines = [layout.bold(str(log.path)), *(f"  {layout.dim('checked')}  {line}" for line in report.checked)]
    for finding in report.findings:
        lines += ["", *(line.removeprefix("       ") for line in problem_lines(layout, finding))]
    lines += ["", layout.good("nothing to complain about")] if not report.findings else []
    with target(None) as file:
        file.write("".join(line + "\n" for line in lines).encode())
    sys.stdout.flush()
