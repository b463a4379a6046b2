"""The pages in a real browser, by role and text: each opens, is accessible, and fits a narrow screen."""

from __future__ import annotations

from typing import Any

import pytest

# Every page, and something that shows that it is there.
PAGES = {
    "": "orders",
    "rows?topic=orders": "following",
    "row?topic=orders&offset=17": "Where it lies",
    "produce?topic=orders": "Keep what is typed",
    "produce?topic=orders&how=generate": "Seed",
    "replay?topic=orders": "Dry run",
    "settings?topic=orders": "durable up to",
    "new": "Make it",
    "verify": "Verify all",
    "verify?topic=orders&block=1": "Recomputed in this browser",
    "time?topic=orders": "The newest rows then",
    "storage": "Bytes a row",
    "storage?topic=orders": "Blocks by size",
    "key?topic=orders&offset=17": "1 row of this key",
    "latest?topic=orders": "1,000 keys",
    "life": "33 alive of 96",
    "diff?topic=life&before=96": "1 changed",
    "capsule?topic=orders&at=10:20": "Download the capsule",
    "groups": "nobody reads",
    "groups?group=billing&topic=orders": "Nobody reads at the moment",
    "broker": "there is no broker behind it",
    "rows?topic=nowhere": "nowhere",
    "sql?q=select user, count(*) as n from orders group by 1&chart=bars": "3 rows in",
}


def opened(page: Any, path: str) -> None:
    page.goto(path)
    page.get_by_text(PAGES[path]).first.wait_for()
    page.get_by_role("status").get_by_text("live", exact=True).wait_for()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_in_both_themes_and_fits_a_narrow_screen(page: Any, path: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    opened(page, path)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size({"width": 400, "height": 800})
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
