"""The reference of every command, written from the commands themselves.

    python -m virta.cli.reference > docs/commands.md

A test compares the two, so the page cannot go stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click

from virta.cli.invocation import Invocation, shared_options
from virta.cli.main import virta
from virta.cli.report import Exit

_INTRODUCTION = """\
# Commands

*Written by `python -m virta.cli.reference` from the commands themselves; a test holds the two together.*

Data goes to stdout and nothing else does; messages, progress and errors go to stderr. A terminal gets
tables, a pipe gets `jsonl`. An error is one `error:` line and, where there is one, a `try:` line; with
`-o json` it is `{"error": {"code", "message", "hint"}}`.

## The log

`-l ADDRESS`, else `$VIRTA_LOG`, else the context of `$VIRTA_CONTEXT`, else the one in use, else
`$XDG_DATA_HOME/virta`. An address is a directory, or `@name` for a [context](#virta-context). It goes
before or after the command's name.
Only `topic create`, `gen --create`, `import --create` and `demo` make a log that is not there.

## Ranges

`topic@from:to`, either side left out; `to` is not included. A single place without `:` is one row, or
one block.

| written | is |
|---|---|
| `orders@100:200` | offsets 100 to 199 |
| `orders@-10:` | the last ten rows |
| `orders@-15m:` | rows of the last fifteen minutes; also `-2h30m`, `-7d` |
| `orders@2026-11-18T10:00Z:` | rows from that moment on; without a zone it is UTC |
| `orders@:end` | up to the end as it is now |
| `orders@#3f9c1a2b` | the rows of that block; as an end, everything up to and with it |
| `orders@t1…` | from a reader's token |

## Forms

| `-o` | is |
|---|---|
| `table`, `md` | for people; on a terminal cut to its width, elsewhere never |
| `jsonl`, `json` | lossless: one object per line, or one array |
| `csv` | null is an empty cell, empty text is `""` |
| `tsv` | null is `\\N`; tab, newline, return and backslash are `\\t`, `\\n`, `\\r`, `\\\\` |
| `parquet`, `arrow` | columns as they are stored; not to a terminal |

In JSON, values are written so that `virta tail a -o jsonl | virta append b` loses nothing:

| column | JSON |
|---|---|
| integers, bool, text | as they are |
| float | a number; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| decimal | text: `"12.50"` (numbers are taken too, with all their digits) |
| datetime | text: `"2026-11-18T10:00:00.123456Z"`; without `Z` where the column has no zone |
| date, time | text: `"2026-11-18"`, `"10:00:00.000001"` |
| duration | text in seconds: `"90.5s"` |
| bytes | their text where they are valid UTF-8, else `{"$binary": "<base64>"}` |
| uuid | text |
| list, struct | array, object |
| map | object where the keys are text and differ, else an array of pairs |

`_offset` and `_timestamp` are printed, and ignored by `append`: rows get new ones.

"""

# What click says of a number's bounds, beside its default.
_BOUNDS = re.compile(r" \[[^\]:]*<?=x[^\]]*\]| \[x>=[^\]]*\]|; [^\]]*x[^\]]*(?=\])")

_MEANINGS = {
    Exit.OK: "done; also when whoever read the output left early",
    Exit.FAILED: "failed: the disk, the system, a missing package",
    Exit.USAGE: "the command or its input is wrong",
    Exit.NOT_FOUND: "no such log, topic, row, block or column",
    Exit.UNREACHABLE: "could not connect, or timed out",
    Exit.DAMAGED: "verification failed, or what was to be read is damaged",
    Exit.DENIED: "not allowed, or locked",
    Exit.CONFLICT: "the log stands elsewhere than expected, or the name is taken",
    Exit.INTERRUPTED: "Ctrl-C",
}


def reference() -> str:
    """The whole page."""
    return "".join((_INTRODUCTION, *_exit_codes(), *_for_all(), *_commands())).rstrip() + "\n"


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n\n| code | means |\n|---|---|\n"
    for code, meaning in _MEANINGS.items():
        yield f"| {int(code)} | {meaning} |\n"
    yield "\n"


def _for_all() -> Iterator[str]:
    yield "## Flags of every command\n\n"
    with click.Context(virta, info_name="virta") as context:
        yield from _table(shared_options(), context)
    yield "| `-h, --help` | The command's own help. |\n\n"


def _commands() -> Iterator[str]:
    with click.Context(virta, info_name="virta", obj=Invocation()) as context:
        for title, section in virta.sections.items():
            yield f"## {title}\n\n"
            for name in section:
                command = virta.get_command(context, name)
                assert command is not None
                yield from _command(command, name, context)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    with click.Context(command, info_name=name, parent=parent) as context:
        words = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        yield f"### {context.command_path}\n\n"
        if not isinstance(command, click.Group):
            yield f"`{' '.join([context.command_path, *words])}`\n\n"
        yield from _text(command.help or "")
        own = [option for option in command.params if _is_own(option)]
        if own:
            yield from _table(own, context)
            yield "\n"
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                yield from _command(command.commands[child], child, context)


def _is_own(parameter: click.Parameter) -> bool:
    shared = {option.name for option in shared_options()}
    return isinstance(parameter, click.Option) and parameter.name not in shared


def _text(text: str) -> Iterator[str]:
    """The words of the help, then its examples as code."""
    words, _, examples = text.replace("\b\n", "").partition("Examples:\n")
    yield _joined(words)
    lines = "\n".join(line.strip() for line in examples.strip().splitlines())
    yield f"```sh\n{lines}\n```\n\n"


def _joined(words: str) -> str:
    """Paragraphs on one line each."""
    paragraphs = (" ".join(part.split()) for part in words.strip().split("\n\n"))
    return "\n\n".join(paragraphs) + "\n\n"


def _table(options: list[click.Parameter] | list[click.Option], context: click.Context) -> Iterator[str]:
    yield "| flag | |\n|---|---|\n"
    for option in options:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            flags, meaning = (part.replace("|", "\\|") for part in record)
            yield f"| `{flags}` | {_BOUNDS.sub('', ' '.join(meaning.split()))} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
