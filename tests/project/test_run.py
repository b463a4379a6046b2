"""The `run` script: what it says when something is missing, and how it ends."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).parents[2] / "run"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # else a stray `runc` beside the script
    loader = SourceFileLoader("run_script", str(RUN))
    spec = spec_from_loader("run_script", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "old"), [((3, 6, 0), True), ((3, 10, 14), True), ((3, 11, 0), False), ((4, 0, 0), False)]
)
def test_knows_an_old_python(run: ModuleType, version: tuple[int, int, int], old: bool) -> None:
    assert run.is_old(version) is old


def test_an_old_python_is_told_what_to_do(run: ModuleType) -> None:
    trouble = run.too_old((3, 9, 2))
    assert trouble.message == "Virta needs Python 3.11 or newer; this is Python 3.9.2."
    assert "apt install" in trouble.cure


def test_an_old_python_goes_on_as_a_newer_one(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(run.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(run.sys, "argv", ["run", "test", "-x"])
    monkeypatch.setattr(run.shutil, "which", lambda name: f"/opt/{name}" if name == "python3.12" else None)
    monkeypatch.setattr(run, "replace_process", became.append)
    run.use_new_enough_python()
    assert became == [["/opt/python3.12", str(RUN), "test", "-x"]]


def test_an_old_python_alone_is_an_error(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(run.shutil, "which", lambda name: None)
    with pytest.raises(run.Trouble, match=r"this is Python 3\.9\.2"):
        run.use_new_enough_python()


def test_a_python_without_venv_is_named(run: ModuleType) -> None:
    assert run.missing_venv_module(has_module=lambda name: True) is None
    trouble = run.missing_venv_module(has_module=lambda name: name == "venv")
    assert "no `ensurepip` module" in trouble.message
    assert "-venv`" in trouble.cure


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ERROR: No matching distribution found for pyarrow>=26", "package index does not answer"),
        ("Retrying after connection broken by 'NewConnectionError'", "package index does not answer"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("error: subprocess-exited-with-error", "could not install"),
    ],
)
def test_says_what_pip_means(run: ModuleType, words: str, message: str) -> None:
    assert message in run.pip_trouble(words).message


def test_installs_again_only_when_the_wishes_change(run: ModuleType, tmp_path: Path) -> None:
    wishes = tmp_path / "pyproject.toml"
    wishes.write_text("one")
    first = run.digest_of_wishes(tmp_path)
    assert run.digest_of_wishes(tmp_path) == first
    wishes.write_text("two")
    assert run.digest_of_wishes(tmp_path) != first


def test_check_goes_through_all_before_it_fails(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(run, "set_up", lambda: None)
    monkeypatch.setattr(run, "check_one", lambda name, *_: asked.append(name) or name != "lint")
    assert run.check([]) == 1
    assert asked == ["form", "lint", "types", "layers"]
    assert capsys.readouterr().out == "check failed: lint\n"


def test_an_old_python_can_read_the_script() -> None:
    ast.parse(RUN.read_text(), feature_version=(3, 6))


def test_an_environment_that_was_moved_here_is_made_again(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "VENV", tmp_path)
    assert not run.environment_works()  # there is nothing
    pip = tmp_path / "bin" / "pip"
    pip.parent.mkdir()
    pip.write_text("#!/bin/sh\necho pip 26 from /elsewhere/.venv/lib")
    pip.chmod(0o755)
    assert not run.environment_works()
    pip.write_text(f"#!/bin/sh\necho pip 26 from {tmp_path}/lib")
    assert run.environment_works()


def test_no_chore_prints_the_help_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, RUN], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "usage: ./run CHORE" in done.stdout


def test_an_unknown_chore_is_misuse(run: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["tset"]) == 2
    assert "no chore `tset`" in capsys.readouterr().err
