"""`virta user`, `token` and `permission`: changed where the log is, noted, and no secret in sight."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from virta.cli.access import new_password
from virta.errors import UsageError
from virta.security.access import Access
from virta.security.access_file import load_access
from virta.security.scram import matches
from virta.security.tokens import split_token

PASSWORD = "correct horse battery"


def access(cli: Cli) -> Access:
    found = load_access(cli.path / "broker" / "access.toml")
    assert found is not None
    return found


@pytest.fixture
def ada(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    with monkeypatch.context() as patch:
        patch.setenv("VIRTA_NEW_PASSWORD", PASSWORD)
        done = cli.ok("user", "add", "ada", "--allow", "produce,consume:orders*")
    assert "asks everybody for a login" in done.err and not done.out
    return cli


def has_password(cli: Cli, user: str, password: str) -> bool:
    verifier = access(cli).users[user].verifier
    return verifier is not None and matches(verifier, password)


def test_a_user_from_first_to_last(ada: Cli, tmp_path: Path) -> None:
    assert has_password(ada, "ada", PASSWORD)
    (row,) = ada.ok("user", "ls").rows
    assert (row["user"], row["login"], row["permissions"], row["disabled"]) == ("ada", "password", 1, False)
    file = tmp_path / "password"
    file.write_text("another password\n")
    ada.ok("user", "passwd", "ada", "--password-file", file)
    assert has_password(ada, "ada", "another password")
    ada.ok("user", "passwd", "ada", "--password-file", "-", stdin="a third password\n")
    assert has_password(ada, "ada", "a third password")
    ada.ok("user", "disable", "ada")
    assert access(ada).active_user("ada") is None
    ada.ok("user", "enable", "ada")
    assert access(ada).active_user("ada") is not None
    ada.ok("user", "rm", "ada")
    assert not access(ada).users and not access(ada).permissions


def test_a_password_that_is_made_up(ada: Cli) -> None:
    made = ada.ok("user", "passwd", "ada", "--generate", "-q")
    assert has_password(ada, "ada", made.out.strip()) and not made.err
    made = ada.ok("user", "add", "bob", "--generate")
    assert has_password(ada, "bob", made.out.strip()) and made.out.strip() not in made.err


def test_passwords_that_are_refused(ada: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no terminal to ask" in ada("user", "passwd", "ada").err
    short = ada("user", "passwd", "ada", "--password-file", "-", stdin="seven77\n")
    assert short.code == 2 and "fewer than 8" in short.err and "seven77" not in short.err
    assert ada("user", "add", "bob", "--no-password", "--generate").code == 2
    assert has_password(ada, "ada", PASSWORD)


def test_what_goes_wrong(ada: Cli) -> None:
    taken = ada("user", "add", "ada", "--generate")
    assert taken.code == 7 and "already" in taken.err and not taken.out
    assert ada("user", "passwd", "eve").code == 3
    assert ada("user", "rm", "eve").code == 3
    assert ada("user", "add", "not a name", "--generate").code == 2
    far = ada("-l", "virta://host", "user", "ls")
    assert far.code == 2 and "where the log is" in far.err


def test_tokens(ada: Cli, tmp_path: Path) -> None:
    made = ada.ok(
        "token", "create", "ada", "--expires", "90d", "--only", "consume:orders", "--note", "nightly"
    )
    identity, _ = split_token(made.out)
    assert made.out.strip() not in made.err and identity in made.err
    (row,) = ada.ok("token", "ls", "ada").rows
    assert (row["token"], row["user"], row["only"], row["note"]) == (
        identity,
        "ada",
        "consume:orders",
        "nightly",
    )
    assert row["expires"] and not row["expired"]
    file = tmp_path / "token"
    assert not ada.ok("token", "create", "ada", "--token-file", file).out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second, _ = split_token(file.read_text())
    assert "there already" in ada("token", "create", "ada", "--token-file", file).err
    slip = ada("token", "rm", made.out.strip())
    assert slip.code == 2 and "history" in slip.err
    ada.ok("token", "rm", identity)
    assert set(access(ada).tokens) == {second}
    assert ada("token", "rm", identity).code == 3
    assert ada("token", "rm").code == 2 and ada("token", "create", "eve").code == 3


def test_expired_tokens_are_swept(ada: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ada.ok("token", "create", "ada", "--expires", "1ms", "-q")
    ada.ok("token", "create", "ada", "-q")
    monkeypatch.setattr("virta.cli.token.time.time_ns", lambda: 4_000_000_000 * 10**9)
    assert "removed 1 expired token" in ada.ok("token", "rm", "--expired").err
    assert len(access(ada).tokens) == 1


def test_permissions(ada: Cli) -> None:
    ada.ok("permission", "add", "everyone", "consume", "*")
    ada.ok("permission", "add", "ada", "consume", "payroll", "--deny")
    rows = ada.ok("permission", "ls").rows
    assert [(row["who"], row["effect"], row["verbs"], row["topics"]) for row in rows] == [
        ("ada", "allow", "produce,consume", "orders*"),
        ("everyone", "allow", "consume", "*"),
        ("ada", "deny", "consume", "payroll"),
    ]
    assert "allowed" in ada.ok("permission", "check", "ada", "produce", "orders-eu").out
    denied = ada("permission", "check", "ada", "consume", "payroll", "-o", "json")
    assert denied.code == 6 and json.loads(denied.out)["allowed"] is False
    assert ada("permission", "check", "-q", "anonymous", "consume", "orders").code == 6
    ada.ok("permission", "rm", "ada", "consume", "payroll", "--deny")
    assert ada.ok("permission", "check", "ada", "consume", "payroll").code == 0
    assert ada("permission", "rm", "ada", "consume", "payroll", "--deny").code == 3
    assert ada("permission", "add", "eve", "all", "*").code == 3
    assert ada("permission", "add", "ada", "read", "*").code == 2


def test_publicly_writable_topics_count(ada: Cli) -> None:
    ada.ok("topic", "create", "clicks", "id:int", "--public-write")
    assert "publicly writable" in ada.ok("permission", "check", "anonymous", "produce", "clicks").out


def test_every_change_is_noted_and_no_secret_is(ada: Cli) -> None:
    ada.ok("user", "passwd", "ada", "--password-file", "-", stdin="another password\n")
    text = ada.ok("token", "create", "ada").out.strip()
    ada.ok("permission", "add", "everyone", "consume", "*")
    ada.ok("user", "rm", "ada")
    rows = ada.ok("read", "__events").rows
    kinds = [row["kind"] for row in rows]
    assert kinds == ["user added", "password set", "token created", "permission added", "user removed"]
    secrets = ("another password", PASSWORD, split_token(text)[1])
    everything = b"".join(path.read_bytes() for path in ada.path.rglob("*") if path.is_file())
    assert not any(secret.encode() in everything for secret in secrets)


def test_passwords_are_asked_for_twice_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answers = [PASSWORD, PASSWORD, PASSWORD, "a slip of the finger"]

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return answers[len(asked) - 1]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("virta.cli.access.getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin", Terminal())
    assert new_password(None, False, user="ada") == PASSWORD
    assert "ada" in asked[0]
    with pytest.raises(UsageError, match="differ"):
        new_password(None, False, user="ada")


def test_the_file_is_its_owners_only(ada: Cli) -> None:
    path = ada.path / "broker" / "access.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    refused = ada("user", "ls")
    assert refused.code == 6 and "chmod 600" in refused.err
