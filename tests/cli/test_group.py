"""`virta group`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli
from virta.topics.groups.retry import Retry


@pytest.fixture
def billing(orders: Cli) -> Cli:
    """A group that has read two of three orders."""
    with orders.open() as log:
        topic = log.topic("orders")
        with topic.reader(group="billing") as reader:
            for _ in reader.batches(2):
                reader.commit()
                break
    return orders


def test_ls_and_show(billing: Cli) -> None:
    (listed,) = json.loads(billing.ok("group", "ls", "-o", "json").out)
    assert (listed["group"], listed["topic"], listed["members"], listed["lag_rows"]) == (
        "billing",
        "orders",
        0,
        1,
    )
    assert billing.ok("group", "ls", "-q").out == "billing\n"
    shown = json.loads(billing.ok("group", "show", "billing", "orders", "-o", "json").out)
    assert shown["partitions"][0]["offset"] == 2
    assert shown["tokens"]["0"].startswith("t1")
    assert "lag_rows" in billing.ok("group", "show", "billing", "orders").out
    assert billing("group", "show", "nobody", "orders").code == 3
    assert billing("group", "show", "billing", "ordres").code == 3


def test_members_are_shown(billing: Cli) -> None:
    with billing.open() as log, log.topic("orders").reader(group="billing", member="pod-0") as reader:
        shown = billing.ok("group", "show", "billing", "orders")
        assert reader.member in shown.out and reader.member in shown.err
        assert billing("group", "reset", "billing", "orders", "--to", "oldest", "--yes").code == 7
        assert billing("group", "rm", "billing", "orders", "--yes").code == 7


def test_reset_previews_and_asks(billing: Cli) -> None:
    planned = billing.ok("group", "reset", "billing", "orders", "--to", "oldest", "--dry-run", "-o", "json")
    (plan,) = json.loads(planned.out)
    assert plan == {"partition": 0, "before": 2, "after": 0, "again": 2, "skipped": 0}
    assert "2 rows read again" in planned.err
    assert billing("group", "reset", "billing", "orders", "--to", "oldest", stdin="no\n").code == 2
    assert json.loads(billing.ok("group", "ls", "-o", "json").out)[0]["lag_rows"] == 1
    billing.ok("group", "reset", "billing", "orders", "--to", "oldest", stdin="billing\n")
    assert json.loads(billing.ok("group", "ls", "-o", "json").out)[0]["lag_rows"] == 3
    billing.ok("group", "reset", "billing", "orders", "--to", "1", "--yes")
    assert json.loads(billing.ok("group", "ls", "-o", "json").out)[0]["lag_rows"] == 2
    billing.ok("group", "reset", "billing", "orders", "--to", "newest", "-p", "0", "--yes")
    assert json.loads(billing.ok("group", "ls", "-o", "json").out)[0]["lag_rows"] == 0
    assert billing("group", "reset", "billing", "orders", "--to", "99", "--yes").code == 3
    assert billing("group", "reset", "billing", "orders", "--to", "sometime", "--yes").code == 2


def test_rm(billing: Cli) -> None:
    assert "1 position" in billing.ok("group", "rm", "billing", "orders", "--dry-run").err
    assert billing("group", "rm", "billing", "orders", stdin="no\n").code == 2
    billing.ok("group", "rm", "billing", "orders", "--yes")
    assert billing("group", "rm", "billing", "orders", "--yes").code == 3
    assert "no groups yet" in billing.ok("group", "ls").err


@pytest.fixture
def failing(orders: Cli) -> Cli:
    """A group for which all three orders failed."""
    with orders.open() as log:
        topic = log.topic("orders")
        with topic.reader(group="billing", retry=Retry(attempts=1)) as reader:
            for _ in reader.rows(stop_when_idle=0):
                with reader.attempt():
                    raise ValueError("no such card")
    return orders


def test_dead_letters(failing: Cli) -> None:
    listed = json.loads(failing.ok("group", "dead", "billing", "orders", "-o", "json").out)
    assert [each["place"] for each in listed] == ["0@0", "0@1", "0@2"]
    assert (listed[0]["error_type"], listed[0]["error"]) == ("ValueError", "no such card")
    assert failing.ok("group", "dead", "billing", "orders", "-q").out == "0@0\n0@1\n0@2\n"
    assert "no such card" in failing.ok("group", "dead", "billing", "orders").out
    whole = json.loads(failing.ok("group", "dead", "billing", "orders", "--at", "0@1", "-o", "json").out)
    assert "raise ValueError" in whole["traceback"]
    shown = failing.ok("group", "dead", "billing", "orders", "--at", "0@1", "-o", "table").out
    assert shown.endswith("ValueError: no such card\n")
    assert failing("group", "dead", "billing", "orders", "--at", "7@7").code == 3
    assert "no dead letters" in failing.ok("group", "dead", "nobody", "orders").err


def test_dead_letters_are_sent_again_or_thrown_away(failing: Cli) -> None:
    assert "would send 3 dead letters" in failing.ok("group", "resend", "billing", "orders", "--dry-run").err
    assert failing("group", "resend", "billing", "orders", stdin="no\n").code == 2
    failing.ok("group", "resend", "billing", "orders", "--at", "0@1", stdin="billing\n")
    assert json.loads(failing.ok("group", "ls", "-o", "json").out)[0]["lag_rows"] == 1
    assert failing.ok("group", "dead", "billing", "orders", "-q").out == "0@0\n0@2\n"
    assert failing("group", "discard", "billing", "orders", "--at", "0@1", "--yes").code == 3
    failing.ok("group", "discard", "billing", "orders", "--yes")
    assert "no dead letters" in failing.ok("group", "resend", "billing", "orders", "--yes").err
