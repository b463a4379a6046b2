"""Verify, Time and Storage in the browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from blake3 import blake3
from playwright.sync_api import expect


def test_verifying_in_sight(page: Any, log: Any) -> None:
    page.goto("verify?topic=orders")
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.get_by_text("Whole: 1,000 rows")).to_be_visible()
    page.get_by_label("Block number").fill("1")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_text("Recomputed in this browser: it matches")).to_be_visible()
    page.get_by_label("A head that was noted").fill(log.topic("orders").head[:16])
    page.get_by_role("button", name="Find it").click()
    expect(page.get_by_text("nothing was appended since")).to_be_visible()


def test_the_browser_hashes_as_the_log_does(page: Any) -> None:
    page.goto("verify")
    for data in (b"", b"x", bytes(range(64)), bytes(range(120)), bytes(range(256)) * 4):
        made = page.evaluate(
            "data => import('./static/blake3.js').then((made) => made.blake3(Uint8Array.from(data)))",
            list(data),
        )
        assert made == blake3(data).hexdigest()


def test_a_proof_is_downloaded_and_checked(page: Any, tmp_path: Path) -> None:
    page.goto("verify?topic=orders")
    page.get_by_label("Offset of the row").fill("17")
    with page.expect_download() as started:
        page.get_by_role("button", name="Download the proof").click()
    path = tmp_path / "proof.json"
    started.value.save_as(path)
    page.get_by_label("A proof to check").set_input_files(path)
    page.get_by_role("button", name="Check it").click()
    expect(page.get_by_text("It holds: row 17 of orders")).to_be_visible()
    broken = json.loads(path.read_text())
    broken["head"] = "00" * 32
    path.write_text(json.dumps(broken))
    page.get_by_label("A proof to check").set_input_files(path)
    page.get_by_role("button", name="Check it").click()
    expect(page.get_by_role("alert")).to_contain_text("do not lead to its head")


def test_all_topics_are_verified(page: Any) -> None:
    page.goto("verify")
    page.get_by_role("button", name="Verify all").click()
    expect(page.get_by_text(re.compile("All .* are what was written"))).to_be_visible()


def test_scrubbing_through_time(page: Any, log: Any) -> None:
    topic = log.create_topic("history", {"n": int})
    for n in range(5):
        topic.append({"n": n})
    page.goto("time?topic=history")
    expect(page.get_by_text("5 rows of 5 were there")).to_be_visible()
    slider = page.get_by_role("slider", name="The moment")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.get_by_text("1 row of 5 were there")).to_be_visible()
    expect(page).to_have_url(re.compile("us="))
    page.reload()
    expect(page.get_by_text("1 row of 5 were there")).to_be_visible()
    page.get_by_role("button", name="SQL as of then").click()
    expect(page.get_by_text("1 row in")).to_be_visible()
