"""The tail, the table and the filter, as people use them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect


def row(page: Any, text: str) -> Any:
    return page.get_by_role("row").filter(has_text=text).first


def cell(page: Any, text: str) -> Any:
    return page.get_by_role("gridcell", name=text, exact=True).first


def until(page: Any, condition: str) -> None:
    """Wait for a condition in the page; its policy forbids playwright's own way, which needs eval."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never: {condition}")


@pytest.fixture
def tail(log: Any, request: pytest.FixtureRequest) -> Any:
    """A topic of this test alone."""
    topic = log.create_topic(f"tail-{request.node.name}", {"n": int, "word": str})
    topic.append([{"n": n, "word": f"word-{n}"} for n in range(400)])
    return topic


def test_new_rows_appear_by_themselves(page: Any, tail: Any) -> None:
    page.goto(f"rows?topic={tail.name}")
    row(page, "word-399").wait_for()
    tail.append({"n": 400, "word": "just came"})
    row(page, "just came").wait_for()


def test_a_paused_tail_keeps_its_place_and_counts(page: Any, tail: Any) -> None:
    page.goto(f"rows?topic={tail.name}")
    row(page, "word-399").wait_for()
    page.get_by_role("button", name="Pause").click()
    place = row(page, "word-399").bounding_box()
    tail.append([{"n": n, "word": "later"} for n in range(123)])
    expect(page.get_by_text("paused, 123 held")).to_be_visible()
    assert row(page, "word-399").bounding_box() == place
    page.get_by_role("button", name="Follow").click()
    row(page, "later").wait_for()
    expect(page.get_by_text("following 523 rows")).to_be_visible()


def test_scrolling_up_pauses_and_the_reading_place_is_kept(page: Any, tail: Any) -> None:
    page.goto(f"rows?topic={tail.name}")
    row(page, "word-399").hover()
    page.mouse.wheel(0, -2600)
    row(page, "word-290").wait_for()
    before = row(page, "word-290").bounding_box()
    tail.append([{"n": n, "word": "later"} for n in range(50)])
    expect(page.get_by_text("paused, 50 held")).to_be_visible()
    assert row(page, "word-290").bounding_box() == before


def test_a_lost_connection_leaves_no_gap_and_no_double(page: Any, tail: Any) -> None:
    page.goto(f"rows?topic={tail.name}")
    row(page, "word-399").wait_for()
    page.evaluate("import('./static/live.js').then((live) => live.lose())")
    expect(page.get_by_text("connection lost")).to_be_visible()
    tail.append([{"n": n, "word": f"word-{n}"} for n in range(400, 410)])
    row(page, "word-409").wait_for()
    shown = [re.search(r"word-(\d+)", text) for text in page.get_by_role("row").all_inner_texts()]
    numbers = sorted(int(found[1]) for found in shown if found)
    assert numbers == list(range(numbers[0], 410))


def test_what_is_too_much_is_said(page: Any, tail: Any) -> None:
    page.goto(f"rows?topic={tail.name}")
    row(page, "word-399").wait_for()
    tail.append([{"n": n, "word": "much"} for n in range(5000)])
    expect(page.get_by_text("skipped 4,500")).to_be_visible()
    expect(page.get_by_text("following 5,400 rows")).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("Home")
    row(page, "word-0").wait_for()  # nothing is lost: it is there to be scrolled to


def test_going_to_places(page: Any) -> None:
    page.goto("rows?topic=orders")
    seek = page.get_by_label("Go to an offset, a time or a range")
    seek.fill("500")
    seek.press("Enter")
    expect(cell(page, "500")).to_be_visible()
    expect(page).to_have_url(re.compile("at=500"))
    seek.fill("10:20")
    seek.press("Enter")
    expect(page.get_by_text("10 rows in this range")).to_be_visible()
    assert page.get_by_role("grid").get_attribute("aria-rowcount") == "11"
    page.go_back()
    expect(cell(page, "500")).to_be_visible()


def test_a_filter_finds_and_can_be_shared(page: Any) -> None:
    page.goto("rows?topic=orders")
    page.get_by_label("Only rows where").fill("user = 'bob' and amount > 490")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("6 matches in 1,000 rows")).to_be_visible()
    page.goto(page.url)
    expect(page.get_by_text("6 matches in 1,000 rows")).to_be_visible()
    page.get_by_label("Only rows where").fill("nobody = 1")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("nobody").first).to_be_visible()


def test_a_row_opens_beside_the_table(page: Any) -> None:
    page.goto("rows?topic=orders&at=17")
    cell(page, "17").click()
    panel = page.get_by_role("complementary", name="Row")
    expect(panel.get_by_role("heading", name="Row 17")).to_be_visible()
    panel.get_by_role("button", name="After ›").click()
    expect(panel.get_by_role("heading", name="Row 18")).to_be_visible()
    expect(page).to_have_url(re.compile("row=18"))
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_copy_as(page: Any, log: Any) -> None:
    page.goto("rows?topic=orders&at=10:20&where=amount > 5")
    page.get_by_role("button", name="Copy as").click()
    dialog = page.get_by_role("dialog", name="Copy as")
    texts = dialog.locator("pre").all_inner_texts()
    assert texts[1] == f"virta read -l {log.path} orders@10:20 --where 'amount > 5'"
    found = log.sql(texts[4]).to_pylist()
    assert [each["_offset"] for each in found] == list(range(11, 20))
    dialog.get_by_role("button", name="Copy as Python").click()
    assert 'log.topic("orders")[10:20]' in page.evaluate("navigator.clipboard.readText()")


def test_the_palette_leads_anywhere(page: Any) -> None:
    page.goto("")
    page.get_by_role("link", name="orders").wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("orde")
    page.get_by_role("option", name="orders").first.wait_for()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("rows.topic=orders"))


def test_the_theme_can_be_chosen_and_stays(page: Any) -> None:
    page.goto("")
    page.get_by_role("button", name="Theme").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_a_hundred_million_rows_scroll_like_a_thousand(page: Any) -> None:
    """The table itself, over a source without end: only what is in sight is asked for."""
    page.goto("rows?topic=orders")
    cell(page, "999").wait_for()
    asked = page.evaluate(
        """() => {
          const grid = document.querySelector("virta-grid");
          const asked = [];
          grid.source = {
            count: 100_000_000,
            at: (at) => [at, at * 1e6, at, "ada", 1.5],
            want: (from, to) => asked.push([from, to]),
          };
          grid.follow = true;
          grid.draw();
          window.asked = asked;
          return [asked.at(-1), grid.querySelectorAll("[role=row]").length];
        }"""
    )
    assert asked[0][1] == 100_000_000
    assert asked[1] < 60
    page.get_by_role("grid").hover()
    page.mouse.wheel(0, -260)
    until(page, "window.asked.at(-1)[1] < 100_000_000")
    near = page.evaluate("window.asked.at(-1)")
    assert 99_999_900 < near[1] < 100_000_000  # a small move is a move by rows
    page.get_by_role("grid").focus()
    page.keyboard.press("Home")
    until(page, "window.asked.at(-1)[0] === 0")
    page.evaluate("document.querySelector('.gscroll').scrollTop = 4_000_000")
    until(page, "window.asked.at(-1)[0] > 49_000_000 && window.asked.at(-1)[0] < 51_000_000")
