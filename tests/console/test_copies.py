"""What Copy as gives is what runs: commands, Python and SQL of every view, as they were copied."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.cli.main import main

VIEWS = (
    "",
    "rows?topic=orders&at=10:20&where=user = 'ada'",
    "rows?topic=orders",
    "row?topic=orders&offset=17",
    "row?topic=life&offset=17",
    "key?topic=orders&offset=17",
    "latest?topic=orders",
    "latest?topic=life&where=x > 3",
    "life",
    "groups",
    "groups?group=billing&topic=orders",
    "diff?topic=life&before=96",
    "replay?topic=orders&at=10:20&where=id > 12&target=copied",
    "sql?q=select user, count(*) as n from orders group by 1",
    "time?topic=orders",
    "verify",
    "verify?topic=orders",
    "storage",
    "settings?topic=life",
)


@pytest.fixture(scope="module")
def copied(chromium: Any, console: str) -> dict[str, list[tuple[str, str]]]:
    """By view: what its first Copy as gives."""
    tab = chromium.new_page(base_url=console)
    found = {}
    for view in VIEWS:
        tab.goto(view)
        tab.get_by_role("button", name="Copy as").first.click()
        dialog = tab.get_by_role("dialog", name="Copy as")
        dialog.wait_for()
        forms = zip(
            dialog.get_by_role("heading", level=3).all_inner_texts(),
            dialog.locator("pre").all_inner_texts(),
            strict=True,
        )
        found[view] = list(forms)
    tab.close()
    return found


def run(command: str) -> None:
    """In this process, or where one is piped into another, in a shell."""
    if " | " in command:
        subprocess.run(
            command.replace("virta ", f"{sys.executable} -m virta "), shell=True, check=True, timeout=60
        )
    else:
        assert main(shlex.split(command)[1:]) == 0, command


@pytest.mark.parametrize("view", VIEWS)
def test_what_was_copied_runs(
    copied: dict[str, list[tuple[str, str]]], log: Any, view: str, tmp_path: Path
) -> None:
    with contextlib.suppress(virta.AlreadyExists):
        log.create_topic("copied", {"id": int, "user": str, "amount": float}, keys=["id"])
    forms = copied[view]
    assert len(forms) > 1
    for name, text in forms:
        if name.startswith("command line") and "live" not in name:
            # what is made is made elsewhere
            run(text.replace(str(log.path), str(tmp_path / "new")) if "topic create" in text else text)
        elif name == "Python":
            with contextlib.redirect_stdout(io.StringIO()):
                if "changes()" not in text:  # they go on for ever
                    exec(compile(text, view, "exec"), {})
        elif name == "SQL":
            log.sql(text).to_arrow()
