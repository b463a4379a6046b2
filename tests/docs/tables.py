"""The parts of the documents that are tables of the code: `python -m tests.docs.tables` writes them.

They stand between marks, <!-- types --> and <!-- /types -->; a test holds the pages to them.
"""

from __future__ import annotations

import re
from pathlib import Path

from virta.broker.administration import VERBS
from virta.broker.groups import VERBS as GROUP_VERBS
from virta.broker.operation.settings import OPTIONS, shown
from virta.protocol import codes, messages
from virta.protocol.codes import ERROR_NUMBERS, FrameType

DOCS = Path(__file__).resolve().parents[2] / "docs"

# who sends it (c client, b broker), what answers it, what its body is, what it means
WORDS: dict[str, tuple[str, str, str, str]] = {
    "HELLO": ("c", "WELCOME", "", "the first frame of a connection"),
    "WELCOME": ("b", "", "", "the version that is spoken, and the bounds"),
    "CHALLENGE": ("b", "", "", "the broker's message of a login"),
    "AUTHENTICATE": ("c", "CHALLENGE", "", "the client's message of a login"),
    "HEARTBEAT": ("both", "HEARTBEAT_ANSWER", "", "are you there?"),
    "HEARTBEAT_ANSWER": ("both", "", "", "with the same number"),
    "GOODBYE": ("both", "", "", "the connection will end; see Closing"),
    "ERROR": ("b", "", "", "what went wrong; on channel 0 the connection ends"),
    "DONE": ("b", "", "", "a request ended with nothing to say, or was cancelled"),
    "CANCEL": ("c", "DONE, or its answer", "", "stop the request of this channel"),
    "CREDIT": ("c", "none", "", "more may be sent on this channel"),
    "APPEND": ("c", "APPENDED (acks 1: none)", "one record batch", "append rows"),
    "APPENDED": ("b", "", "", "they are there"),
    "CLAIM": ("c", "CLAIMED", "", "become the holder of a producer's name"),
    "CLAIMED": ("b", "", "", "its number, epoch and next sequence"),
    "FETCH": ("c", "BLOCKS", "", "the block that holds an offset"),
    "FETCH_BATCH": ("c", "BLOCKS", "", "blocks of a range"),
    "POLL": ("c", "BLOCKS", "", "what is there now"),
    "LONG_POLL": ("c", "BLOCKS", "", "as POLL, but wait for something to be there"),
    "STREAM": ("c", "BLOCKS, again and again", "", "what is there, then what comes"),
    "BLOCKS": ("b", "", "headers, then blocks", "blocks as they lie on disk"),
    "SELECT": ("c", "ROWS, again and again", "", "rows of a range: columns and filter; a table; its changes"),
    "QUERY": ("c", "ROWS", "", "SQL"),
    "ROWS": ("b", "", "a piece of an Arrow stream", "rows that the broker chose"),
    "LOCATE": ("c", "LOCATED", "", "find a place by offset, time or hash; check a token"),
    "LOCATED": ("b", "", "", "a token"),
    "POSITIONS": ("c", "POSITIONS_ANSWER", "", "where a partition stands"),
    "POSITIONS_ANSWER": ("b", "", "", "all of one moment"),
    "ADMINISTER": ("c", "PROGRESS …, ANSWER", "by verb", "a verb of the table below"),
    "ANSWER": ("b", "", "by verb", "JSON, and what does not fit into it"),
    "PROGRESS": ("b", "", "", "how far a verb came, where it was asked to tell"),
    "GROUP_HEARTBEAT": ("c", "GROUP_ASSIGNMENT", "", "a member speaks up"),
    "GROUP_ASSIGNMENT": ("b", "", "", "the partitions that are the member's"),
    "GROUP_COMMIT": ("c", "GROUP_CHANGED", "", "note how far a member came"),
    "GROUP_POSITIONS": ("c", "GROUP_POSITIONS_ANSWER", "", "how far did the group come?"),
    "GROUP_POSITIONS_ANSWER": ("b", "", "", "its positions"),
    "GROUP_WATCH": ("c", "GROUP_CHANGED", "", "wait for a change in a group"),
    "GROUP_CHANGED": ("b", "", "", "its generation of now"),
    "GROUP_SET_ASIDE": ("c", "DONE", "", "put rows that keep failing into the dead letters"),
}  # fmt: skip

FAMILIES = ((32, "usage: fix the call"), (64, "environment: try again"), (96, "damage"))
OUTCOMES = (
    (codes.TOPIC_CHANGED, "topic_changed", "the topic has another version; see Appending"),
    (codes.ROWS_ALREADY_THERE, "rows_already_there", "the first `rows` of a batch are there; see Appending"),
    (codes.PROTOCOL_BROKEN, "protocol", "a rule of this page was broken; the connection ends"),
)


def types() -> str:
    lines = ["| number | type | from | header | body | answered by | |", "|---|---|---|---|---|---|---|"]
    for type_ in FrameType:
        sender, answers, body, meaning = WORDS[type_.name]
        answered = answers or "–"
        lines.append(
            f"| {int(type_)} | `{type_.name}` | {sender} | `{messages.HEADERS[type_]}` | {body or '–'} "
            f"| {answered} | {meaning} |"
        )
    return "\n".join(lines)


def errors() -> str:
    lines = ["| number | code | family |", "|---|---|---|"]
    for kind, number in sorted(ERROR_NUMBERS.items(), key=lambda each: each[1]):
        family = "any" if number < 2 else next(words for limit, words in FAMILIES if number < limit)
        lines.append(f"| {number} | `{kind.code}` | {family} |")
    for number, code, words in OUTCOMES:
        lines.append(f"| {number} | `{code}` | {words} |")
    return "\n".join(lines)


def proto() -> str:
    return f"```proto\n{messages.as_proto()}```"


def verbs() -> str:
    """The names alone: what each takes stands beside them, by hand."""
    lines = ["| verb | right |", "|---|---|"]
    for name, verb in {**VERBS, **GROUP_VERBS}.items():
        right = verb.right.value if verb.right is not None else "any on the topic" if verb.looks else "–"
        lines.append(f"| `{name}` | {right} |")
    return "\n".join(lines)


def broker_settings() -> str:
    lines = ["| setting | default | reloads | |", "|---|---|---|---|"]
    for name, option in OPTIONS.items():
        default = shown(name, option.default)
        reloads = "yes" if option.reloads else "–"
        lines.append(f"| `{name}` | `{default}` | {reloads} | {option.meaning} |")
    return "\n".join(lines)


PAGES = {
    "protocol.md": {"types": types, "errors": errors, "proto": proto, "verbs": verbs},
    "settings.md": {"broker": broker_settings},
}


def written(page: str) -> str:
    """The page as it should be."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, make in PAGES[page].items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert mark.search(text), f"docs/{page} has no place for {name}"
        text = mark.sub(lambda found, make=make: f"{found[1]}\n{make()}\n\n{found[2]}", text)
    return text


if __name__ == "__main__":
    for each in PAGES:
        (DOCS / each).write_text(written(each), encoding="utf-8")
