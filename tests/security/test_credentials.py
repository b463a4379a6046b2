"""Where a connection finds its credentials, and where they may not stand."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from virta.errors import Denied, NotFound, UsageError
from virta.security.address import Address, is_broker_address, parse_address
from virta.security.credentials import (
    credentials_path,
    find_credentials,
    keep_credentials,
    kept_credentials,
)
from virta.security.tokens import new_token, split_token

FINGERPRINT = "sha256:" + "ab" * 32
TOKEN, KEPT = new_token("ada", now_us=0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("virta://host", Address(host="host")),
        ("virta://host:1/", Address(host="host", port=1)),
        ("virtas://ada@host:7500", Address(host="host", port=7500, tls=True, user="ada")),
        ("virta://[::1]:7400", Address(host="::1")),
        (f"virta://h?fingerprint={FINGERPRINT}", Address(host="h", tls=True, fingerprint=FINGERPRINT)),
        ("virtas://h?ca_file=/a/b.pem", Address(host="h", tls=True, ca_file="/a/b.pem")),
        ("virtas://a%40b.c@h", Address(host="h", tls=True, user="a@b.c")),
    ],
)
def test_addresses(text: str, wanted: Address) -> None:
    assert parse_address(text) == wanted
    assert is_broker_address(text) and not is_broker_address("./events")


def test_an_address_as_text() -> None:
    for text in (f"virtas://ada@[::1]:7400?fingerprint={FINGERPRINT}", "virta://host:7400"):
        assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("virtas://ada:hunter2@host", "no password"),
        ("virta://host?password=hunter2", "no password"),
        ("virta://host?token=hunter2", "no token"),
        ("virta://host?speed=hunter2", "speed"),
        ("virta://", "names no host"),
        ("virta://host:99999", "malformed"),
        ("virta://host:hunter2", "malformed"),
        ("virta://host/orders", "ends with its port"),
        ("virta://-bad@host", "cannot be the name"),
        ("virta://host?fingerprint=12", "fingerprint"),
        ("http://host", "no address of a broker"),
        ("virta://[::1", "malformed"),
    ],
)
def test_what_is_no_address(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_address(text)
    assert "hunter2" not in caught.value.message


# -- looking up ----------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_without_any(environment: dict[str, str]) -> None:
    found = find_credentials(Address(host="h"), environment=environment)
    assert found.name is None and found.secret is None and found.source == "nowhere"


def test_the_order_of_places(environment: dict[str, str], tmp_path: Path) -> None:
    address = Address(host="h", user="ada")
    path = credentials_path(environment)
    keep_credentials(path, "h:7400", {"user": "ada", "password": "kept", "fingerprint": FINGERPRINT})
    file = tmp_path / "password"
    file.write_text("from a file\n")

    def secret(**more: Any) -> str | None:
        return find_credentials(address, environment=environment, **more).secret

    assert secret() == "kept"
    assert secret(context={"password": "context"}) == "context"
    environment["VIRTA_PASSWORD_FILE"] = str(file)
    assert secret(context={"password": "context"}) == "from a file"
    assert secret(given={"password": "given"}) == "given"
    found = find_credentials(address, environment=environment)
    assert (found.name, found.source) == ("ada", "the environment")
    assert found.trust.fingerprint == FINGERPRINT
    assert "from a file" not in repr(found)


def test_the_password_of_another_user_is_not_tried(environment: dict[str, str]) -> None:
    environment |= {"VIRTA_USER": "bob", "VIRTA_PASSWORD": "x"}
    with pytest.raises(UsageError, match="no password for user 'ada'"):
        find_credentials(Address(host="h", user="ada"), environment=environment)
    assert find_credentials(Address(host="h"), environment=environment).name == "bob"


def test_tokens(environment: dict[str, str]) -> None:
    environment["VIRTA_TOKEN"] = TOKEN
    found = find_credentials(Address(host="h"), environment=environment)
    assert found.name == f"token:{KEPT.id}" and found.secret == split_token(TOKEN)[1]
    environment["VIRTA_PASSWORD"] = "x"
    with pytest.raises(UsageError, match="a password and a token"):
        find_credentials(Address(host="h"), environment=environment)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pasword": "x"}, "pasword"),
        ({"password": "x", "password_file": "y"}, "both"),
        ({"user": "ada", "password": ""}, "empty"),
        ({"token": "hunter2"}, "no API token"),
        ({"user": 7}, "is a text"),
    ],
)
def test_what_cannot_be_used(given: dict[str, Any], said: str, environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        find_credentials(Address(host="h"), given=given, environment=environment)
    assert "hunter2" not in str(caught.value)


def test_files_of_secrets(environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        find_credentials(
            Address(host="h", user="a"), given={"password_file": tmp_path / "x"}, environment=environment
        )
    for content in (b"", b"\n", b"\xff\xff", b"x" * 5000):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(UsageError, match="first line"):
            find_credentials(
                Address(host="h", user="a"), given={"password_file": tmp_path / "x"}, environment=environment
            )


def test_what_is_kept_is_its_owners_only(environment: dict[str, str]) -> None:
    path = credentials_path(environment)
    keep_credentials(path, "h:7400", {"user": "ada", "password": "x"})
    keep_credentials(path, "i:7400", {"fingerprint": FINGERPRINT, "user": None})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keep_credentials(path, "h:7400", {})
    assert kept_credentials(path) == {"i:7400": {"fingerprint": FINGERPRINT}}
    path.chmod(0o644)
    with pytest.raises(Denied, match="others can read it"):
        find_credentials(Address(host="h"), environment=environment)


def test_a_spoiled_file_is_told(environment: dict[str, str]) -> None:
    path = credentials_path(environment)
    for text in ("x = [", "x = 1"):
        keep_credentials(path, "h:7400", {"user": "ada"})
        path.write_text(text)
        with pytest.raises(UsageError, match=r"credentials\.toml"):
            kept_credentials(path)
        path.unlink()
