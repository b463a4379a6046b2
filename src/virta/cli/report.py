"""How a failure looks to people, to scripts and to machines.

People read `error: …` and one `try: …` line on stderr; scripts read the exit
code; with `-o json` a machine reads `{"error": {"code", "message", "hint"}}`,
on stderr too, because stdout carries data and nothing else.
"""

from __future__ import annotations

import enum
import json
import re
import shlex
import sys
from collections.abc import Sequence

from virta import errors
from virta.cli.invocation import Invocation


class Exit(enum.IntEnum):
    """The exit codes of the `virta` command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4  # could not connect, or timed out
    DAMAGED = 5  # verification failed
    DENIED = 6
    CONFLICT = 7
    INTERRUPTED = 130  # Ctrl-C


# The first that fits decides, so a family stands after its members.
EXIT_CODES: tuple[tuple[type[errors.VirtaError], Exit], ...] = (
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.Conflict, Exit.CONFLICT),
    (errors.AlreadyExists, Exit.CONFLICT),
    (errors.Fenced, Exit.CONFLICT),
    (errors.Denied, Exit.DENIED),
    (errors.Locked, Exit.DENIED),
    (errors.UsageError, Exit.USAGE),
    (errors.Unreachable, Exit.UNREACHABLE),
    (errors.Timeout, Exit.UNREACHABLE),
    (errors.DamageError, Exit.DAMAGED),
)


def exit_code(error: errors.VirtaError) -> Exit:
    return next((code for family, code in EXIT_CODES if isinstance(error, family)), Exit.FAILED)


def report(invocation: Invocation, error: errors.VirtaError, arguments: Sequence[str] = ()) -> Exit:
    """Say what Virta raised; the place of a damage is part of the message."""
    message = str(error).removesuffix(f" ({error.hint})")
    correction = None if invocation.wants_json else _correction(message, error.hint, arguments)
    if correction is not None:
        question, command = correction
        first, newline, rest = message.partition("\n")
        say(invocation, f"{first} — {question}{newline}{rest}".rstrip(), code=error.code, hint=command)
    else:
        say(invocation, message, code=error.code, hint=error.hint)
    return exit_code(error)


_QUOTED = re.compile(r"""'([^']+)'|"([^"]+)\"""")


def _correction(message: str, hint: str | None, arguments: Sequence[str]) -> tuple[str, str] | None:
    """A "did you mean" and the command that was meant, when the wrong word was typed in it."""
    if hint is None or not hint.startswith("did you mean"):
        return None
    meant = _QUOTED.search(hint)
    if meant is None:
        return None
    right = meant.group(1) or meant.group(2)
    for wrong in (first or second for first, second in _QUOTED.findall(message)):
        for at, argument in enumerate(arguments):
            if _holds(argument, wrong):
                corrected = [*arguments[:at], argument.replace(wrong, right, 1), *arguments[at + 1 :]]
                return hint, shlex.join(["virta", *corrected])
    return None


def _holds(argument: str, word: str) -> bool:
    """Whether the word stands in the argument as a whole: `ordres` in `ordres@-10:`."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", argument) is not None


def say(invocation: Invocation, message: str, *, code: str, hint: str | None = None) -> None:
    """Write one error to stderr, in the form this invocation asked for."""
    if invocation.wants_json:
        text = json.dumps({"error": {"code": code, "message": message, "hint": hint}}, ensure_ascii=False)
    else:
        text = f"{_label(invocation, 'error', red=True)} {message}"
        if hint:
            text += f"\n{_label(invocation, 'try')}   {hint}"
    print(text, file=sys.stderr)


def _label(invocation: Invocation, word: str, *, red: bool = False) -> str:
    if not invocation.wants_color(sys.stderr):
        return f"{word}:"
    return f"\x1b[1;{31 if red else 36}m{word}:\x1b[0m"
