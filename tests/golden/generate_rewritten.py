"""How the golden files of rewritten segments were made: `python -m tests.golden.generate_rewritten DIR`.

As those of `generate.py` they were written once and are never written again. What was noted
before the segments were rewritten (heads, tokens) is in `expected.json` beside them: it has
to stand after.

    users    an update topic of two segments, compacted to one, then keys and tombstones on top;
             its files of keys
    joined   rows that were appended one at a time in two segments, joined into one block
    erased   a block of its rows gone, one with a gap, one as it was; then joined as well
    spread   three partitions, rows by key
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import virta
from tests.golden.contents import describe_value, files_of
from tests.golden.generate import QUIET
from virta.log import Log
from virta.steward.steward import Steward
from virta.topics.topic import Topic


def main(root: Path) -> None:
    if root.exists():
        sys.exit(f"{root} is there already: golden files are written once")
    with virta.open(root / "log", settings=QUIET) as log:
        noted = {make.__name__: make(log) for make in (users, joined, erased, spread)}
        topics = {name: {**describe(log.topic(name)), "before": before} for name, before in noted.items()}
    document = {"files": files_of(root / "log"), "topics": topics}
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True)
    (root / "expected.json").write_text(text + "\n", encoding="utf-8")


def describe(topic: Topic) -> dict[str, Any]:
    return {
        "heads": {str(number): head for number, head in topic.heads.items()},
        "next_offsets": {str(number): offset for number, offset in topic.next_offsets.items()},
        "rows": [[row.partition, row.offset, describe_value(row.to_dict())] for row in topic],
    }


def note(topic: Topic) -> dict[str, Any]:
    """What somebody may have written down: every row's token, and the head, of each partition."""
    return {
        "tokens": [
            str(partition.token(offset))
            for partition in topic.partitions
            for offset in range(partition.next_offset + 1)
        ],
        "heads": {str(number): head for number, head in topic.heads.items()},
    }


def roll(topic: Topic) -> None:
    with topic.partition(0).stored.writing() as committer:
        committer.roll()


def users(log: Log) -> dict[str, Any]:
    schema = {"region": str, "id": int, "email": str | None}
    topic = log.create_topic("users", schema, kind="update", keys=["region", "id"], row_deletion=True)
    for number in range(3):
        topic.append([{"region": "eu", "id": at, "email": f"{number}@{at}"} for at in range(4)])
    topic.delete({"region": "eu", "id": 1})
    roll(topic)
    topic.append([{"region": "us", "id": at, "email": None} for at in range(3)])
    topic.append({"region": "eu", "id": 2, "email": "newest"})
    roll(topic)
    noted = note(topic)
    Steward(log).run_once(topic="users", force=True)
    topic.append({"region": "us", "id": 0, "email": "later"})
    topic.delete({"region": "us", "id": 2})
    assert topic.get({"region": "eu", "id": 2})["email"] == "newest"  # makes the files of keys
    return noted


def joined(log: Log) -> dict[str, Any]:
    topic = log.create_topic("joined", {"n": int})
    with topic.writer(producer="importer", linger=0) as writer:
        for number in range(40):
            writer.send({"n": number})
            writer.flush()
            if number == 25:
                roll(topic)
    roll(topic)
    noted = note(topic)
    Steward(log).run_once(topic="joined", force=True)
    topic.append({"n": 40})
    return noted


def erased(log: Log) -> dict[str, Any]:
    topic = log.create_topic("erased", {"n": int, "who": str}, compression="lz4", row_deletion=True)
    topic.append([{"n": 0, "who": "ada"}, {"n": 1, "who": "ada"}])
    topic.append([{"n": 2, "who": "bob"}, {"n": 3, "who": "ada"}, {"n": 4, "who": "cyd"}])
    topic.append([{"n": 5, "who": "cyd"}])
    roll(topic)
    topic.append([{"n": 6, "who": "ada"}])
    noted = note(topic)
    topic.erase(where="who = 'ada'")
    Steward(log).run_once(topic="erased", force=True)
    topic.append([{"n": 7, "who": "dan"}])
    return noted


def spread(log: Log) -> dict[str, Any]:
    topic = log.create_topic("spread", {"id": int, "word": str}, keys=["id"], partitions=3)
    topic.append([{"id": number, "word": "w" * (number % 4)} for number in range(24)])
    return note(topic)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
