"""What somebody may do with a topic: rules, and the one function that decides by them.

    ada       produce,consume    orders*       a rule: who, which verbs, which topics
    everyone  consume            *             whoever has logged in
    anonymous produce            clicks        whoever has not
    bob       deny consume       payroll       taken away again: a denial wins over every permission

Nothing is allowed unless a rule allows it. In a pattern `*` stands for any characters, and for
nothing else; a pattern covers internal topics (`__…`) only if it begins with `__` itself. What
concerns the log as a whole (and no topic) takes `administer` on `*`.

Pure: the same rules and question give the same answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from virta.errors import UsageError
from virta.security.principal import LOCAL, RESERVED, Principal, check_user_name

INTERNAL = "__"
EVERYONE = "everyone"
ANONYMOUS = "anonymous"
_PATTERN_LIMIT = 1024  # as long as a topic's name may be


class Verb(enum.StrEnum):
    """What can be allowed on a topic."""

    PRODUCE = "produce"  # append rows, update and delete them by key
    CONSUME = "consume"  # read, tail, query, verify; take part in groups
    ADMINISTER = "administer"  # create, alter, lock, drop, erase; reset groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Verbs on all topics of a pattern."""

    verbs: frozenset[Verb]
    topics: str

    def covers(self, verb: Verb, topic: str | None) -> bool:
        return verb in self.verbs and matches(self.topics, topic)

    def __str__(self) -> str:
        verbs = ",".join(verb for verb in Verb if verb in self.verbs)
        return f"{verbs}:{self.topics}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One rule: a grant for somebody, or its denial."""

    who: str
    grant: Grant
    denies: bool = False

    def concerns(self, principal: Principal) -> bool:
        if not principal.is_known:
            return self.who == ANONYMOUS
        return self.who in (principal.name, EVERYONE)

    def __str__(self) -> str:
        return f"{self.who} {'deny' if self.denies else 'allow'} {self.grant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer, and why it is so."""

    allowed: bool
    reason: str


def matches(pattern: str, topic: str | None) -> bool:
    """Whether a pattern covers a topic; None is the log as a whole. Takes time linear in the name."""
    if topic is None:
        return pattern == "*"
    if topic.startswith(INTERNAL) and not pattern.startswith(INTERNAL):
        return False
    first, *others = pattern.split("*")
    if not others:
        return topic == pattern
    *middle, last = others
    if len(first) + len(last) > len(topic) or not (topic.startswith(first) and topic.endswith(last)):
        return False
    at, end = len(first), len(topic) - len(last)
    for piece in middle:
        found = topic.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def decide(
    rules: Iterable[Permission],
    principal: Principal,
    verb: Verb,
    topic: str | None,
    *,
    publicly_writable: bool = False,
) -> Decision:
    """Whether somebody may do something with a topic."""
    if principal == LOCAL:
        return Decision(allowed=True, reason="this broker knows no users and only this machine reaches it")
    allowing: Permission | None = None
    for rule in rules:
        if not (rule.concerns(principal) and rule.grant.covers(verb, topic)):
            continue
        if rule.denies:
            return Decision(allowed=False, reason=f"the rule “{rule}” denies it")
        allowing = allowing or rule
    if allowing is not None:
        return Decision(allowed=True, reason=f"the rule “{allowing}” allows it")
    if publicly_writable and verb is Verb.PRODUCE:
        return Decision(allowed=True, reason="the topic is publicly writable")
    return Decision(allowed=False, reason="no rule allows it")


# -- as people write them ------------------------------------------------------------------------


def parse_verbs(text: str) -> frozenset[Verb]:
    """`produce,consume`, or `all`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return frozenset(Verb)
    try:
        verbs = frozenset(Verb(word) for word in words)
    except ValueError:
        verbs = frozenset()
    if not verbs:
        raise UsageError(
            f"{text[:100]!r} names no verbs",
            hint=f"one or several of {', '.join(Verb)}, separated by commas, or all",
        )
    return verbs


def check_pattern(pattern: str) -> str:
    if not pattern or len(pattern.encode()) > _PATTERN_LIMIT or not pattern.isprintable():
        raise UsageError(
            f"{pattern[:40]!r} is no pattern of topics",
            hint="a topic's name, in which * stands for any characters: orders, orders-*, *",
        )
    return pattern


def parse_grant(text: str) -> Grant:
    """`produce,consume:orders*`."""
    verbs, colon, pattern = text.partition(":")
    if not colon:
        raise UsageError(
            f"{text[:100]!r} is no permission", hint="VERBS:TOPICS, as in produce,consume:orders*"
        )
    return Grant(verbs=parse_verbs(verbs), topics=check_pattern(pattern))


def check_who(who: str) -> str:
    """A user, `everyone` (who has logged in) or `anonymous` (who has not)."""
    if who in (EVERYONE, ANONYMOUS):
        return who
    if who in RESERVED:
        raise UsageError(f"no permission is for {who!r}")
    return check_user_name(who)
