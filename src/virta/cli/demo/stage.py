"""How the demo speaks: steps, facts, checks; and what went wrong, for the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from virta.cli.invocation import Invocation
from virta.cli.table import Layout, Table

_INDENT = "    "


@dataclass(slots=True)
class Stage:
    """Everything the demo prints goes through here."""

    invocation: Invocation
    failures: list[str] = field(default_factory=list)
    checks: int = 0
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.invocation, True, {})

    def step(self, title: str, detail: str = "") -> None:
        print(f"\n{self.layout.bold(title)}  {self.layout.dim(detail)}".rstrip(), flush=True)

    def fact(self, name: str, text: str) -> None:
        print(f"{_INDENT}{self.layout.dim(name.ljust(10))}{text}", flush=True)

    def lines(self, lines: Sequence[str]) -> None:
        print("\n".join(f"{_INDENT}{line}".rstrip() for line in lines), flush=True)

    def check(self, good: bool, what: str) -> None:
        """Say what was found; what is not as it should be makes the demo fail."""
        mark = self.layout.good("ok") if good else self.layout.bad("FAILED")
        print(f"{_INDENT}{mark}{' ' * (8 if good else 4)}{what}", flush=True)
        self.checks += 1
        if not good:
            self.failures.append(what)

    def table(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = Table(list(names), self.layout, header=True)
        self.lines([*table.add([tuple(row) for row in rows]), *table.settle()])

    def arrow(self, table: Any) -> None:
        """A small Arrow table."""
        from virta.exchange.json_values import json_columns  # Arrow is not for --help

        rows = [row for batch in table.to_batches() for row in zip(*json_columns(batch), strict=True)]
        self.table(table.schema.names, rows)
