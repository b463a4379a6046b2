"""Segments that an older version compacted, joined or erased from: what was noted before still stands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden import independent
from tests.golden.contents import files_of
from tests.golden.generate_rewritten import describe
from tests.golden.test_golden import open_log
from virta.log import Log
from virta.requests import parse_token
from virta.storage import key_index

GOLDEN = Path(__file__).parent / "rewritten-1"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "log", tmp_path / "log"))


@pytest.fixture
def log(copy: Path) -> Iterator[Log]:
    with open_log(copy) as opened:
        yield opened


def test_golden_files_are_as_they_were_written(expected: dict[str, Any]) -> None:
    assert files_of(GOLDEN / "log") == expected["files"]


def test_rows_heads_and_offsets_are_those_that_were_noted(log: Log, expected: dict[str, Any]) -> None:
    for name, wanted in expected["topics"].items():
        found = json.loads(json.dumps(describe(log.topic(name))))
        assert found == {key: wanted[key] for key in found}


def test_what_was_noted_before_the_rewrite_still_stands(log: Log, expected: dict[str, Any]) -> None:
    for name, wanted in expected["topics"].items():
        topic = log.topic(name)
        heads = {int(number): head for number, head in wanted["before"]["heads"].items()}
        report = topic.verify(against=heads)
        assert report.ok and not report.problems
        for text in wanted["before"]["tokens"]:
            token = parse_token(text)
            topic.partition(token.partition).poll(token)  # HistoryChanged if it did not stand


def test_files_of_keys_are_believed(log: Log) -> None:
    stored = log.topic("users").partition(0).stored
    with stored.view() as view:
        sealed = view.manifest.segments[:-1]
        found = [key_index.load(view.files, view.paths.keys(e.base, e.generation), e) for e in sealed]
    assert found and all(entries is not None and len(entries.hashes) for entries in found)


def test_chain_files_come_back_the_same(copy: Path, expected: dict[str, Any]) -> None:
    for path in copy.glob("topics/*/p*/*.chain"):
        path.unlink()
    with open_log(copy) as log:
        assert log.topic("__events").to_arrow().num_rows
        for name, wanted in expected["topics"].items():
            assert {str(n): head for n, head in log.topic(name).heads.items()} == wanted["heads"]
            assert len(list(log.topic(name))) == len(wanted["rows"])
    found = files_of(copy)
    for name, digest in expected["files"].items():
        if name.endswith(".chain"):
            assert found[name] == digest


def test_a_reader_made_from_the_document_agrees(expected: dict[str, Any]) -> None:
    root = GOLDEN / "log"
    for name, wanted in expected["topics"].items():
        for number, head in wanted["heads"].items():
            read = independent.read_partition(root, root / "topics" / name, int(number))
            assert (read.head, read.next_offset) == (head, wanted["next_offsets"][number])
            assert wanted["before"]["heads"][number] in read.hashes
            offsets = [offset for batch in read.batches for offset in batch.column(0).to_pylist()]
            assert offsets == [row[1] for row in wanted["rows"] if str(row[0]) == number]


def test_rows_lie_in_the_partition_that_the_document_says(expected: dict[str, Any]) -> None:
    """The hash of a key of one integer, modulo the number of partitions."""
    for partition, _, row in expected["topics"]["spread"]["rows"]:
        assert independent.key_hash(row["id"]) % 3 == partition
