"""`virta login`: kept once, the address is enough; what is not trusted is not kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import virta
from tests.broker.secured import PASSWORD, Secured
from tests.security.authority import Authority
from virta.cli.main import main
from virta.errors import Denied
from virta.security.credentials import credentials_path, kept_credentials
from virta.security.tls import server_tls


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return tmp_path


@pytest.fixture
def broker(home: Path) -> Iterator[Secured]:
    with Secured(home / "log", tls=server_tls(*Authority(home).issue("broker"))) as found:
        found.add("ada", "administer:*")
        yield found


def test_a_login_is_kept_and_forgotten(home: Path, broker: Secured) -> None:
    assert broker.tls is not None
    place = f"virtas://127.0.0.1:{broker.port}"
    words = ["login", f"virtas://ada@127.0.0.1:{broker.port}", "--password-file", str(home / "password")]
    assert main([*words, "--fingerprint", broker.tls.fingerprint]) == 0
    assert credentials_path().stat().st_mode & 0o077 == 0
    with virta.open(place) as log:
        log.create_topic("orders", {"id": int})
    assert main(["logout", place]) == 0
    assert kept_credentials(credentials_path()) == {}
    assert main(["logout", place]) == 3
    with pytest.raises(Denied):
        virta.open(place).topics()


def test_what_is_not_trusted_is_not_kept(
    home: Path, broker: Secured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert broker.tls is not None
    words = ["login", f"virtas://ada@127.0.0.1:{broker.port}", "--password-file", str(home / "password")]
    assert main(words) == 6
    assert f"--fingerprint {broker.tls.fingerprint}" in capsys.readouterr().err
    (home / "password").write_text("another one\n")
    assert main([*words, "--fingerprint", broker.tls.fingerprint]) == 6
    assert not credentials_path().exists()


def test_a_directory_and_nobody_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["login", str(home)]) == 2
    assert "is a directory" in capsys.readouterr().err
    assert main(["login", "virta://127.0.0.1:1"]) == 2
    assert "--user NAME" in capsys.readouterr().err
