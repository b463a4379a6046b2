"""The shell of `virta sql`: queries over several lines, history, and completion behind TAB.

A query ends with `;`, a command begins with a dot. Ctrl-C drops what is being written, or
cancels what is running; Ctrl-D leaves.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from virta.cli.invocation import OUTPUTS, Invocation
from virta.cli.report import report
from virta.cli.sql import show
from virta.errors import UsageError, VirtaError

if TYPE_CHECKING:
    from virta.log import Log

PROMPT, MORE = "virta> ", "   ...> "
# Enough to find last month's query, little to read at every start.
_HISTORY_LINES = 2000
_KEYWORDS = """
    all and as asc avg between by case cast coalesce count cross date_trunc desc describe distinct
    else end exists explain false from full group having in inner interval is join left like limit
    max min not null now offset on or order outer over partition pivot right select sum summarize
    then timestamptz true union unnest using values when where window with
"""
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PLAIN = re.compile(r"[^\W\d]\w*")


def is_complete(text: str) -> bool:
    """Whether a `;` ends the text, outside of quotes and comments."""
    bare = _QUOTED.sub(" ", text)
    return bare.rstrip().endswith(";") and not re.search(r"['\"]|/\*", bare)


def history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "virta" / "sql_history"


class Shell:
    """Reads lines until they are a query or a command, and answers."""

    def __init__(self, invocation: Invocation, log: Log, *, external_access: bool = False) -> None:
        self._invocation = invocation
        self._log = log
        self._external_access = external_access
        self._written = ""
        self._columns: dict[str, list[str]] = {}
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            ".tables": (self._tables, "the topics"),
            ".schema": (self._schema, "TOPIC: its columns"),
            ".mode": (self._mode, f"FORM: {', '.join(OUTPUTS[:6])}"),
            ".help": (self._help, "this"),
            ".quit": (self._quit, "leave; so does Ctrl-D"),
        }

    def run(self) -> None:
        print("SQL over topics, as DuckDB speaks it; a query ends with ;   .help helps, Ctrl-D leaves")
        with _line_editing(self.complete):
            while True:
                try:
                    line = input(MORE if self._written else PROMPT)
                except KeyboardInterrupt:
                    self._written = ""
                    print()
                except EOFError:
                    print()
                    return
                else:
                    if not self.take(line):
                        return

    def take(self, line: str) -> bool:
        """A line that was written; False when it says to leave."""
        if not self._written and line.strip().startswith("."):
            return self._answered(lambda: self._command(line.strip()))
        self._written = f"{self._written}\n{line}" if self._written else line
        if not self._written.strip():
            self._written = ""
        elif is_complete(self._written):
            query, self._written = self._written, ""
            return self._answered(lambda: self._query(query))
        return True

    def _answered(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except EOFError:
            return False
        except VirtaError as error:
            report(self._invocation, error, [])
        except KeyboardInterrupt:
            print("\ncancelled", file=sys.stderr)
        return True

    def _query(self, query: str) -> None:
        show(self._invocation, self._log, query, None, external_access=self._external_access)

    # -- commands -----------------------------------------------------------------------------

    def _command(self, line: str) -> None:
        name, _, rest = line.rstrip(";").partition(" ")
        if name not in self._commands:
            raise UsageError(f"there is no command {name}", hint=".help names them")
        self._commands[name][0](rest.strip().strip('"'))

    def _tables(self, _: str) -> None:
        for name in self._log.topics():
            print(name)

    def _schema(self, name: str) -> None:
        if not name:
            raise UsageError("which topic?", hint=".schema TOPIC")
        quoted = name.replace('"', '""')
        self._query(f'select column_name, column_type from (describe "{quoted}")')

    def _mode(self, form: str) -> None:
        if form not in OUTPUTS[:6]:
            raise UsageError(f"there is no form {form!r} here", hint=f"forms are {', '.join(OUTPUTS[:6])}")
        self._invocation.output = form

    def _help(self, _: str) -> None:
        for name, (_work, text) in self._commands.items():
            print(f"{name:<9} {text}")

    def _quit(self, _: str) -> None:
        raise EOFError

    # -- completion -----------------------------------------------------------------------------

    def complete(self, begun: str, line: str) -> list[str]:
        """What a word that was begun may become."""
        if line.lstrip().startswith(".") and not self._written:
            known = [*self._commands, *OUTPUTS[:6], *self._log.topics()]
        else:
            known = [*self._names(f"{self._written}\n{line}"), *_KEYWORDS.split()]
        folded = begun.casefold()
        return sorted({name for name in known if name.casefold().startswith(folded)})

    def _names(self, text: str) -> Iterator[str]:
        """Topics, and the columns of those that are named already; of all while there is none."""
        topics = self._log.topics()
        yield from map(_as_written, topics)
        named = [name for name in topics if name in text]
        for name in named or topics[:20]:
            if name not in self._columns:
                self._columns[name] = ["_offset", "_timestamp", *self._log.topic(name).schema.names]
            yield from map(_as_written, self._columns[name])


def _as_written(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    quoted = name.replace('"', '""')
    return f'"{quoted}"'


@contextlib.contextmanager
def _line_editing(complete: Callable[[str, str], list[str]]) -> Iterator[None]:
    """Editing, history and completion, where Python was built with readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    found: list[str] = []

    def completer(begun: str, number: int) -> str | None:
        nonlocal found
        if number == 0:
            try:
                found = complete(begun, readline.get_line_buffer())
            except Exception:
                found = []  # TAB is no place for errors
        return found[number] if number < len(found) else None

    readline.set_completer(completer)
    readline.set_completer_delims(" \t\n,;()=<>+-*/")
    readline.parse_and_bind(
        "bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete"
    )
    file = history_file()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        readline.set_history_length(_HISTORY_LINES)
        if file.exists():
            readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            readline.write_history_file(file)
            file.chmod(0o600)
