"""Rules and patterns: nothing without a rule, a denial wins, `*` means what it says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.errors import UsageError
from virta.security.permissions import (
    Grant,
    Permission,
    Verb,
    check_pattern,
    check_who,
    decide,
    matches,
    parse_grant,
    parse_verbs,
)
from virta.security.principal import ANONYMOUS, LOCAL, How, Principal, check_user_name

ADA = Principal(name="ada", how=How.PASSWORD)
NAMES = st.text("ab_*.", max_size=8)
PATTERNS = st.text("ab_*.", min_size=1, max_size=8)


def rule(who: str, grant: str, *, denies: bool = False) -> Permission:
    return Permission(who=who, grant=parse_grant(grant), denies=denies)


@given(PATTERNS, NAMES)
def test_patterns_match_as_a_slow_and_plain_rule_says(pattern: str, name: str) -> None:
    expression = ".*".join(re.escape(piece) for piece in pattern.split("*"))
    wanted = re.fullmatch(expression, name, re.DOTALL) is not None
    wanted = wanted and (not name.startswith("__") or pattern.startswith("__"))
    assert matches(pattern, name) is wanted


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 500 + "*b", "a" * 1024)  # exponential, if done badly


def test_the_log_as_a_whole_is_covered_by_a_star_only() -> None:
    assert matches("*", None)
    assert not matches("**", None) and not matches("orders", None)


def test_internal_topics_need_a_pattern_of_their_own() -> None:
    assert not matches("*", "__events")
    assert matches("__events", "__events") and matches("__*", "__events")


RULES = st.lists(
    st.tuples(
        st.sampled_from(["ada", "bob", "everyone", "anonymous"]),
        st.sampled_from(list(Verb)),
        PATTERNS,
        st.booleans(),
    )
)


@given(RULES, NAMES, st.sampled_from(list(Verb)), st.sampled_from([ADA, ANONYMOUS]))
def test_decisions(
    drawn: list[tuple[str, Verb, str, bool]], topic: str, verb: Verb, principal: Principal
) -> None:
    rules = [
        Permission(who=who, grant=Grant(verbs=frozenset([each]), topics=pattern), denies=denies)
        for who, each, pattern, denies in drawn
    ]
    decision = decide(rules, principal, verb, topic)
    names = {"ada", "everyone"} if principal is ADA else {"anonymous"}
    fitting = [
        each
        for each in rules
        if each.who in names and verb in each.grant.verbs and matches(each.grant.topics, topic)
    ]
    assert decision.allowed is (bool(fitting) and not any(each.denies for each in fitting))
    assert decision.reason
    # The order of rules says nothing, and a further permission never takes one away.
    assert decide(reversed(rules), principal, verb, topic).allowed is decision.allowed
    more = [*rules, rule("everyone", f"{verb}:*")]
    assert decide(more, principal, verb, topic).allowed >= decision.allowed
    assert decide(rules, LOCAL, verb, topic).allowed


def test_publicly_writable_topics() -> None:
    for principal in (ADA, ANONYMOUS):
        assert decide([], principal, Verb.PRODUCE, "clicks", publicly_writable=True).allowed
        assert not decide([], principal, Verb.CONSUME, "clicks", publicly_writable=True).allowed
    denied = [rule("anonymous", "produce:clicks", denies=True)]
    assert not decide(denied, ANONYMOUS, Verb.PRODUCE, "clicks", publicly_writable=True).allowed


def test_a_refusal_names_its_rule() -> None:
    rules = [rule("everyone", "all:*"), rule("ada", "consume:payroll", denies=True)]
    decision = decide(rules, ADA, Verb.CONSUME, "payroll")
    assert not decision.allowed and "ada deny consume:payroll" in decision.reason


def test_as_people_write_them() -> None:
    assert parse_verbs("produce, consume") == {Verb.PRODUCE, Verb.CONSUME}
    assert parse_verbs("all") == set(Verb)
    grant = parse_grant("consume,produce:orders*")
    assert str(grant) == "produce,consume:orders*" and parse_grant(str(grant)) == grant
    # A topic's name may hold a colon; verbs do not.
    assert parse_grant("consume:a:b").topics == "a:b"


@pytest.mark.parametrize("text", ["", "read:x", "produce", "produce:", ":x", "all,produce:x", "produce:a\nb"])
def test_what_is_no_permission_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_grant(text)


def test_names() -> None:
    assert check_who("everyone") == "everyone" and check_user_name("a.b@c-d+e") == "a.b@c-d+e"
    for bad in ("", "-x", "a b", "token:x", "a/b", "ä", "x" * 129, "local", "everyone"):
        with pytest.raises(UsageError):
            check_user_name(bad)
    with pytest.raises(UsageError):
        check_who("local")
    with pytest.raises(UsageError):
        check_pattern("x" * 1025)
