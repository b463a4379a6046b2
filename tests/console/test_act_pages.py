"""Changing a log in the browser: each act once, as people do it."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import expect


def test_making_a_topic_and_its_first_row(page: Any, log: Any) -> None:
    page.goto("")
    page.get_by_role("link", name="New topic").click()
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Columns").fill("id:int note:str? done:bool place:{lat:float}?")
    page.get_by_role("button", name="Make it").click()
    page.get_by_label("id").fill("9007199254740993")  # JavaScript has no such number
    page.get_by_label("note").fill("hello")
    page.get_by_label("done").select_option("true")
    page.get_by_label("place").fill('{"lat": 60.2}')
    page.get_by_role("button", name="Append", exact=True).click()
    expect(page.get_by_text("Appended 1 row")).to_be_visible()
    row = log.topic("made-here")[0].to_dict()
    assert row == {"id": 9007199254740993, "note": "hello", "done": True, "place": {"lat": 60.2}}
    page.get_by_label("done").select_option("")
    page.get_by_role("button", name="Append", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("done")


def test_sending_a_row_again_changed(page: Any, log: Any) -> None:
    topic = log.create_topic("again", {"id": int, "user": str})
    topic.append({"id": 4, "user": "ada"})
    page.goto("row?topic=again&offset=0")
    page.get_by_role("link", name="Edit and send again").click()
    expect(page.get_by_label("user")).to_have_value("ada")
    page.get_by_label("user").fill("eve")
    page.get_by_role("button", name="Append", exact=True).click()
    expect(page.get_by_text("Appended 1 row")).to_be_visible()
    assert topic[1].to_dict() == {"id": 4, "user": "eve"}


def test_pasting_making_up_and_importing(page: Any, log: Any) -> None:
    topic = log.create_topic("filled", {"id": int, "user": str})
    page.goto("produce?topic=filled")
    page.get_by_role("button", name="Paste").click()
    page.get_by_label("Rows").fill("id,user\n1,ada\n2,bob\n")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("2 rows fit the topic")).to_be_visible()
    page.get_by_role("button", name="Append all").click()
    expect(page.get_by_text("Appended 2 rows")).to_be_visible()
    page.get_by_role("button", name="Make up").click()
    page.get_by_label("How many").fill("30")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("Appended 30 rows")).to_be_visible()
    page.get_by_role("button", name="File", exact=True).click()
    file = {"name": "more.jsonl", "mimeType": "application/json", "buffer": b'{"id": 3, "user": "eve"}'}
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Imported 1 row")).to_be_visible()
    assert topic.next_offset == 33


def test_replaying_into_another_topic(page: Any, log: Any) -> None:
    page.goto("replay?topic=orders&at=10:20")
    page.get_by_label("Into topic").fill("replayed")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("10 rows would go into")).to_be_visible()
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("Replayed 10 rows")).to_be_visible()
    assert [row["id"] for row in log.topic("replayed")] == list(range(10, 20))


def test_deleting_wants_the_name(page: Any, log: Any) -> None:
    log.create_topic("doomed", {"id": int})
    page.goto("settings?topic=doomed")
    page.get_by_role("button", name="Delete the topic").click()
    dialog = page.get_by_role("dialog", name="Delete the topic")
    button = dialog.get_by_role("button", name="Delete the topic")
    dialog.get_by_label("Type doomed to go on").fill("doome")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type doomed to go on").fill("doomed")
    button.click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    assert "doomed" not in log.topics()


def test_changing_options(page: Any, log: Any) -> None:
    topic = log.create_topic("tuned", {"id": int})
    page.goto("settings?topic=tuned")
    page.get_by_label("Keep for").fill("7d")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_text("Changed", exact=True)).to_be_visible()
    page.get_by_label("Add columns").fill("note:str?")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("rowheader", name="note")).to_be_visible()
    assert topic.config.retention_age_seconds == 7 * 86400


def test_a_query_and_its_chart(page: Any) -> None:
    page.goto("sql")
    page.get_by_label("Query").fill("select user, sum(amount) as total from orders group by 1 order by 1")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("3 rows in")).to_be_visible()
    expect(page.get_by_role("cell", name="ada")).to_be_visible()
    page.get_by_label("Chart").select_option("bars")
    expect(page.get_by_role("img", name=re.compile("total; 3 values"))).to_be_visible()
    page.reload()
    expect(page.get_by_role("img", name=re.compile("total; 3 values"))).to_be_visible()
    page.get_by_label("Query").fill("from nowhere")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    page.get_by_role("button", name="select user, sum").click()  # from the history
    expect(page.get_by_text("3 rows in")).to_be_visible()


def test_a_long_query_is_cancelled(page: Any) -> None:
    page.goto("sql")
    page.get_by_label("Query").fill("select count(*) from range(100000000000) a, range(1000) b")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled")).to_be_visible()
