"""docs/settings.md names every setting, with the default it has."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from virta.requests import parse_size
from virta.settings import Settings
from virta.topics.configuration import option_names
from virta.topics.writer import Writer
from virta.types import TopicConfig

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def rows_under(heading: str) -> dict[str, str]:
    """Name and default of each row of the tables under a heading."""
    section = re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(heading + "\n"))
    return dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", text, re.MULTILINE))


def test_process_settings() -> None:
    wanted = {field.name: str(field.default) for field in dataclasses.fields(Settings)}
    assert rows_under("Process settings") == wanted


def test_writer_arguments() -> None:
    parameters = inspect.signature(Writer.__init__).parameters.values()
    wanted = {each.name: str(each.default) for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert rows_under("Writers") == wanted


@pytest.mark.parametrize("option", option_names())
def test_topic_options(option: str) -> None:
    default = rows_under("Topic options")[option].strip('"')
    config = dataclasses.asdict(TopicConfig())
    value = config[f"{option}_seconds" if option.endswith("_age") else option]
    assert default == str(value) or parse_size(default) == value
