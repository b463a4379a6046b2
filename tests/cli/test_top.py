"""`virta top`: where topics stand, and which group is furthest behind."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_one_look(orders: Cli) -> None:
    with orders.open() as log, log.topic("orders").reader(group="billing") as reader:
        next(iter(reader.batches(max_rows=1)))
        reader.commit()
    found = orders.ok("top", "--once", "--interval", "0.1s", "-o", "jsonl").rows
    assert [(row["topic"], row["rows"], row["rows_per_second"]) for row in found] == [("orders", 3, 0.0)]
    assert (found[0]["group"], found[0]["lag_rows"]) == ("billing", 2)
    assert 0 <= found[0]["age_seconds"] < 600
    assert "orders" in orders.ok("top", "--once", "--interval", "0.1s", "-o", "table").out
    assert orders("top", "--interval", "soon").code == 2
