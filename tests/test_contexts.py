"""Contexts: named logs in the user's configuration, and which log is meant when nobody says."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import virta
from virta import contexts
from virta.errors import AlreadyExists, NotFound, UsageError


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("VIRTA_LOG", raising=False)
    monkeypatch.delenv("VIRTA_CONTEXT", raising=False)


def test_a_context_is_an_address_with_a_name(tmp_path: Path) -> None:
    contexts.add("dev", str(tmp_path / "events"))
    contexts.add("prod", "virta://host:7400", environment="production", credentials={"user": "ada"})
    assert [(each.name, each.rank) for each in contexts.contexts()] == [("prod", 40), ("dev", 10)]
    assert contexts.get("prod").credentials == {"user": "ada"}
    assert contexts.resolve("@prod").address == "virta://host:7400"
    assert contexts.resolve("./events") == contexts.Place(address="./events")
    with virta.open("@dev") as log:
        log.create_topic("orders", {"id": int})
    assert (tmp_path / "events" / "topics" / "orders").is_dir()


async def test_a_context_opens_for_asyncio_too(tmp_path: Path) -> None:
    contexts.add("dev", str(tmp_path / "events"))
    async with virta.aopen("@dev") as log:
        await log.create_topic("orders", {"id": int})
    assert (tmp_path / "events" / "topics" / "orders").is_dir()


def test_which_log_is_meant_when_nobody_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert contexts.default_address() == str(tmp_path / "data" / "virta")
    contexts.add("dev", "/dev-log")
    contexts.add("test", "/test-log", environment="test")
    contexts.use("dev")
    assert contexts.resolve().context == contexts.get("dev")
    monkeypatch.setenv("VIRTA_CONTEXT", "test")
    assert contexts.default_address() == "/test-log"
    monkeypatch.setenv("VIRTA_LOG", "/named")
    assert contexts.default_address() == "/named"
    monkeypatch.setenv("VIRTA_LOG", "@dev")
    assert contexts.default_address() == "/dev-log"
    monkeypatch.delenv("VIRTA_LOG")
    monkeypatch.delenv("VIRTA_CONTEXT")
    contexts.use(None)
    assert contexts.in_use() is None


def test_the_file_is_its_owners_alone_and_keeps_what_others_wrote(tmp_path: Path) -> None:
    path = contexts.config_path()
    path.parent.mkdir(parents=True)
    path.write_text('[output]\nform = "json"\n')
    path.chmod(0o644)
    contexts.add("dev", "events", credentials={"token": "secret"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert 'form = "json"' in path.read_text()
    assert contexts.get("dev").address == str(Path("events").absolute())
    assert "secret" not in repr(contexts.get("dev"))
    assert [each.name for each in path.parent.iterdir()] == ["config.toml"]


def test_removed_contexts_are_not_in_use() -> None:
    contexts.add("dev", "/log")
    contexts.use("dev")
    contexts.remove("dev")
    assert contexts.in_use() is None and contexts.contexts() == []


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.add("prod", "/log", environment="prod")
    with pytest.raises(NotFound, match='did you mean "prod"'):
        virta.open("@prdo")
    with pytest.raises(AlreadyExists):
        contexts.add("prod", "/other")
    assert contexts.add("prod", "/other", replace=True).rank == 10
    with pytest.raises(UsageError, match="rank of the environment 'moon'"):
        contexts.add("moon", "/log", environment="moon")
    assert contexts.add("moon", "/log", environment="moon", rank=99).rank == 99
    for name in ("", "a b", "@x", "-x"):
        with pytest.raises(UsageError, match="no name"):
            contexts.add(name, "/log")
    with pytest.raises(UsageError, match="no address"):
        contexts.add("dev", "@prod")
    with pytest.raises(NotFound):
        contexts.use("nobody")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contexts = 3", "not a table"),
        ("contexts.dev = 3", "no address"),
        ('[contexts.dev]\naddress = "/x"\nenvironment = "moon"', "no rank"),
        ('[contexts.dev]\naddress = "/x"\nenvironment = 3', "is a name"),
        ("context = ", "not readable as TOML"),
    ],
)
def test_a_broken_file_is_named(text: str, message: str) -> None:
    contexts.config_path().parent.mkdir(parents=True)
    contexts.config_path().write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        contexts.get("dev")
    assert "config.toml" in str(caught.value)
