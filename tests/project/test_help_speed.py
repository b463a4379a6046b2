"""`virta --help` is fast because it imports little: held here by what is imported, not by a clock."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"pyarrow", "numpy", "duckdb", "pandas", "polars", "blake3", "rich", "asyncio", "virta.open"}

LIST_MODULES = """
import json, sys
{action}
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(action: str) -> set[str]:
    program = LIST_MODULES.format(action=action)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "action",
    [
        "import virta; virta.Durability, virta.VirtaError",
        "from virta.cli.main import main; assert main(['--help']) == 0",
        "from virta.cli.main import main; assert main(['--version']) == 0",
        "from virta.cli.main import main; assert main(['no-such-command']) == 2",
    ],
)
def test_answers_without_heavy_imports(action: str) -> None:
    assert modules_after(action) & HEAVY == set()
