"""What the documents say in tables is what the code does."""

from __future__ import annotations

import pytest

from tests.docs.tables import DOCS, PAGES, written
from virta.broker.administration import VERBS
from virta.broker.groups import VERBS as GROUP_VERBS


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_those_of_the_code(page: str) -> None:
    there = (DOCS / page).read_text(encoding="utf-8")
    assert there == written(page), "python -m tests.docs.tables writes them"


def test_every_verb_is_described() -> None:
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    described = text.split("## Verbs")[1].split("### Rights")[0]
    assert [name for name in [*VERBS, *GROUP_VERBS] if f"`{name}`" not in described] == []
