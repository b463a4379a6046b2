"""Who is known to a broker and what they may do: users, tokens and permissions, as one value.

Changes give a new value; `access_file` keeps it. As a file it is TOML, so that a person can read
it, and holds nothing that logs in: SCRAM verifiers, no passwords and no tokens.

    format = 1
    version = 7                       rises with each change
    decoy_key = "…"                   makes salts for users that do not exist
    [users.ada]                       created_us, disabled, and unless only a certificate is to do:
                                      salt, iterations, stored_key, server_key (base64)
    [tokens.3f9c1a7b2d04]             user, created_us, expires_us, note, only, and the same four
    [[permissions]]                   who, verbs, topics, denies

It is valid if every field has its type, every token's user is there, and nothing else is in it:
a word that is not understood might be a denial.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from virta.errors import AlreadyExists, NotFound, UsageError
from virta.security.permissions import Grant, Permission, check_pattern, check_who, parse_grant, parse_verbs
from virta.security.principal import check_user_name
from virta.security.scram import DEFAULT_ITERATIONS, LEAST_ITERATIONS, MOST_ITERATIONS, Verifier
from virta.security.tokens import PREFIX, Token, is_token_id

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who may log in; without a verifier only by certificate or token."""

    name: str
    created_us: int
    verifier: Verifier | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything the broker decides by."""

    version: int = 0
    decoy_key: bytes = field(repr=False)
    users: Mapping[str, User] = field(default_factory=dict)
    tokens: Mapping[str, Token] = field(default_factory=dict)
    permissions: tuple[Permission, ...] = ()

    @classmethod
    def empty(cls) -> Access:
        return cls(decoy_key=secrets.token_bytes(32))

    # -- questions -------------------------------------------------------------------------------

    @property
    def is_set_up(self) -> bool:
        """Whether anybody was ever made known; removing the last user does not undo that."""
        return self.version > 0

    def active_user(self, name: str) -> User | None:
        user = self.users.get(name)
        return None if user is None or user.disabled else user

    def active_token(self, identity: str, now_us: int) -> Token | None:
        token = self.tokens.get(identity)
        if token is None or token.has_expired(now_us) or self.active_user(token.user) is None:
            return None
        return token

    def decoy_iterations(self, name: str) -> int:
        """As most users (or all tokens) have them, so that an unknown name does not stand out."""
        if name.startswith(PREFIX):
            return LEAST_ITERATIONS
        counts = [user.verifier.iterations for user in self.users.values() if user.verifier]
        return max(set(counts), key=counts.count, default=DEFAULT_ITERATIONS)

    # -- changes ---------------------------------------------------------------------------------

    def with_user(self, user: User) -> Access:
        check_user_name(user.name)
        if user.name in self.users:
            raise AlreadyExists(
                f"there is a user {user.name!r} already", hint=f"virta user passwd {user.name}"
            )
        return self._changed(users={**self.users, user.name: user})

    def with_changed_user(self, name: str, **changes: Any) -> Access:
        user = dataclasses.replace(self.user(name), **changes)
        return self._changed(users={**self.users, name: user})

    def without_user(self, name: str) -> Access:
        """Without a user, their tokens and the rules that name them: the next of that name starts anew."""
        self.user(name)
        return self._changed(
            users={each: user for each, user in self.users.items() if each != name},
            tokens={each: token for each, token in self.tokens.items() if token.user != name},
            permissions=tuple(rule for rule in self.permissions if rule.who != name),
        )

    def with_token(self, token: Token) -> Access:
        self.user(token.user)
        return self._changed(tokens={**self.tokens, token.id: token})

    def without_token(self, identity: str) -> Access:
        if identity not in self.tokens:
            raise NotFound(f"there is no token {identity[:40]!r}", hint="virta token ls")
        return self._changed(tokens={each: token for each, token in self.tokens.items() if each != identity})

    def without_expired(self, now_us: int) -> Access:
        kept = {each: token for each, token in self.tokens.items() if not token.has_expired(now_us)}
        return self if len(kept) == len(self.tokens) else self._changed(tokens=kept)

    def with_permission(self, rule: Permission) -> Access:
        if check_who(rule.who) not in ("everyone", "anonymous"):
            self.user(rule.who)
        if rule in self.permissions:
            return self
        return self._changed(permissions=(*self.permissions, rule))

    def without_permission(self, rule: Permission) -> Access:
        if rule not in self.permissions:
            raise NotFound(f"there is no rule “{rule}”", hint="virta permission ls")
        return self._changed(permissions=tuple(each for each in self.permissions if each != rule))

    def user(self, name: str) -> User:
        if name not in self.users:
            raise NotFound(f"there is no user {name[:128]!r}", hint="virta user ls")
        return self.users[name]

    def _changed(self, **changes: Any) -> Access:
        return dataclasses.replace(self, version=self.version + 1, **changes)


# -- as a document -------------------------------------------------------------------------------


def to_document(access: Access) -> dict[str, Any]:
    return {
        "format": FORMAT_VERSION,
        "version": access.version,
        "decoy_key": _text(access.decoy_key),
        "users": {name: _user_document(user) for name, user in sorted(access.users.items())},
        "tokens": {name: _token_document(token) for name, token in sorted(access.tokens.items())},
        "permissions": [_permission_document(rule) for rule in access.permissions],
    }


def _user_document(user: User) -> dict[str, Any]:
    document: dict[str, Any] = {"created_us": user.created_us, "disabled": user.disabled}
    return document | (_verifier_document(user.verifier) if user.verifier else {})


def _token_document(token: Token) -> dict[str, Any]:
    document: dict[str, Any] = {"user": token.user, "created_us": token.created_us, "note": token.note}
    if token.expires_us is not None:
        document["expires_us"] = token.expires_us
    if token.only is not None:
        document["only"] = [str(grant) for grant in token.only]
    return document | _verifier_document(token.verifier)


def _verifier_document(verifier: Verifier) -> dict[str, Any]:
    return {
        "salt": _text(verifier.salt),
        "iterations": verifier.iterations,
        "stored_key": _text(verifier.stored_key),
        "server_key": _text(verifier.server_key),
    }


def _permission_document(rule: Permission) -> dict[str, Any]:
    verbs, _, topics = str(rule.grant).partition(":")
    return {"who": rule.who, "verbs": verbs.split(","), "topics": topics, "denies": rule.denies}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parse_access(text: str) -> Access:
    """The value of a file's text, or a UsageError that says which field is wrong."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"the list of users is not readable as TOML: {error}") from error
    top = _Table(document, "the list of users")
    if top.number("format") > FORMAT_VERSION:
        raise UsageError(
            f"the list of users has format {document['format']}; this version knows {FORMAT_VERSION}",
            hint="install a newer version of virta",
        )
    version, decoy_key = top.number("version"), top.binary("decoy_key")
    if len(decoy_key) < 16:
        raise UsageError("the list of users has a decoy_key that is too short")
    users = {name: _parse_user(name, table) for name, table in top.tables("users")}
    tokens = {name: _parse_token(name, table) for name, table in top.tables("tokens")}
    rules = tuple(_parse_permission(each) for each in top.list_of_tables("permissions"))
    top.finish()
    for token in tokens.values():
        if token.user not in users:
            raise UsageError(f"token {token.id} stands for {token.user!r}, who is not a user")
    return Access(version=version, decoy_key=decoy_key, users=users, tokens=tokens, permissions=rules)


def _parse_user(name: str, table: _Table) -> User:
    user = User(
        name=check_user_name(name),
        created_us=table.number("created_us"),
        disabled=table.truth("disabled"),
        verifier=_parse_verifier(table) if "stored_key" in table else None,
    )
    table.finish()
    return user


def _parse_token(name: str, table: _Table) -> Token:
    if not is_token_id(name):
        raise UsageError(f"the list of users holds a token with the id {name[:40]!r}")
    only = table.texts("only") if "only" in table else None
    token = Token(
        id=name,
        user=table.text("user"),
        created_us=table.number("created_us"),
        expires_us=table.number("expires_us") if "expires_us" in table else None,
        note=table.text("note") if "note" in table else "",
        only=None if only is None else tuple(parse_grant(each) for each in only),
        verifier=_parse_verifier(table),
    )
    table.finish()
    return token


def _parse_verifier(table: _Table) -> Verifier:
    verifier = Verifier(
        salt=table.binary("salt"),
        iterations=table.number("iterations"),
        stored_key=table.binary("stored_key"),
        server_key=table.binary("server_key"),
    )
    keys = (verifier.stored_key, verifier.server_key)
    if any(len(key) != 32 for key in keys) or not 8 <= len(verifier.salt) <= 64:
        raise UsageError(f"{table.place} has keys of the wrong length")
    if not LEAST_ITERATIONS <= verifier.iterations <= MOST_ITERATIONS:
        raise UsageError(f"{table.place} has {verifier.iterations} iterations")
    return verifier


def _parse_permission(table: _Table) -> Permission:
    verbs = parse_verbs(",".join(table.texts("verbs")))
    rule = Permission(
        who=check_who(table.text("who")),
        grant=Grant(verbs=verbs, topics=check_pattern(table.text("topics"))),
        denies=table.truth("denies"),
    )
    table.finish()
    return rule


class _Table:
    """A table of the document, read field by field; at the end nothing may be left."""

    def __init__(self, values: Any, place: str) -> None:
        if not isinstance(values, dict):
            raise UsageError(f"{place} is no table")
        self._values = dict(values)
        self.place = place

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def number(self, name: str) -> int:
        value = self._take(name, int)
        if isinstance(value, bool) or value < 0:
            raise UsageError(f"{self.place}: {name} is no number of that kind")
        return int(value)

    def text(self, name: str) -> str:
        return str(self._take(name, str))

    def truth(self, name: str) -> bool:
        return bool(self._take(name, bool)) if name in self else False

    def texts(self, name: str) -> list[str]:
        values = self._take(name, list)
        if not all(isinstance(value, str) for value in values):
            raise UsageError(f"{self.place}: {name} is a list of texts")
        return list(values)

    def binary(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.text(name), validate=True)
        except binascii.Error:
            raise UsageError(f"{self.place}: {name} is not base64") from None

    def tables(self, name: str) -> list[tuple[str, _Table]]:
        found = self._take(name, dict) if name in self else {}
        return [(key, _Table(value, f"{name}.{key[:40]}")) for key, value in found.items()]

    def list_of_tables(self, name: str) -> list[_Table]:
        found = self._take(name, list) if name in self else []
        return [_Table(value, f"{name}[{at}]") for at, value in enumerate(found)]

    def _take(self, name: str, kind: type) -> Any:
        if name not in self._values:
            raise UsageError(f"{self.place} has no {name}")
        value = self._values.pop(name)
        if not isinstance(value, kind):
            raise UsageError(f"{self.place}: {name} is not of the right kind")
        return value

    def finish(self) -> None:
        if self._values:
            raise UsageError(
                f"{self.place} holds {', '.join(map(repr, sorted(self._values)))}, which nobody understands",
                hint="change it with virta user, virta token and virta permission",
            )
