"""Where all groups stand, followed row by row: the same as reading everything anew, at any length."""

from __future__ import annotations

import random
from pathlib import Path

import virta
from virta.topics.groups import offsets


def test_groups_are_followed_as_they_would_be_read_anew(tmp_path: Path) -> None:
    random.seed(11)
    with virta.open(tmp_path / "log") as log:
        topics = [log.create_topic(name, {"n": int}) for name in ("a", "b")]
        for topic in topics:
            topic.append([{"n": n} for n in range(100)])
        wanted: dict[tuple[str, str], int] = {}
        for turn in range(offsets._FEW_ROWS + 200):
            topic, group = random.choice(topics), random.choice("xyz")
            place = random.randrange(100)
            topic.group(group).reset(place)
            wanted[group, topic.name] = place
            if turn % 300 == 0 and (group, topic.name) in wanted:
                topic.group(group).remove()
                del wanted[group, topic.name]
        assert stood(log) == wanted
        log.topic("a").group("late").reset(7)
        wanted["late", "a"] = 7
        assert stood(log) == wanted
        log.drop_topic("b")
        log.create_topic("b", {"n": int})
        wanted = {key: place for key, place in wanted.items() if key[1] != "b"}
        assert stood(log) == wanted
    with virta.open(tmp_path / "log") as log:
        assert stood(log) == wanted


def stood(log: virta.Log) -> dict[tuple[str, str], int]:
    return {(each.group, each.topic): each.partitions[0].offset or 0 for each in log.groups()}
