"""Which column becomes what. The first rule that fits a column decides; no rule, no copy.

    [[mask]]
    columns = ["email", "*_email"]     # names or patterns; "address.street" is a field of a struct
    mask = "email"

    [[mask]]
    topics = ["orders", "orders-*"]    # only there
    tags = ["public"]                  # columns whose field metadata `virta.tags` holds one of these
    mask = "keep"

A rule names columns, or tags, or both (then both have to fit). Beside `columns`, `tags`,
`topics` and `mask`, everything in a rule is an option of its method.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from blake3 import blake3

from virta.errors import UsageError
from virta.security.masking.key import MaskingKey
from virta.security.masking.methods import (
    Bucket,
    Constant,
    Drop,
    Hash,
    Keep,
    Method,
    Null,
    Partial,
    Redact,
    make,
)
from virta.security.masking.plan import MaskingPlan
from virta.security.masking.pseudonyms import Email, Name, Phone, Shaped
from virta.security.masking.shifting import DateShift, Noise

METHODS: dict[str, type[Method]] = {
    each.name: each
    for each in (
        Keep,
        Drop,
        Null,
        Constant,
        Redact,
        Partial,
        Hash,
        Email,
        Phone,
        Name,
        Shaped,
        DateShift,
        Bucket,
        Noise,
    )
}
TAGS = b"virta.tags"
_WORDS = ("columns", "tags", "topics", "mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRule:
    """One rule of a policy: for which columns, and what they become."""

    columns: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> MaskRule:
        method = written.get("mask")
        if not isinstance(method, str):
            raise UsageError(f"a rule says what its columns become: mask = …, in {dict(written)!r}")
        rule = cls(
            columns=_names(written, "columns"),
            tags=_names(written, "tags"),
            topics=_names(written, "topics"),
            method=method,
            options={name: value for name, value in written.items() if name not in _WORDS},
        )
        if not rule.columns and not rule.tags:
            raise UsageError(f"a rule for {method} names no columns and no tags", hint='columns = ["email"]')
        return rule

    def fits(self, topic: str, path: str, tags: frozenset[str]) -> bool:
        if self.topics and not _matches(topic, self.topics):
            return False
        if self.columns and not _matches(path, self.columns):
            return False
        return not self.tags or not tags.isdisjoint(self.tags)

    def document(self) -> dict[str, Any]:
        """The rule as it would be written."""
        named = {"columns": self.columns, "tags": self.tags, "topics": self.topics}
        written = {name: list(value) for name, value in named.items() if value}
        return {**written, "mask": self.method, **self.options}


def _names(written: Mapping[str, Any], word: str) -> tuple[str, ...]:
    value = written.get(word, [])
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) and each for each in found):
        raise UsageError(f"{word} is a list of names or patterns, not {value!r}")
    return tuple(found)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def tags_of(field_: pa.Field) -> frozenset[str]:
    """The tags in a field's metadata."""
    text = (field_.metadata or {}).get(TAGS, b"").decode("utf-8", "replace")
    return frozenset(filter(None, map(str.strip, text.split(","))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskPolicy:
    """Rules in their order."""

    rules: tuple[MaskRule, ...]

    @classmethod
    def of(cls, written: Iterable[Mapping[str, Any]]) -> MaskPolicy:
        policy = cls(rules=tuple(MaskRule.of(each) for each in written))
        spare = MaskingKey.of(b"only to look at the options of the rules")
        for rule in policy.rules:
            make(rule.method, dict(rule.options), spare, METHODS)
        return policy

    def hash(self) -> str:
        """Names the policy: the same rules in the same order give the same text."""
        text = json.dumps(
            [rule.document() for rule in self.rules], sort_keys=True, separators=(",", ":"), default=str
        )
        return blake3(text.encode()).hexdigest()

    def rule_for(self, topic: str, path: str, tags: frozenset[str]) -> MaskRule | None:
        return next((rule for rule in self.rules if rule.fits(topic, path, tags)), None)

    def plan(self, topic: str, schema: pa.Schema, key: MaskingKey | None = None) -> MaskingPlan:
        """The policy fitted to a topic's columns; Denied where one has no rule."""
        return MaskingPlan.of(topic, schema, self._chosen(topic, key))

    def _chosen(self, topic: str, key: MaskingKey | None) -> Any:
        def choose(path: str, tags: frozenset[str]) -> tuple[Method, Mapping[str, Any]] | None:
            rule = self.rule_for(topic, path, tags)
            if rule is None:
                return None
            return make(rule.method, dict(rule.options), key, METHODS), rule.options

        return choose
