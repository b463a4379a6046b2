"""The examples in docstrings run too: what is indented after a blank line there is code."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# Modules whose docstring opens with an example, and what its lines take for granted.
BEFORE = {"virta": "", "virta.log": "from virta.log import Log", "virta.aio.log": "import virta"}


def example_in(module: ModuleType) -> str:
    """The first indented block of the module's docstring."""
    lines = (module.__doc__ or "").split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("    "))
    end = next(at for at, line in enumerate(lines) if at > start and line and not line.startswith(" "))
    return textwrap.dedent("\n".join(lines[start:end]))


async def run(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    program = compile(source, "<docstring>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(program, names)
    if inspect.isawaitable(waiting):
        await waiting
    return names


@pytest.mark.parametrize("name", BEFORE)
def test_examples_in_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = example_in(importlib.import_module(name))
    names = asyncio.run(run(f"{BEFORE[name]}\n{example}"))
    assert "orders" in names
