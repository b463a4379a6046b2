"""Making a log's directory, and what a topic's file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from virta.clock import SystemClock
from virta.errors import Corrupt
from virta.metadata.catalog import Catalog, parse_record
from virta.storage.files import OperatingSystemFiles


class MeanwhileMade(OperatingSystemFiles):
    """Between this process's look for a log and its making one, another process makes it."""

    made: Catalog | None = None

    def names(self, path: Path) -> list[str]:
        if self.made is None:
            self.made = Catalog.open(OperatingSystemFiles(), SystemClock(), path)
        return super().names(path)


def test_of_two_that_make_a_log_at_once_the_second_finds_the_firsts(tmp_path: Path) -> None:
    files = MeanwhileMade()
    mine = Catalog.open(files, SystemClock(), tmp_path / "log")
    assert files.made is not None and mine.log_id == files.made.log_id


@pytest.mark.parametrize("wrong", ["partitions = 0", 'id = "00"'])
def test_a_topic_has_a_partition_and_an_id(tmp_path: Path, wrong: str) -> None:
    good = (
        'format = 1\nname = "t"\nid = "00112233445566778899aabbccddeeff"\nversion = 1\n'
        "schema_version = 1\ncreated_us = 1\n[config]\npartitions = 1\n"
    )
    assert parse_record(good.encode(), tmp_path).config.partitions == 1
    key = wrong.partition(" ")[0]
    bad = "\n".join(wrong if line.startswith(f"{key} ") else line for line in good.splitlines())
    with pytest.raises(Corrupt):
        parse_record(bad.encode(), tmp_path)
