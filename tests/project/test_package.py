"""`import virta`: the names it promises, each from its own place."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import virta
from virta import errors, settings, types
from virta.steward import steward
from virta.topics.groups import letters, retry

ROOT = Path(__file__).parents[2]
has_opener = pytest.mark.skipif(
    not (ROOT / "src/virta/open.py").exists(), reason="virta.open is not written yet"
)


def test_every_error_is_exported() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert raised <= set(virta.__all__)


@pytest.mark.parametrize("name", sorted(set(virta.__all__) - {"open", "aopen"}))
def test_a_name_comes_from_its_home(name: str) -> None:
    value = getattr(virta, name)
    homes = (errors, types, settings, steward, letters, retry)
    assert name == "__version__" or any(value is getattr(home, name, None) for home in homes)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        _ = virta.opne  # type: ignore[attr-defined]


def test_the_version_is_said_once_and_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == virta.__version__


def test_a_submodule_named_open_leaves_the_function_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(virta), "open", raising=False)
    module = ModuleType("virta.open")
    module.open = lambda: "opened"  # type: ignore[attr-defined]
    virta.open = module  # type: ignore[assignment] # what the import system does after `import virta.open`
    assert virta.open() == "opened"
    del virta.open


@has_opener
def test_open_is_a_function_however_its_module_was_imported() -> None:
    importlib.import_module("virta.open")
    assert inspect.isfunction(virta.open)
    assert callable(virta.aopen)


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "virta", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"virta {virta.__version__}\n"
