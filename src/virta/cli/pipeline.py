"""`virta pipeline`: rows to where they are wanted, each once, masked where they go down."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virta.cli.invocation import Invocation, output_option, output_options, quiet_option
from virta.cli.output import choose_form, note, print_record, print_records
from virta.cli.progress import Progress
from virta.cli.report import Exit
from virta.cli.text import count
from virta.cli.upkeep import compact, erase, verify
from virta.errors import UsageError
from virta.requests import parse_duration

if TYPE_CHECKING:
    from virta.pipelines import Pipeline, Preview, RunReport, StatementCheck, Step

Function = TypeVar("Function", bound=Callable[..., Any])
_FLOWS = ("flow", "source", "sink", "batches", "read", "rows", "finished_earlier")
_STATES = ("flow", "source", "sink", "batches", "read", "rows", "pending")
_COLUMNS = ("flow", "column", "before", "mask", "after")


@click.group(no_args_is_help=True)
def pipeline() -> None:
    """Move rows between files, tables and topics, each exactly once, masked where they go down.

    \b
    Examples:
      virta pipeline check pipeline.toml
      virta pipeline preview pipeline.toml
      virta pipeline run pipeline.toml
    """


for _command in (verify, compact, erase):
    pipeline.add_command(_command)


def _file(function: Function) -> Function:
    return click.argument("file", metavar="FILE", type=click.Path(path_type=Path))(function)


def _engine(function: Function) -> Function:
    for option in (
        click.option(
            "--flow", "flows", metavar="NAME", multiple=True, help="Only this flow; may be repeated."
        ),
        click.option(
            "--engine",
            type=click.Choice(("spark", "local")),
            help="spark, or local: in this process, without Java.",
        ),
        click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]"),
    ):
        function = option(function)
    return function


def _load(
    invocation: Invocation, file: Path, engine: str | None = None, master: str | None = None
) -> Pipeline:
    from virta.pipelines import Pipeline  # Arrow is not for --help

    changes = {name: value for name, value in (("engine", engine), ("master", master)) if value is not None}
    return Pipeline.load(file, log=invocation.log, **changes)


# -- running ----------------------------------------------------------------------------------------


@pipeline.command()
@_file
@_engine
@click.option("--continuous", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "--interval", metavar="TIME", default="1s", show_default=True, help="How often to look for news."
)
@output_options("the flows")
@click.pass_obj
def run(
    invocation: Invocation,
    file: Path,
    flows: tuple[str, ...],
    engine: str | None,
    master: str | None,
    continuous: bool,
    interval: str,
) -> None:
    """Run a pipeline: all that is there now, or for ever; it goes on where it stopped.

    Killed at any point, run it again: what was begun is finished, and no row is there twice.
    Each run is noted in `__events` of the log it writes to, or reads from.

    \b
    Examples:
      virta pipeline run pipeline.toml
      virta pipeline run pipeline.toml --engine local --flow orders
      virta pipeline run pipeline.toml --continuous --interval 10s
    """
    pause = parse_duration(interval)
    loaded = _load(invocation, file, engine, master)
    with Progress(invocation, "running") as progress:
        watch = _advance(progress)
        if not continuous:
            report = loaded.run(flows=flows, watch=watch)
            progress.clear()
            _print(invocation, report)
            return
        for report in loaded.run_forever(interval=pause, flows=flows, watch=watch):
            progress.clear()
            _print(invocation, report)
            sys.stdout.flush()


def _advance(progress: Progress) -> Callable[[Step], None]:
    def watch(step: Step) -> None:
        if step.what == "committed":
            progress.advance(rows=step.rows)

    return watch


def _print(invocation: Invocation, report: RunReport) -> None:
    records = [{name: getattr(each, name) for name in _FLOWS} for each in report.flows]
    print_records(
        invocation, records, key="flow", names=_FLOWS, shown={"read": count, "rows": count, "batches": count}
    )
    seconds = (report.ended_us - report.began_us) / 1e6
    note(
        invocation,
        f"{report.pipeline}: {count(report.rows, 'row')} in {seconds:.1f}s"
        + (f"; statement in {report.statement}" if report.statement else ""),
    )


# -- looking ----------------------------------------------------------------------------------------


@pipeline.command()
@_file
@_engine
@output_options("the flows")
@click.pass_obj
def check(
    invocation: Invocation, file: Path, flows: tuple[str, ...], engine: str | None, master: str | None
) -> None:
    """Check a pipeline without reading a row, and show what becomes of each column.

    \b
    Examples:
      virta pipeline check pipeline.toml
      virta pipeline check pipeline.toml --flow orders
      virta pipeline check pipeline.toml -o json
    """
    checked = _load(invocation, file, engine, master).check(flows=flows)
    records = []
    for each in checked:
        if each.masked:
            records += [
                {
                    "flow": each.flow,
                    "column": one.path,
                    "before": one.before,
                    "mask": one.method,
                    "after": one.after,
                }
                for one in each.masked
            ]
        elif each.columns is not None:
            records += [
                {
                    "flow": each.flow,
                    "column": field.name,
                    "before": str(field.type),
                    "mask": None,
                    "after": str(field.type),
                }
                for field in each.columns
            ]
        else:
            row = dict.fromkeys(_COLUMNS)
            records.append({**row, "flow": each.flow})
    print_records(invocation, records, key="flow", names=_COLUMNS)
    for each in checked:
        note(invocation, f"{each.flow}: {each.source} → {each.sink}")


@pipeline.command()
@_file
@output_options("the flows")
@click.pass_obj
def show(invocation: Invocation, file: Path) -> None:
    """Show how far each flow of a pipeline is.

    \b
    Examples:
      virta pipeline show pipeline.toml
      virta pipeline show pipeline.toml -o json
      virta pipeline show pipeline.toml --columns flow,rows
    """
    records = [
        {
            "flow": each.flow,
            "source": each.source,
            "sink": each.sink,
            "batches": each.done.number,
            "read": each.done.read,
            "rows": each.done.rows,
            "pending": each.pending,
        }
        for each in _load(invocation, file).show()
    ]
    print_records(invocation, records, key="flow", names=_STATES, shown={"read": count, "rows": count})


@pipeline.command()
@_file
@click.option("--flow", "flows", metavar="NAME", multiple=True, help="Only this flow; may be repeated.")
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=10, show_default=True, help="So many of each flow."
)
@output_option("table", "json", "jsonl", "md")
@click.pass_obj
def preview(invocation: Invocation, file: Path, flows: tuple[str, ...], rows: int) -> None:
    """Show a few rows of each flow before and after; nothing is written.

    \b
    Examples:
      virta pipeline preview pipeline.toml
      virta pipeline preview pipeline.toml --flow users --rows 3
      virta pipeline preview pipeline.toml -o jsonl
    """
    shown = _load(invocation, file, "local").preview(rows=rows, flows=flows)
    records = [record for each in shown for record in _sides(each)]
    print_records(invocation, records, key="flow", names=("flow", "row", "column", "before", "after"))


def _sides(each: Preview) -> list[dict[str, Any]]:
    """One line for each value, so that before and after stand side by side."""
    before, after = each.before.to_pylist(), each.after.to_pylist()
    names = [name for name in each.before.column_names if not name.startswith("_")]
    names += [name for name in each.after.column_names if name not in names and not name.startswith("_")]
    records = []
    for number in range(max(len(before), len(after))):
        old = before[number] if number < len(before) else {}
        new = after[number] if number < len(after) else {}
        records += [
            {
                "flow": each.flow,
                "row": number,
                "column": name,
                "before": _text(old.get(name)),
                "after": _text(new.get(name)),
            }
            for name in names
        ]
    return records


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


# -- keys and statements ------------------------------------------------------------------------------


@pipeline.command()
@_file
@click.option("--signing", is_flag=True, help="A key that signs statements; its public half is printed.")
@quiet_option("Say nothing.")
@click.pass_obj
def key(invocation: Invocation, file: Path, signing: bool) -> None:
    """Make a masking key, or a signing key, in a file that only you can read.

    \b
    Examples:
      virta pipeline key ~/.config/virta/masking.key
      virta pipeline key --signing signing.pem > signing.pub
      virta pipeline key masking.key -q
    """
    from virta.pipelines.statement import new_signing_key, write_secret
    from virta.security.masking.key import MaskingKey, new_secret

    place = file.expanduser()
    if signing:
        print(new_signing_key(place), end="")
        note(invocation, f"{place} signs; what was printed checks")
        return
    secret = new_secret()
    write_secret(place, f"{secret}\n".encode())
    note(
        invocation,
        f"{place} holds the masking key {MaskingKey.of(secret).fingerprint}; keep it with the originals",
    )


@pipeline.command()
@_file
@click.option(
    "--public-key", metavar="FILE", type=click.Path(path_type=Path), help="The key you trust, in PEM."
)
@click.option("--key-file", metavar="FILE", help="The masking key, for statements signed with it.")
@click.option("--key-env", metavar="NAME", help="The same, from the environment.")
@click.option(
    "--pipeline",
    "written",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Its policy must be the one.",
)
@click.option("--source", metavar="ADDRESS", help="Hold it against the log that was copied from.")
@click.option("--target", metavar="ADDRESS", help="Hold it against the copy, every byte of it.")
@output_option("table", "json", "jsonl", "md")
@click.pass_context
def statement(
    context: click.Context,
    file: Path,
    public_key: Path | None,
    key_file: str | None,
    key_env: str | None,
    written: Path | None,
    source: str | None,
    target: str | None,
) -> None:
    """Check the statement of a de-promotion: who signed it, and whether the logs still are what it says.

    Exit code 5 where anything does not hold.

    \b
    Examples:
      virta pipeline statement statement.json --public-key signing.pub
      virta pipeline statement statement.json --public-key signing.pub --target @dev
      virta pipeline statement statement.json --key-env VIRTA_MASKING_KEY --pipeline pipeline.toml
    """
    from virta.pipelines import check_statement, load_statement
    from virta.pipelines.demotion import policy_of
    from virta.security.masking import MaskingKey

    if key_file and key_env:
        raise UsageError("--key-file and --key-env cannot go together")
    key = MaskingKey.from_file(key_file) if key_file else None
    key = MaskingKey.from_environment(key_env) if key_env else key
    checked = check_statement(
        load_statement(file),
        public_key=public_key,
        masking_key=key,
        policy_hash=None if written is None else policy_of(written).hash(),
        source=source,
        target=target,
    )
    _print_check(context.obj, checked)
    if not checked.ok:
        context.exit(Exit.DAMAGED)


def _print_check(invocation: Invocation, checked: StatementCheck) -> None:
    """A line for each thing that was looked at; for programs one object."""
    if choose_form(invocation) in ("table", "md"):
        told = (("yes", checked.passed), ("NO", checked.failed), ("unknown", checked.notices))
        records = [
            {"holds": word, "what": text.removeprefix("not so: ")} for word, texts in told for text in texts
        ]
        print_records(invocation, records, key="what", names=("holds", "what"))
        return
    record = {"ok": checked.ok, "passed": list(checked.passed), "failed": list(checked.failed)}
    print_record(invocation, {**record, "notices": list(checked.notices)})
