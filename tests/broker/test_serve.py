"""`virta serve` as a process: start, pages, reload, stop; and its log without a secret."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.security.authority import Authority
from virta.broker.operation.settings import read_file, resolve
from virta.cli.main import main
from virta.errors import Denied
from virta.security.tls import server_tls
from virta.security.tokens import split_token

DEPLOY = Path(__file__).parents[2] / "deploy"
PASSWORD = "correct horse battery"


class Process:
    """A broker of its own, whose log is read line by line."""

    def __init__(self, path: Path, *arguments: str, **environment: str) -> None:
        self.path = path
        self.lines: list[str] = []
        command = [sys.executable, "-m", "virta", "serve", str(path), "--log-format", "json", *arguments]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("VIRTA")}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean | environment)
        self.started = self.until("serving")

    def until(self, event: str) -> dict[str, Any]:
        """The next line of this event."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"it ended without {event!r}:\n{''.join(self.lines)}")

    @property
    def address(self) -> str:
        address = str(self.started["listen"][0])
        fingerprint = self.started.get("fingerprint")
        return f"{address}?fingerprint={fingerprint}" if fingerprint else address

    def page(self, name: str) -> str:
        with urllib.request.urlopen(f"{self.started['http']}/{name}", timeout=10) as answer:
            return str(answer.read().decode())

    def stop(self) -> str:
        """Told to stop, it does, and says so; its whole log."""
        self.process.send_signal(signal.SIGTERM)
        self.until("stopped")
        assert self.process.wait(20) == 0
        return "".join(self.lines)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.slow
def test_from_start_to_stop(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "events"
    monkeypatch.setenv("VIRTA_NEW_PASSWORD", PASSWORD)
    assert main(["-l", str(path), "user", "add", "ada", "--allow", "all:*"]) == 0
    with Process(path, "--listen", "virtas://127.0.0.1:0", "--http", "127.0.0.1:0") as broker:
        assert json.loads(broker.page("health"))["status"] == "alive"
        assert json.loads(broker.page("ready")) == {"status": "ready"}

        with virta.open(broker.address, user="ada", password=PASSWORD) as log:
            log.create_topic("orders", {"id": int}).append([{"id": 1}, {"id": 2}])
            metrics = broker.page("metrics")
        assert 'virta_partition_next_offset{topic="orders",partition="0"} 2' in metrics
        assert re.search(r'virta_requests_total\{verb="append"\} 1', metrics)
        assert re.search(r"^virta_certificate_expiry_seconds \d+", metrics, re.MULTILINE)

        # Users added and removed while it runs.
        assert main(["-l", str(path), "token", "create", "ada", "-q"]) == 0
        token = capsys.readouterr().out.strip()
        broker.process.send_signal(signal.SIGHUP)
        assert broker.until("reloaded")["users"] == 1
        with virta.open(broker.address, token=token) as log:
            assert log.topics() == ["orders"]
        with pytest.raises(Denied):
            virta.open(broker.address, user="ada", password="wrong password")

        assert main(["serve", str(path), "--listen", "virta://127.0.0.1:0"]) == 6
        assert "another broker serves this log" in capsys.readouterr().err

        told = broker.stop()
    with virta.open(path) as log:
        events = log.topic("__events")[:].to_arrow().to_pylist()
    kinds = [(event["kind"], event["actor"]) for event in events]
    assert ("administered", "ada") in kinds and ("refused", "ada") in kinds
    everything = told + metrics + json.dumps(events, default=str)
    for secret in (PASSWORD, "wrong password", split_token(token)[1]):
        assert secret not in everything


@pytest.mark.slow
def test_reload_takes_in_limits_level_and_certificate_or_nothing(home: Path) -> None:
    path, config = home / "events", home / "broker.toml"
    authority = Authority(home)
    files = authority.issue("broker")
    text = (
        f'listen = "virtas://127.0.0.1:0"\n[tls]\ncertificate_file = "{files[0]}"\nkey_file = "{files[1]}"\n'
    )
    config.write_text(text)
    with Process(path, "--config", str(config)) as broker:
        assert "fingerprint" not in broker.started
        address, before = broker.started["listen"][0], server_tls(*files).fingerprint
        virta.open(f"{address}?fingerprint={before}").close()

        config.write_text("limits = 5")
        broker.process.send_signal(signal.SIGHUP)
        assert "no setting 'limits'" in broker.until("not reloaded")["error"]
        virta.open(f"{address}?fingerprint={before}").close()

        authority.issue("broker")  # renewed, at the same place
        config.write_text(f'{text}[http]\nlisten = "127.0.0.1:0"\n[limits]\nconnections = 1\n')
        broker.process.send_signal(signal.SIGHUP)
        assert broker.until("changed, and taken in by a restart only")["setting"] == "http.listen"
        broker.until("reloaded")
        after = server_tls(*files).fingerprint
        assert after != before
        with (
            virta.open(f"{address}?fingerprint={after}"),
            pytest.raises(virta.VirtaError, match="1 connections are open"),
        ):
            virta.open(f"{address}?fingerprint={after}")
        with pytest.raises(Denied, match="another one"):
            virta.open(f"{address}?fingerprint={before}")
        broker.stop()


def test_check_shows_settings_and_serves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = home / "broker.toml"
    config.write_text("[limits]\nconnections = 7\n")
    monkeypatch.setenv("VIRTA_SERVE_LOGGING_LEVEL", "error")
    arguments = ["--check", "-o", "json", "--config", str(config), "--set", "limits.connections_per_user=3"]
    assert main(["serve", str(home / "events"), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    records = {record["setting"]: (record["value"], record["origin"]) for record in found}
    assert records["limits.connections"] == ("7", str(config))
    assert records["limits.connections_per_user"] == ("3", "flag")
    assert records["logging.level"] == ("error", "environment VIRTA_SERVE_LOGGING_LEVEL")
    assert records["listen"] == ("virta://127.0.0.1:7400", "default")
    assert not (home / "events").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--listen", "virtas://0.0.0.0:0"), 2, "knows no users"),
        (("--set", "limits.conections=1"), 2, "did you mean 'limits.connections'"),
        (("--config", "nowhere.toml"), 3, "no configuration at"),
        (("--certificate-file", "nowhere.pem", "--tls", "on", "--listen", "127.0.0.1:0"), 2, "not there"),
        (("--key-file", "nowhere.pem", "--tls", "on", "--listen", "127.0.0.1:0"), 2, "no certificate"),
    ],
)
def test_what_keeps_it_from_starting(
    home: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(home)
    assert main(["serve", str(home / "events"), *arguments]) == code
    told = capsys.readouterr().err
    assert said in told and "try:" in told


# -- deploy/ -----------------------------------------------------------------------------------------


def test_the_example_configuration_is_one() -> None:
    given = read_file(DEPLOY / "broker.toml")
    settings = resolve(file=given)
    assert [address.tls for address in settings.listen] == [False, True]
    # What stands behind a # is the default, as it says.
    text = re.sub(r"^# (\w+ = )", r"\1", (DEPLOY / "broker.toml").read_text(), flags=re.MULTILINE)
    everything = resolve(file=tomllib.loads(text))
    assert {name: each.value for name, each in everything.settings.items()} == {
        name: each.value for name, each in settings.settings.items()
    }


def test_the_unit_names_what_there_is() -> None:
    unit = (DEPLOY / "virta.service").read_text()
    assert "Type=notify" in unit and "ExecReload=/bin/kill -HUP $MAINPID" in unit
    assert re.search(r"^ExecStart=/opt/virta/bin/virta serve \S+ --config \S+$", unit, re.MULTILINE)


def test_the_container_names_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    environment = dict(re.findall(r"(VIRTA_SERVE_\w+)=(\S+)", text))
    assert resolve(environment=environment)["logging.format"] == "json" and len(environment) == 3
