"""Settings from four places: which wins, what is refused, and what people are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from virta.broker.operation.settings import (
    OPTIONS,
    environment_name,
    parse_assignments,
    read_file,
    resolve,
    shown,
)
from virta.errors import NotFound, UsageError
from virta.security.guard import Authentication
from virta.security.limits import Limits


def test_defaults_are_the_limits_own() -> None:
    settings = resolve()
    assert settings.limits == Limits()
    assert settings.authentication is Authentication.AUTO
    assert [str(address) for address in settings.listen] == ["virta://127.0.0.1:7400"]
    assert all(record["origin"] == "default" for record in settings.records())


def test_a_flag_beats_the_environment_beats_the_file() -> None:
    file = {"logging": {"level": "debug"}, "limits": {"connections": 1}, "http": {"listen": "127.0.0.1:1"}}
    environment = {"VIRTA_SERVE_LOGGING_LEVEL": "warning", "VIRTA_SERVE_LIMITS_CONNECTIONS": "2", "HOME": "x"}
    settings = resolve(
        file=file,
        file_name="broker.toml",
        environment=environment,
        flags={"logging.level": "error", "tls.mode": None},
    )
    found = {
        name: (each.value, each.origin)
        for name, each in settings.settings.items()
        if each.origin != "default"
    }
    assert found == {
        "logging.level": ("error", "flag"),
        "limits.connections": (2, "environment VIRTA_SERVE_LIMITS_CONNECTIONS"),
        "http.listen": ("127.0.0.1:1", "broker.toml"),
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_can_be_written_as_people_see_it(name: str) -> None:
    default = OPTIONS[name].default
    text = shown(name, default)
    settings = resolve(environment={environment_name(name): text})
    assert settings[name] == default


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"file": {"limits": {"conections": 5}}}, "did you mean 'limits.connections'"),
        ({"environment": {"VIRTA_SERVE_LISTENN": "x"}}, "VIRTA_SERVE_LISTENN"),
        ({"flags": {"x.y": 1}}, "no setting 'x.y'"),
        ({"file": {"limits": {"connections": 0}}}, r"limits.connections \(broker.toml\): .*above zero"),
        ({"file": {"limits": {"connections": True}}}, "above zero"),
        ({"file": {"limits": {"frame_bytes": "much"}}}, "limits.frame_bytes"),
        ({"file": {"tls": {"mode": "maybe"}}}, "auto, on, off"),
        ({"file": {"tls": "on"}}, "no setting 'tls'"),
        ({"flags": {"listen": "virta://ada@host"}}, "without user"),
        ({"flags": {"listen": "http://host"}}, "no address"),
        ({"flags": {"http.listen": "7402"}}, "host:port"),
        ({"flags": {"stop.grace_seconds": "0s"}}, "more than no time"),
        ({"flags": {"tls.client_certificates_required": "perhaps"}}, "true or false"),
    ],
)
def test_what_is_refused(sources: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(file_name="broker.toml", **sources)


@pytest.mark.parametrize(
    ("listen", "mode", "wanted"),
    [
        ("127.0.0.1:7400", "auto", "virta://127.0.0.1:7400"),
        ("0.0.0.0:7400", "auto", "virtas://0.0.0.0:7400"),
        ("virtas://localhost", "auto", "virtas://localhost:7400"),
        ("localhost:1", "on", "virtas://localhost:1"),
        ("virtas://[::]:1", "off", "virta://[::]:1"),
    ],
)
def test_tls_is_on_where_others_reach_the_broker(listen: str, mode: str, wanted: str) -> None:
    (address,) = resolve(flags={"listen": listen, "tls.mode": mode}).listen
    assert str(address) == wanted


def test_several_places() -> None:
    wanted = ("virta://127.0.0.1:7400", "virtas://0.0.0.0:7443")
    assert resolve(flags={"listen": "127.0.0.1:7400, virtas://0.0.0.0:7443"})["listen"] == wanted
    assert resolve(file={"listen": list(wanted)})["listen"] == wanted


def test_what_a_reload_takes_in() -> None:
    before = resolve()
    after = resolve(flags={"limits.connections": "5", "http.listen": "127.0.0.1:1"})
    assert before.needing_restart(after) == ["http.listen"]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    with pytest.raises(NotFound):
        read_file(path)
    path.write_text('[limits]\nframe_bytes = "8MiB"\nconnections_per_user = "none"\n')
    limits = resolve(file=read_file(path)).limits
    assert limits.frame_bytes == 8 * 1024 * 1024 and limits.connections_per_user is None
    for content in (b"x = [", b"\xff", b"#" * 2_000_000):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="not readable as TOML"):
            read_file(path)


def test_assignments() -> None:
    assert parse_assignments(("a=1", " b = x=y ")) == {"a": "1", "b": "x=y"}
    with pytest.raises(UsageError, match="name=value"):
        parse_assignments(("a",))
