"""The front door of the `virta` command: its table of commands, and how a run ends.

It may not know Arrow, numpy or the log itself: commands are imported when they
are called, so `virta --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from virta import __version__
from virta.cli.invocation import Invocation, shared_options
from virta.cli.lazy import Entry, LazyGroup
from virta.cli.report import Exit, report, say
from virta.errors import VirtaError

EXAMPLES = """\b
Examples:
  virta demo
  virta append orders rows.jsonl
  virta tail orders --since -5m -o jsonl
"""

SECTIONS = {
    "Start": {
        "demo": Entry(
            "virta.cli.demo.command:demo", "See it work: a log with sample data, and what to do next."
        ),
        "console": Entry("virta.cli.console:console", "Look at a log in the browser, live."),
        "context": Entry("virta.cli.context:context", "Name logs, so that -l @prod finds them."),
        "doctor": Entry(
            "virta.cli.doctor:doctor", "Check this machine and a log; says how to cure what it finds."
        ),
        "completion": Entry(
            "virta.cli.completion:completion", "Completion of commands and names for your shell."
        ),
    },
    "Serve": {
        "serve": Entry("virta.cli.serve:serve", "Serve a log directory over TCP."),
    },
    "Topics": {
        "topic": Entry("virta.cli.topic:topic", "List, create, show, alter, lock or remove topics."),
    },
    "Write": {
        "append": Entry("virta.cli.append:append", "Append rows from files or a pipe."),
        "upsert": Entry("virta.cli.upsert:upsert", "Set columns of rows by their key; the others stay."),
        "delete": Entry("virta.cli.upsert:delete", "Delete the rows of keys from an update topic."),
        "gen": Entry("virta.cli.gen:gen", "Make up rows from a template or a schema."),
    },
    "Read": {
        "read": Entry("virta.cli.read:read", "Read a range of rows and stop."),
        "tail": Entry("virta.cli.tail:tail", "Read what is there, then what comes."),
        "top": Entry("virta.cli.top:top", "Watch all topics: how fast they go, who is behind."),
        "group": Entry("virta.cli.group:group", "Consumer groups: where they stand; put one elsewhere."),
        "sql": Entry("virta.cli.sql:sql", "Ask in SQL over any topics; a shell on a terminal."),
        "table": Entry("virta.cli.current:table", "The newest row of each key, now or at a moment."),
        "get": Entry("virta.cli.current:get", "The row of a key."),
        "changes": Entry("virta.cli.changes:changes", "What was inserted, updated and deleted."),
        "diff": Entry("virta.cli.changes:diff", "What differs between two topics or moments, by key."),
    },
    "Trust": {
        "verify": Entry("virta.cli.verify:verify", "Check every byte against the hash chain."),
        "block": Entry("virta.cli.block:block", "List blocks, show one, export its bytes."),
    },
    "Exchange": {
        "export": Entry("virta.cli.export:export", "Write rows to Parquet, Arrow, CSV or JSON lines."),
        "import": Entry("virta.cli.export:import_", "Append the rows of files, each exactly once."),
    },
    "Access": {
        "login": Entry("virta.cli.login:login", "Log in to a broker, and keep how."),
        "logout": Entry("virta.cli.login:logout", "Forget how to log in to a broker."),
        "user": Entry("virta.cli.user:user", "List, add, change or remove the users of a log's broker."),
        "token": Entry("virta.cli.token:token", "List, create or revoke API tokens."),
        "permission": Entry("virta.cli.permission:permission", "List, add, remove or try out permissions."),
    },
    "Care": {
        "pipeline": Entry(
            "virta.cli.pipeline:pipeline", "Move rows between files, tables and topics; mask copies."
        ),
        "backup": Entry("virta.cli.backup:backup", "Copy what is new in a log into a backup, verified."),
        "restore": Entry("virta.cli.backup:restore", "Make a log from a backup, and verify it."),
        "steward": Entry("virta.cli.steward:steward", "Remove what retention lets go of, once or for ever."),
        "bench": Entry("virta.cli.bench:bench", "Measure appending and reading on this machine."),
    },
}

# Packages that may be missing, and the extra that brings them.
EXTRAS = {
    "duckdb": "sql",
    **dict.fromkeys(("jinja2", "python_multipart", "starlette", "uvicorn", "websockets"), "console"),
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXAMPLES,
)
@click.version_option(__version__, "-V", "--version", message="virta %(version)s")
@click.pass_context
def virta(context: click.Context) -> None:
    """An event log in a directory: append to it, tail it, verify it."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


virta.params[:0] = shared_options()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give the exit code; every way a run can end is here."""
    if "_VIRTA_COMPLETE" in os.environ:
        virta.main(prog_name="virta")
    invocation = Invocation()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(invocation, arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _end_quietly()
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except VirtaError as error:
        return report(invocation, error, arguments)
    except click.ClickException as error:
        return _misused(invocation, error)
    except ModuleNotFoundError as error:
        return _missing_package(invocation, error)
    except OSError as error:
        _let_go_of_stdout()
        return _system_error(invocation, error)


def _run(invocation: Invocation, arguments: list[str]) -> int:
    # Not `virta.main`: it would answer a broken pipe and Ctrl-C in its own way.
    try:
        with virta.make_context("virta", arguments, obj=invocation) as context:
            virta.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return Exit.OK


def _misused(invocation: Invocation, error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context else None
    say(invocation, error.format_message(), code="usage", hint=hint)
    return error.exit_code


def _missing_package(invocation: Invocation, error: ModuleNotFoundError) -> int:
    extra = EXTRAS.get(error.name or "")
    if extra is None:
        raise error
    say(
        invocation,
        f"this needs {error.name}, which is not installed",
        code="unavailable",
        hint=f"pip install 'virta[{extra}]'",
    )
    return Exit.FAILED


def _system_error(invocation: Invocation, error: OSError) -> int:
    place = f": {error.filename}" if error.filename else ""
    say(invocation, f"{error.strerror or error}{place}", code="system")
    return Exit.FAILED


def _end_quietly() -> int:
    """Whoever read our output has seen enough (`virta read … | head`)."""
    _let_go_of_stdout()
    return Exit.OK


def _let_go_of_stdout() -> None:
    """The interpreter flushes stdout once more at exit; where that cannot work, let it go nowhere."""
    try:
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    raise SystemExit(main())
