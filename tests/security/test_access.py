"""Users, tokens and permissions: as a value, as a file, and as a file that somebody spoiled."""

from __future__ import annotations

import os
import random
import stat
import threading
from pathlib import Path

import pytest
import tomli_w

from virta.errors import AlreadyExists, Denied, NotFound, UsageError, VirtaError
from virta.security.access import Access, User, parse_access, to_document
from virta.security.access_file import AccessFile, change_access, load_access
from virta.security.permissions import Permission, parse_grant
from virta.security.scram import make_verifier
from virta.security.tokens import new_token, split_token

PASSWORD = "correct horse"
TOKEN, KEPT = new_token(
    "ada", now_us=5, expires_us=100, note="nightly", only=(parse_grant("produce:orders*"),)
)


def filled() -> Access:
    access = Access.empty()
    access = access.with_user(
        User(name="ada", created_us=1, verifier=make_verifier(PASSWORD, iterations=4096))
    )
    access = access.with_user(User(name="gate", created_us=2, disabled=True))
    access = access.with_token(KEPT)
    return access.with_permission(Permission(who="ada", grant=parse_grant("produce:o*"), denies=True))


def text_of(access: Access) -> str:
    return tomli_w.dumps(to_document(access))


def test_it_is_the_same_after_writing_and_reading() -> None:
    access = filled()
    assert parse_access(text_of(access)) == access
    assert access.version == 4


def test_the_text_holds_no_secret() -> None:
    text = text_of(filled())
    assert PASSWORD not in text and split_token(TOKEN)[1] not in text


def test_changes() -> None:
    access = filled()
    with pytest.raises(AlreadyExists):
        access.with_user(User(name="ada", created_us=1))
    with pytest.raises(NotFound):
        access.with_permission(Permission(who="bob", grant=parse_grant("all:*")))
    with pytest.raises(NotFound):
        access.without_token("0" * 12)
    rule = access.permissions[0]
    assert access.with_permission(rule) is access
    assert access.without_permission(rule).permissions == ()
    gone = access.without_user("ada")
    assert not gone.tokens and not gone.permissions and list(gone.users) == ["gate"]
    assert gone.is_set_up and not Access.empty().is_set_up


def test_who_is_active() -> None:
    access = filled()
    assert access.active_user("ada") and not access.active_user("gate") and not access.active_user("x")
    assert access.active_token(KEPT.id, 99)
    assert not access.active_token(KEPT.id, 100)
    assert not access.with_changed_user("ada", disabled=True).active_token(KEPT.id, 99)


@pytest.mark.parametrize(
    ("found", "put", "said"),
    [
        ("format = 1", "format = 2", "newer version"),
        ("denies = true", 'denies = "yes"', "denies"),
        ("denies = true", "denise = true", "denise"),
        ("disabled = true", "disabled = true\nrole = 'admin'", "role"),
        ("iterations = 4096", "iterations = 1", "iterations"),
        ("created_us = 1", "created_us = true", "created_us"),
        ('user = "ada"', 'user = "eve"', "eve"),
        ("[users.gate]", '[users."-x"]', "cannot be the name"),
        ('salt = "', 'salt = "!', "base64"),
        ('stored_key = "', 'stored_key = "AAAA', "wrong length"),
        ("decoy_key", "decoy", "decoy_key"),
        ('"produce"', '"destroy"', "verbs"),
        ("format = 1", "format = [", "TOML"),
    ],
)
def test_what_is_not_understood_is_refused(found: str, put: str, said: str) -> None:
    text = text_of(filled())
    assert found in text
    with pytest.raises(UsageError, match=said):
        parse_access(text.replace(found, put, 1))


def test_spoiled_texts_are_refused_as_ours() -> None:
    text, source = text_of(filled()), random.Random(6)
    for _ in range(1500):
        at = source.randrange(len(text))
        spoiled = (
            text[:at] + source.choice(["", "x", '"', "[", "=", "\n", "9"]) + text[at + source.randint(0, 3) :]
        )
        try:
            parse_access(spoiled)
        except VirtaError:
            continue


# -- as a file -----------------------------------------------------------------------------------


def test_the_file_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "broker" / "access.toml"
    assert load_access(path) is None
    change_access(path, lambda _: filled())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(each.name for each in path.parent.iterdir()) == ["access.toml", "access.toml.lock"]
    path.chmod(0o640)
    with pytest.raises(Denied, match="0640") as caught:
        load_access(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    before = change_access(path, lambda _: filled())
    with pytest.raises(NotFound):
        change_access(path, lambda access: access.without_user("nobody"))
    assert load_access(path) == before


def test_changes_at_the_same_time_all_count(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"

    def add(number: int) -> None:
        change_access(path, lambda access: access.with_user(User(name=f"user{number}", created_us=0)))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    access = load_access(path)
    assert access is not None and len(access.users) == 12 and access.version == 12


def test_a_running_broker_sees_changes_and_keeps_what_it_knew_when_they_are_none(tmp_path: Path) -> None:
    path, complaints = tmp_path / "access.toml", []
    file = AccessFile(path, complain=complaints.append)
    assert not file.current(0.0).is_set_up
    change_access(path, lambda _: filled())
    assert not file.current(0.05).is_set_up  # looked at a moment ago
    assert file.current(0.1) == filled_like(file.current(0.1))
    assert "ada" in file.current(2.0).users
    path.write_text("nonsense")
    assert "ada" in file.current(3.0).users
    assert "ada" in file.current(4.0).users
    path.unlink()
    assert "ada" in file.current(5.0).users
    assert len(complaints) == 2 and "gone" in str(complaints[1])
    with pytest.raises(UsageError, match="gone"):
        file.reload()


def filled_like(access: Access) -> Access:
    return parse_access(text_of(access))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    change_access(path, lambda _: filled())
    os.chown(path, 12345, -1)
    with pytest.raises(Denied, match="somebody else"):
        load_access(path)


def test_tokens() -> None:
    identity, secret = split_token(f"  {TOKEN}\n")
    assert identity == KEPT.id and len(secret) == 43
    assert new_token("ada", now_us=0)[0] != TOKEN
    with pytest.raises(UsageError) as caught:
        split_token("virta_nonsense_secret")
    assert "nonsense" not in str(caught.value)
