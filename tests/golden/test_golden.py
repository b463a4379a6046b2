"""Logs that older versions wrote are read for ever, by us and by anybody who knows Arrow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import virta
from tests.golden import example, independent
from tests.golden.contents import describe_log, files_of
from virta.log import Log
from virta.storage import statistics
from virta.storage.files import OperatingSystemFiles
from virta.storage.layout import topic_directory_name

HERE = Path(__file__).parent
FORMATS = sorted(path.name for path in HERE.glob("format-*"))


class AnotherBoot(OperatingSystemFiles):
    """Golden files come from another machine, even on the one that wrote them."""

    def boot_id(self) -> bytes:
        return b"another boot    "


def open_log(path: Path) -> Log:
    return virta.open(path, create=False, files=AnotherBoot())


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest) -> Path:
    return HERE / str(request.param)


@pytest.fixture
def expected(golden: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((golden / "expected.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "log", tmp_path / "log"))


@pytest.fixture
def log(copy: Path) -> Iterator[Log]:
    with open_log(copy) as opened:
        yield opened


def data_files(root: Path) -> list[Path]:
    return sorted(root.glob("topics/*/p*/*.arrows"))


def test_golden_files_are_as_they_were_written(golden: Path, expected: dict[str, Any]) -> None:
    assert files_of(golden / "log") == expected["files"]


def test_a_copy_reads_and_verifies_as_when_it_was_written(log: Log, expected: dict[str, Any]) -> None:
    found = json.loads(json.dumps(describe_log(log)["topics"]))
    for name, wanted in expected["topics"].items():
        assert found[name] == wanted


def test_tokens_of_then_stand_now(log: Log, expected: dict[str, Any]) -> None:
    for name, wanted in expected["topics"].items():
        partition = log.topic(name).partition(0)
        for token in wanted["tokens"]:
            blocks, following = partition.poll(token)
            assert blocks or following.offset == wanted["next_offset"]


def test_heads_of_then_are_in_the_chain(log: Log, expected: dict[str, Any]) -> None:
    for name, wanted in expected["topics"].items():
        topic = log.topic(name)
        topic.append({"n": 1} if "n: int64 not null" in wanted["schema"] else later(topic))
        report = topic.verify(against=wanted["head"])
        assert report.ok, report.problems


def later(topic: Any) -> dict[str, Any]:
    return {"value": b"later"} if topic.name.startswith("Clicks") else {"id": 99}


def test_a_named_producer_goes_on(log: Log) -> None:
    with log.topic("packed").writer(producer="importer-1") as writer:
        assert writer.last_sequence == 60
        writer.send({"n": 61, "text": None})
    assert log.topic("packed")[-1]["n"] == 61


def test_chain_files_come_back_the_same(copy: Path, expected: dict[str, Any]) -> None:
    for path in copy.glob("topics/*/p*/*.chain"):
        path.unlink()
    with open_log(copy) as log:
        for name, wanted in expected["topics"].items():
            topic = log.topic(name)
            assert topic.head == wanted["head"]
            assert [row.offset for row in topic] == [row[0] for row in wanted["rows"]]
    for name, digest in files_of(copy).items():
        if name.endswith(".chain"):
            assert digest == expected["files"][name]


def test_statistics_of_then_are_believed(log: Log) -> None:
    with log.topic("orders").partition(0).stored.view() as view:
        found = statistics.load(view.files, view.paths, view.manifest.segments[0])
    assert found is not None
    assert found.column("id")[:2] == ([None, 0, 5, 6], [None, 4, 5, 6])


def test_a_reader_made_from_the_document_agrees(golden: Path, expected: dict[str, Any]) -> None:
    root = golden / "log"
    for name, wanted in expected["topics"].items():
        read = independent.read_partition(root, root / "topics" / topic_directory_name(name))
        assert read.head == wanted["head"]
        assert (read.start_offset, read.next_offset) == (wanted["start_offset"], wanted["next_offset"])
        assert sum(batch.num_rows for batch in read.batches) == len(wanted["rows"])
        assert read.events == [block["event"] for block in wanted["blocks"] if block["event"]]


# -- without us: a data file is ordinary Arrow ----------------------------------------------


def rows_of(expected: dict[str, Any], path: Path) -> list[int]:
    """The offsets of the rows in a data file, by what was noted."""
    wanted = next(
        topic
        for name, topic in expected["topics"].items()
        if topic_directory_name(name) == path.parent.parent.name
    )
    bases = sorted(int(other.name[:20]) for other in path.parent.glob("*.arrows"))
    base = int(path.name[:20])
    end = min((other for other in bases if other > base), default=wanted["next_offset"])
    return [row[0] for row in wanted["rows"] if base <= row[0] < end]


def test_pyarrow_reads_data_files(golden: Path, expected: dict[str, Any]) -> None:
    for path in data_files(golden / "log"):
        with pa.ipc.open_stream(path.read_bytes()) as reader:
            table = reader.read_all()
        table.validate(full=True)
        assert table.column_names[:2] == ["_offset", "_timestamp"]
        assert table.column("_offset").to_pylist() == rows_of(expected, path)


@pytest.mark.parametrize("room", [8, 4096])
def test_zeros_behind_the_data_are_the_end_of_the_stream(golden: Path, room: int) -> None:
    for path in data_files(golden / "log"):
        data = path.read_bytes()
        with pa.ipc.open_stream(data) as plain, pa.ipc.open_stream(data + bytes(room)) as roomy:
            wanted = plain.read_all()
            assert roomy.read_all() == wanted
        assert polars.read_ipc_stream(data + bytes(room)).height == wanted.num_rows


def test_polars_reads_data_files(golden: Path, expected: dict[str, Any]) -> None:
    for path in data_files(golden / "log"):
        frame = polars.read_ipc_stream(path.read_bytes())
        assert frame["_offset"].to_list() == rows_of(expected, path)


def test_duckdb_reads_data_files(golden: Path, expected: dict[str, Any]) -> None:
    for path in data_files(golden / "log"):
        with pa.ipc.open_stream(path.read_bytes()) as reader:
            found = duckdb.from_arrow(reader).aggregate("count(*), min(_offset), max(_offset)").fetchall()
        offsets = rows_of(expected, path)
        assert found == [(len(offsets), offsets[0], offsets[-1])]


def test_the_example_in_the_document_is_made_of_these_bytes() -> None:
    document = example.DOCUMENT.read_text(encoding="utf-8")
    assert document == example.placed(document), "run `python -m tests.golden.example`"
