"""Logs with orders and users, and pipelines that crash where they are told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import virta
from virta import contexts
from virta.log import Log
from virta.pipelines import Pipeline, Step

STEPS = ("planned", "staged", "recorded", "committed", "done")


class Crash(BaseException):
    """As if the process had ended here."""


def crash_at(number: int) -> Callable[[Step], None]:
    """A watcher that ends the run at its `number`-th step."""
    left = number

    def watch(step: Step) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Crash(step.what)

    return watch


def run_with_crashes(make: Callable[[], Pipeline]) -> int:
    """Run with a crash at the first step, then the second …, until a run ends; how often it crashed."""
    for number in range(1, 200):
        try:
            make().run(watch=crash_at(number))
        except Crash:
            continue
        return number - 1
    raise AssertionError("it never ended")


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "user_id": number % 7,
        "email": f"customer.{number % 7}@corporation.org",
        "amount": number / 2,
    }


@pytest.fixture
def log(tmp_path: Path) -> Log:
    with virta.open(tmp_path / "events") as log:
        yield log


@pytest.fixture
def orders(log: Log) -> Any:
    schema = {"id": int, "user_id": int, "email": str, "amount": float}
    topic = log.create_topic("orders", schema)
    topic.append([order(number) for number in range(100)])
    return topic


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The contexts @prod and @dev, and a masking key."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("VIRTA_MASKING_KEY", "a secret that stays in production")
    contexts.add("prod", str(tmp_path / "prod"), environment="prod")
    contexts.add("dev", str(tmp_path / "dev"), environment="dev")
    return tmp_path
