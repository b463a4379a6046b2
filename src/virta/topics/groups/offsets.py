"""How far groups came, as rows of the internal topic `__offsets`: the newest row of a key is the truth.

Whoever knows the positions up to some row of it reads on from there (`Known`), so neither
opening a group nor a commit reads the whole topic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from virta.errors import NotFound
from virta.metadata.internal import OFFSETS
from virta.requests import parse_token
from virta.topics.groups.model import Commit, GroupKey
from virta.types import Token

# Rows that came since which a group's own reading is cheaper than a look at all groups.
_FEW_ROWS = 1000
_COLUMNS = ("group", "topic_id", "partition", "token", "epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A group's positions as the rows of `__offsets` before `seen` have them."""

    tokens: Mapping[int, str] = field(default_factory=dict)
    seen: int = 0
    epoch: int = 0  # the highest assignment epoch that committed

    def token(self, partition: int) -> Token | None:
        text = self.tokens.get(partition)
        return None if text is None else parse_token(text)


class _Standing:
    """Where all groups stand, by the rows of `__offsets` so far: each row is read once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = 0
        self._tokens: dict[GroupKey, dict[int, str]] = {}
        self._epochs: dict[GroupKey, int] = {}

    def follow(self, topic: Any) -> _Standing:
        """Take in the rows that came since."""
        with self._lock:
            end = topic.next_offset
            if end < self._seen:  # the log was put in another's place
                self._seen, self._tokens, self._epochs = 0, {}, {}
            for row in topic[self._seen : end].columns("topic", *_COLUMNS):
                self._take(row)
            self._seen = end
        return self

    def _take(self, row: Any) -> None:
        key = GroupKey(group=row["group"], topic=row["topic"], topic_id=row["topic_id"])
        self._epochs[key] = max(self._epochs.get(key, 0), row["epoch"])
        tokens = self._tokens.setdefault(key, {})
        if row["token"] is None or row.deleted:
            tokens.pop(row["partition"], None)
        else:
            tokens[row["partition"]] = row["token"]

    def keys(self) -> set[GroupKey]:
        with self._lock:
            return {key for key, tokens in self._tokens.items() if tokens}

    def known(self, key: GroupKey, before: Known) -> Known:
        """What is known of one group, which was known up to some row before."""
        with self._lock:
            epoch = max(before.epoch, self._epochs.get(key, 0))
            return Known(tokens=dict(self._tokens.get(key, {})), seen=self._seen, epoch=epoch)


class Offsets:
    def __init__(self, open_topic: Callable[..., Any]) -> None:
        self._open_topic = open_topic
        self._topic: Any = None
        self._all = _Standing()

    def _opened(self, *, create: bool) -> Any:
        """The topic, looked for until it is there; it is never taken away."""
        if self._topic is None:
            self._topic = self._open_topic(OFFSETS, create=create)
        return self._topic

    def list_keys(self) -> set[GroupKey]:
        """All groups that have a position."""
        try:
            topic = self._opened(create=False)
        except NotFound:
            return set()
        return self._all.follow(topic).keys()

    def catch_up(self, key: GroupKey, known: Known) -> Known:
        """Take in what was committed since."""
        try:
            topic = self._opened(create=False)
        except NotFound:
            return Known()
        end = topic.next_offset
        if end < known.seen:
            known = Known()  # the log was put in another's place
        if end == known.seen:
            return known
        if end - known.seen > _FEW_ROWS:  # of others, mostly: all groups are read once, not each for itself
            return self._all.follow(topic).known(key, known)
        tokens, epoch = dict(known.tokens), known.epoch
        for row in topic[known.seen : end].columns(*_COLUMNS):
            if row["group"] == key.group and row["topic_id"] == key.topic_id:
                epoch = max(epoch, row["epoch"])
                if row["token"] is None or row.deleted:
                    tokens.pop(row["partition"], None)
                else:
                    tokens[row["partition"]] = row["token"]
        return replace(known, tokens=tokens, seen=end, epoch=epoch)

    def commit(
        self, key: GroupKey, known: Known, commits: Mapping[int, Commit | None], member: str | None
    ) -> Known:
        """Note positions; None takes one away. The group is held, so nobody else commits for it."""
        rows = [
            {
                "group": key.group,
                "topic": key.topic,
                "topic_id": key.topic_id,
                "partition": partition,
                "token": None if commit is None else str(commit.token),
                "offset": None if commit is None else commit.token.offset,
                "epoch": known.epoch if commit is None else commit.epoch,
                "member": member,
            }
            for partition, commit in commits.items()
        ]
        ack = self._opened(create=True)._append_own(rows)
        if ack.first_offset != known.seen:
            return self.catch_up(key, known)  # other groups committed in between
        tokens = {number: text for number, text in known.tokens.items() if number not in commits}
        tokens |= {number: str(commit.token) for number, commit in commits.items() if commit is not None}
        epochs = [commit.epoch for commit in commits.values() if commit is not None]
        return Known(tokens=tokens, seen=ack.last_offset + 1, epoch=max([known.epoch, *epochs]))
