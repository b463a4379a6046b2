"""`virta group`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli


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
