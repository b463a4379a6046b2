"""Every python example in the documents runs, as it stands there, in an empty directory.

The examples of one document are one program, in their order. The program has the
document's lines, with all that is not code left blank, so an error names the line to
look at. Warnings are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def code_in(document: Path, language: str) -> str:
    """The document's blocks of a language, every other line blank."""
    kept: list[str] = []
    inside = False
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside and line.removeprefix("```").strip() == language
            kept.append("")
        else:
            kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


def documents_with(language: str) -> list[Path]:
    return [document for document in DOCUMENTS if code_in(document, language).strip()]


def run(words: list[str], directory: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VIRTA")}
    environment["XDG_CONFIG_HOME"] = str(directory / ".config")
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        words, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("document", documents_with("python"), ids=lambda path: str(path.name))
def test_python_examples_run(document: Path, tmp_path: Path) -> None:
    program = tmp_path / f"{document.stem}.py"
    program.write_text(code_in(document, "python"), encoding="utf-8")
    place = tmp_path / "empty"
    place.mkdir()
    run([sys.executable, "-W", "error", str(program)], place)


@pytest.mark.skipif(shutil.which("jq") is None, reason="the quick start for shells uses jq")
def test_the_quick_start_for_shells_runs(tmp_path: Path) -> None:
    script = code_in(ROOT / "README.md", "sh").replace("virta tail ", "virta tail --stop-when-idle 0.2s ")
    lines = [line for line in script.splitlines() if not line.startswith("./run")]
    run(["bash", "-eu", "-o", "pipefail", "-c", "\n".join(lines)], tmp_path)


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (document.parent / target).exists(), f"{document.name} leads to {target}"
        names = {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
        for anchor in re.findall(r"\]\(#([^)]+)\)", text):
            assert anchor in names, f"{document.name} has no heading #{anchor}"


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
