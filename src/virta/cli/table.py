"""Tables and lists of fields for people.

The first rows settle the widths, so a tail can print each row as it comes. On a
terminal a table is cut to its width; in a pipe or a file nothing is ever cut.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from virta.cli.invocation import Invocation
from virta.cli.text import visible

# Rows that are looked at before the widths are settled: enough to be typical, little to wait for.
SAMPLE_ROWS = 256
# The least a column is cut to before the line itself is.
_LEAST = 6
# What a cell of free text may take while other columns have to be cut.
_GAP = "  "

_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_RED, _GREEN, _YELLOW = "\x1b[1;31m", "\x1b[32m", "\x1b[33m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is known about the place a table is printed to."""

    width: int | None = None
    color: bool = False
    shown: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)

    @classmethod
    def of(cls, invocation: Invocation, is_stdout: bool, shown: Mapping[str, Callable[[Any], str]]) -> Layout:
        import sys

        terminal = is_stdout and sys.stdout.isatty()
        return cls(
            width=shutil.get_terminal_size().columns if terminal else None,
            color=is_stdout and invocation.wants_color(),
            shown=shown,
        )

    def text(self, name: str, value: Any) -> str:
        if value is None:
            return ""
        if name in self.shown:
            return self.shown[name](value)
        return _text(value)

    def fields(self, pairs: Sequence[tuple[str, Any]]) -> list[str]:
        """One thing, a line per field."""
        width = max((len(name) for name, _ in pairs), default=0)
        lines = []
        for name, value in pairs:
            label = self.dim(name.ljust(width))
            text = self.text(name, value) if value is not None else self.dim("none")
            rows = text.split("\n") if name in self.shown else [text]
            lines += [f"{label}{_GAP}{rows[0]}".rstrip()]
            lines += [f"{' ' * width}{_GAP}{row}".rstrip() for row in rows[1:]]
        return lines

    def dim(self, text: str) -> str:
        return self._colored(_DIM, text)

    def bold(self, text: str) -> str:
        return self._colored(_BOLD, text)

    def good(self, text: str) -> str:
        return self._colored(_GREEN, text)

    def warn(self, text: str) -> str:
        return self._colored(_YELLOW, text)

    def bad(self, text: str) -> str:
        return self._colored(_RED, text)

    def _colored(self, color: str, text: str) -> str:
        return f"{color}{text}{_RESET}" if self.color and text else text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return repr(value)
    return visible(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def width_of(text: str) -> int:
    """Columns on the terminal: Chinese takes two, accents none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # only where there is such text

    return cell_len(text)


class Table:
    """Lines of a table, from rows that may come one by one."""

    def __init__(self, names: Sequence[str], layout: Layout, *, header: bool) -> None:
        self._names = names
        self._layout = layout
        self._header = header
        self._sample: list[list[str]] = []
        self._right = [True] * len(names)
        self._widths: list[int] | None = None

    def add(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Lines that can be printed now; none while the widths are not settled."""
        texts = [self._cells(row) for row in rows]
        if self._widths is not None:
            return [self._line(cells) for cells in texts]
        self._sample += texts
        return self.settle() if len(self._sample) >= SAMPLE_ROWS else []

    def settle(self) -> list[str]:
        """Fix the widths by the rows seen so far, and give their lines."""
        if self._widths is not None:
            return []
        if not self._sample and not self._header:
            return []
        self._widths = self._fit()
        head = [self._head()] if self._header else []
        lines = head + [self._line(cells) for cells in self._sample]
        self._sample = []
        return lines

    def _cells(self, row: Sequence[Any]) -> list[str]:
        for at, value in enumerate(row):
            if self._right[at] and value is not None and not _is_number(value):
                self._right[at] = False
        return [self._layout.text(name, value) for name, value in zip(self._names, row, strict=True)]

    def _fit(self) -> list[int]:
        widths = [
            max([width_of(name) if self._header else 1, *(width_of(cells[at]) for cells in self._sample)])
            for at, name in enumerate(self._names)
        ]
        if self._layout.width is None:
            return widths
        spare = self._layout.width - len(_GAP) * (len(widths) - 1)
        # the widest gives way first
        while sum(widths) > spare and max(widths) > _LEAST:
            widest = max(range(len(widths)), key=widths.__getitem__)
            rest = sorted(widths)[-2] if len(widths) > 1 else 0
            over = sum(widths) - spare
            widths[widest] = max(_LEAST, min(widths[widest] - 1, max(rest, widths[widest] - over)))
        return widths

    def _head(self) -> str:
        assert self._widths is not None
        return self._layout.bold(self._joined(self._names)).rstrip()

    def _line(self, cells: Sequence[str]) -> str:
        assert self._widths is not None
        return self._joined(cells).rstrip()

    def _joined(self, cells: Sequence[str]) -> str:
        assert self._widths is not None
        parts = [
            _fitted(cell, width, right=right, cut=self._layout.width is not None)
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        ]
        line = _GAP.join(parts)
        if self._layout.width is not None and width_of(line.rstrip()) > self._layout.width:
            return _cut(line, self._layout.width)
        return line


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fitted(text: str, width: int, *, right: bool, cut: bool) -> str:
    taken = width_of(text)
    if taken > width and cut:
        text = _cut(text, width)
        taken = width_of(text)
    padding = " " * max(0, width - taken)
    return padding + text if right else text + padding


def _cut(text: str, width: int) -> str:
    if text.isascii():
        return text[: max(0, width - 1)] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"
