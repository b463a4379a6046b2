"""docs/pipelines.md, followed by hand: every file in it is one, and its commands run in their order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from virta import contexts
from virta.pipelines.demotion import policy_of
from virta.pipelines.specification import specification

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
FILES = re.findall(r"^```toml\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COMMANDS = "".join(
    re.findall(r"^```sh\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)


@pytest.mark.parametrize("text", FILES, ids=lambda text: tomllib.loads(text)["name"])
def test_each_file_is_a_pipeline(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    contexts.add("upper", "./events", environment="prod")
    found = specification(tomllib.loads(text), tmp_path)
    assert found.flows or found.demotion


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="the commands of docs/pipelines.md use jq")
def test_the_commands_run(tmp_path: Path) -> None:
    for text in FILES:
        first = text.splitlines()[0]
        if first.startswith("# "):
            (tmp_path / first.removeprefix("# ")).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VIRTA")}
    environment["XDG_CONFIG_HOME"] = str(tmp_path / ".config")
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    script = "virta() { " + f"{sys.executable} -m virta" + ' "$@"; }\n' + COMMANDS
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lake: 1,000 rows" in done.stderr
    assert "lake: 100 rows" in done.stderr
    assert '"failed":[]' in done.stdout.replace(" ", "")
    assert (tmp_path / "statement.json").exists()
    assert policy_of(tmp_path / "down.toml").hash() in (tmp_path / "statement.json").read_text()
