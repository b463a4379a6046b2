"""Groups, keys, cells, differences and capsules in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

import virta


def test_a_groups_reset_shows_what_would_be_read_again(page: Any, log: Any) -> None:
    topic = log.create_topic("parcels", {"n": int})
    topic.append([{"n": n} for n in range(50)])
    topic.group("shipping").reset(30)
    page.goto("")
    page.get_by_role("row", name="parcels").get_by_role("link", name="20", exact=True).click()
    expect(page.get_by_text("20 rows behind")).to_be_visible()
    page.get_by_label("To").fill("12")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("18 rows would be read again")).to_be_visible()
    again = page.get_by_role("region", name="Rows that would be read again")
    expect(again.get_by_role("cell", name="12").first).to_be_visible()
    page.get_by_role("button", name="Reset the group").click()
    expect(page.get_by_text("Done: 18 rows will be read again")).to_be_visible()
    assert topic.group("shipping").describe().partitions[0].offset == 12
    page.get_by_role("button", name="Forget the group").click()
    dialog = page.get_by_role("dialog", name="Forget the group")
    dialog.get_by_label("Type shipping to go on").fill("shipping")
    dialog.get_by_role("button", name="Forget the group").click()
    expect(page.get_by_role("link", name="shipping")).to_have_count(0)
    expect(page).to_have_url(re.compile("groups$"))


def test_a_lag_moves_as_rows_come(page: Any, log: Any) -> None:
    topic = log.create_topic("letters", {"n": int})
    topic.append([{"n": n} for n in range(5)])
    topic.group("post").reset(5)
    page.goto("groups")
    row = page.get_by_role("row", name="post")
    expect(row.get_by_text("caught up")).to_be_visible()
    topic.append([{"n": n} for n in range(7)])
    expect(row.get_by_role("cell", name="7", exact=True)).to_be_visible()
    expect(row.get_by_text("growing")).to_be_visible()


def test_going_along_a_key(page: Any, log: Any) -> None:
    topic = log.create_topic("visits", {"user": str, "n": int}, keys=["user"])
    topic.append([{"user": "ada" if n % 10 == 3 else "bob", "n": n} for n in range(40)])
    page.goto("rows?topic=visits&at=13&row=13")
    panel = page.get_by_role("complementary", name="Row")
    panel.get_by_role("button", name="Same key ›").click()
    expect(panel.get_by_role("heading", name="Row 23")).to_be_visible()
    panel.get_by_role("button", name="‹ Same key").click()
    expect(panel.get_by_role("heading", name="Row 13")).to_be_visible()
    panel.get_by_role("button", name="‹ Same key").click()
    expect(panel.get_by_role("heading", name="Row 3", exact=True)).to_be_visible()
    panel.get_by_role("button", name="‹ Same key").click()
    expect(page.get_by_text("No older row has this key")).to_be_visible()
    panel.get_by_role("link", name="History of this key").click()
    expect(page.get_by_role("heading", name="user ada")).to_be_visible()
    expect(page.get_by_text("4 rows of this key")).to_be_visible()
    topic.append({"user": "ada", "n": 99})
    expect(page.get_by_text("5 rows of this key")).to_be_visible()
    expect(page.get_by_role("rowheader").first).to_have_text("40")


def test_the_newest_row_of_each_key_is_kept_up_to_date(page: Any, log: Any) -> None:
    topic = log.create_topic("prices", {"item": str, "price": int}, kind="update", keys=["item"])
    topic.append([{"item": "tea", "price": 3}, {"item": "coffee", "price": 4}])
    page.goto("latest?topic=prices")
    expect(page.get_by_text("2 keys")).to_be_visible()
    topic.append({"item": "tea", "price": 77})
    expect(page.get_by_role("gridcell", name="77")).to_be_visible()
    page.get_by_label("Only keys where").fill("price > 50")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("1 key,")).to_be_visible()


def test_cells_live(page: Any, log: Any) -> None:
    topic = log.create_topic("board", {"x": int, "y": int, "on": bool}, kind="update", keys=["x", "y"])
    topic.append([{"x": x, "y": y, "on": x == y} for x in range(5) for y in range(5)])
    page.goto("life?topic=board")
    expect(page.get_by_role("img", name="5 alive of 5 by 5")).to_be_visible()
    topic.append([{"x": 0, "y": 4, "on": True}, {"x": 6, "y": 0, "on": True}])
    topic.delete({"x": 1, "y": 1})
    expect(page.get_by_role("img", name="6 alive of 7 by 5")).to_be_visible()
    page.get_by_role("link", name="Rows", exact=True).click()
    expect(page.get_by_role("columnheader", name="_deleted")).to_be_visible()


def test_two_moments_of_a_topic(page: Any, log: Any) -> None:
    topic = log.create_topic("stock", {"item": str, "n": int}, kind="update", keys=["item"])
    topic.append([{"item": "tea", "n": 3}, {"item": "coffee", "n": 4}])
    topic.append([{"item": "tea", "n": 5}, {"item": "cocoa", "n": 1}])
    topic.delete({"item": "coffee"})
    page.goto("diff?topic=stock")
    page.get_by_label("Before, as of").fill("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("1 added, 1 changed, 1 removed")).to_be_visible()
    expect(page.get_by_role("row", name="changed").get_by_text("3 → 5")).to_be_visible()
    page.goto(page.url)  # shared, it says the same
    expect(page.get_by_text("1 added, 1 changed, 1 removed")).to_be_visible()
    page.get_by_label("Before, as of").fill("soon")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_contain_text("soon")


def test_a_capsule_is_made_and_opens(page: Any, tmp_path: Path) -> None:
    page.goto("rows?topic=orders&at=40:60")
    page.get_by_role("link", name="Capsule").click()
    page.get_by_label("Rows", exact=True).fill("40:60")
    page.get_by_label("A query over these rows").fill(
        "select user, count(*) as n from orders group by 1 order by 1"
    )
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_text("20 rows, offsets 40 to 59")).to_be_visible()
    expect(page.get_by_label("What should come out, as JSON")).to_have_value(re.compile('"ada"'))
    with page.expect_download() as started:
        page.get_by_role("button", name="Download the capsule").click()
    path = tmp_path / "bug.capsule"
    started.value.save_as(path)
    with virta.open(path) as log:
        assert [row["id"] for row in log.topic("orders")] == list(range(40, 60))
        assert log.capsule.answer() == log.capsule.expected


def test_sql_as_of_a_moment_from_the_scrubber(page: Any, log: Any) -> None:
    topic = log.create_topic("steps", {"n": int})
    for n in range(4):
        topic.append({"n": n})
    topic.group("walker").reset(2)
    page.goto("time?topic=steps")
    expect(page.get_by_role("region", name="Groups as of then").get_by_text("walker")).to_have_count(0)
    topic.append({"n": 4})
    page.reload()
    expect(
        page.get_by_role("region", name="Groups as of then").get_by_role("link", name="2", exact=True)
    ).to_be_visible()
    page.get_by_role("slider", name="The moment").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="SQL as of then").click()
    expect(page.get_by_text("All topics stand as of")).to_be_visible()
    expect(page.get_by_text("1 row in")).to_be_visible()
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_text("5 rows in")).to_be_visible()
