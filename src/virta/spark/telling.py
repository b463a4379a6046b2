"""Errors as those see them who asked Spark: one line and what helps, no stack of frames.

What goes wrong in a worker reaches the caller as text: PySpark puts the worker's whole
stack into the message of its own exception, unless it is told to leave it out. `plainly`
tells it so for our errors, whose message says what is wrong; other errors keep their stack.
`told` makes one of ours of what Spark raised, for programs that want to print or catch it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from virta import errors
from virta.errors import UnavailableError, UsageError, VirtaError

P = ParamSpec("P")
T = TypeVar("T")

# PySpark's own switch, read where a worker reports why it ends: it ends after every error, so
# what is set here never reaches the error of somebody else's code.
_HIDDEN = "SPARK_HIDE_TRACEBACK"
_RUNTIME, _WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"


def plainly(function: Callable[P, T]) -> Callable[P, T]:
    """The function, an entrance for Spark; our errors leave it without their frames."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generated(*arguments: P.args, **named: P.kwargs) -> Iterator[Any]:
            try:
                yield from function(*arguments, **named)
            except VirtaError:
                _hide()
                raise

        return generated  # type: ignore[return-value]

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except VirtaError:
            _hide()
            raise

    return called


def _hide() -> None:
    if os.environ.get(_RUNTIME) == _WORKER:
        os.environ[_HIDDEN] = "1"


# -- from Spark's exceptions back to ours --------------------------------------------------------

# To the end of what it says, which may be several lines; what follows is Spark's.
_OURS = re.compile(
    r"virta\.errors\.(\w+): (.+?)(?=\s*(?:SQLSTATE: \w+|\n\n|\n===|\nJVM stacktrace|\n\tat |\Z))", re.DOTALL
)
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b.*: ")
# What Spark says when something around it is not as it should be, what that means, and the cure.
_KNOWN: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)"),
        "the workers run Python {0} and the driver {1}",
        "set PYSPARK_PYTHON to a Python of the driver's version on every worker",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH.*?worker.*?(\d\.\d+).*?driver.*?(\d\.\d+)", re.DOTALL),
        "the workers run Python {0} and the driver {1}",
        "set PYSPARK_PYTHON to a Python of the driver's version on every worker",
    ),
    (
        re.compile(r'Cannot run program "([^"]*)"'),
        "the workers cannot start Python: there is no {0}",
        "set PYSPARK_PYTHON to the Python of the workers",
    ),
    (
        re.compile(r"No module named '?(virta|pyspark_virta|pyarrow)"),
        "the Python of the workers has no {0}",
        "pip install 'virta[spark]' there, or set PYSPARK_PYTHON to a Python that has it",
    ),
    (
        re.compile(r"\[DATA_SOURCE_NOT_FOUND\].*?\bvirta\b"),
        'Spark does not know format("virta")',
        "pip install 'virta[spark]' for the Python that the driver's PYSPARK_PYTHON names",
    ),
    (
        re.compile(r"java\.lang\.OutOfMemoryError"),
        "Spark ran out of memory",
        "give it more: session(memory='4g'), or --driver-memory and --executor-memory",
    ),
    (
        re.compile(r"All masters are unresponsive"),
        "Spark's master does not answer",
        "look whether it runs and the address is right",
    ),
    (
        re.compile(r"ClassNotFoundException: (\S+)"),
        "Spark does not find the Java class {0}",
        "name what holds it in spark.jars or spark.jars.packages",
    ),
)


def told(error: BaseException) -> VirtaError:
    """What Spark raised as an error of ours: the worker's own, a known mishap, or its first line."""
    if isinstance(error, VirtaError):
        return error
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, said = ours[-1]
        return _made(getattr(errors, name, UsageError), said)
    for pattern, message, hint in _KNOWN:
        found = pattern.search(text)
        if found is not None:
            return UnavailableError(message.format(*found.groups()), hint=hint)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return UnavailableError(
        f"Spark could not do it: {(python[-1:] or lines[:1] or [type(error).__name__])[0]}"
    )


def _made(kind: Any, said: str) -> VirtaError:
    """The hint stands in brackets at the end of what a worker's error says."""
    said = said.strip()
    message, hint = said, None
    if said.endswith(")"):
        depth = 0
        for at in range(len(said) - 1, -1, -1):
            depth += (said[at] == ")") - (said[at] == "(")
            if depth == 0:
                message, hint = said[:at].strip(), said[at + 1 : -1]
                break
    try:
        made = kind(message, hint=hint)
    except TypeError:
        return UsageError(message, hint=hint)
    assert isinstance(made, VirtaError)
    return made
