"""The shell commands of the guides to brokers run, as they stand there, in an empty directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.test_examples import ROOT, code_in, run
from virta.testing.faults.brokers import free_port


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the guides are for bash")
@pytest.mark.parametrize("guide", ["serve.md", "secure.md"])
def test_the_guide_can_be_followed(guide: str, tmp_path: Path) -> None:
    commands = code_in(ROOT / "docs" / guide, "sh").replace("7400", str(free_port()))
    # whatever fails, the broker goes too
    script = "trap 'kill \"$(cat broker.pid)\" 2> /dev/null || true' EXIT\n" + commands
    run(["bash", "-eu", "-o", "pipefail", "-c", script], tmp_path)
