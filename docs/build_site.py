"""The documents as a site in build/site: `./run docs`.

The pages are those of this folder, and of the root: the README is the home page,
ARCHITECTURE.md and CHANGELOG.md are pages too. They are brought together in build/docs,
with their links made to fit, and given to Zensical, which reads mkdocs.yml and fails
where a link leads nowhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGE = ROOT / "build" / "docs"
ROOT_PAGES = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")


def from_root(target: str) -> str | None:
    """Where a link of a page of the root leads on the site; None: nowhere."""
    return ROOT_PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)


def from_docs(target: str) -> str | None:
    return from_root(target.removeprefix("../")) if target.startswith("../") else target


def relinked(text: str, follow: Callable[[str], str | None]) -> str:
    """The text with links that fit the site; one to a file that is no page loses its link, not its words."""

    def fit(found: re.Match[str]) -> str:
        target = follow(found[2])
        return f"[{found[1]}]({target}{found[3] or ''})" if target else found[1]

    return re.sub(r"\[([^\]]*)" + _LINK.pattern, fit, text)


def stage() -> None:
    """Bring the pages together."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGE, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in STAGE.rglob("*.md"):
        page.write_text(relinked(page.read_text(encoding="utf-8"), from_docs), encoding="utf-8")
    for source, page_name in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        (STAGE / page_name).write_text(relinked(text, from_root), encoding="utf-8")


def main(words: list[str]) -> int:
    stage()
    program = Path(sys.executable).with_name("zensical")
    command = ["serve"] if "--serve" in words else ["build", "--clean"]
    return subprocess.call([str(program), *command, "-f", str(ROOT / "mkdocs.yml")], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
