"""Rows that are erased: by condition, by key, not at all where the topic does not allow it."""

from __future__ import annotations

from typing import Any

import pytest

from virta.errors import Denied, SchemaMismatch, UsageError
from virta.testing.conformance.base import Conformance


class ErasingConformance(Conformance):
    def filled(self, log: Any, **options: Any) -> Any:
        orders = log.create_topic(
            "orders", {"id": int, "user": str}, keys=["id"], row_deletion=True, **options
        )
        for start in range(0, 40, 4):
            orders.append([{"id": number, "user": f"u{number % 4}"} for number in range(start, start + 4)])
        return orders

    def test_erasing_by_condition_leaves_gaps(self, log: Any) -> None:
        orders = self.filled(log)
        token, head = orders.token(13), orders.head
        would = orders.erase(where="user = 'u1'", dry_run=True)
        assert (would.rows, would.dry_run, orders.count()) == (10, True, 40)
        done = orders.erase(where="user = 'u1'")
        assert (done.topic, done.rows, done.partitions, done.dry_run) == ("orders", 10, 1, False)
        assert [row.offset for row in orders[:]] == [number for number in range(40) if number % 4 != 1]
        assert (orders.count(), orders.stats().rows, orders[10:20].count()) == (30, 30, 8)
        assert orders.next_offset == 40
        blocks, _ = orders.partition(0).poll(token)
        assert blocks[0].rows == 3
        report = orders.verify(against=head)
        assert report.ok and report.rows == 30
        assert [(each.reason, each.rows_removed) for each in report.receipts] == [("erased", 10)]

    def test_erasing_by_key(self, log: Any) -> None:
        orders = self.filled(log)
        assert orders.erase(keys=[{"id": 3}, {"id": 38}, {"id": 1000}]).rows == 2
        assert orders.erase(keys={"id": 0}).rows == 1
        assert [row["id"] for row in orders[:]] == [n for n in range(40) if n not in (0, 3, 38)]
        orders.append({"id": 3, "user": "again"})
        assert orders[-1]["user"] == "again" and orders[-1].offset == 40

    def test_erasing_is_allowed_first(self, log: Any) -> None:
        orders = log.create_topic("orders", {"id": int}, keys=["id"])
        orders.append({"id": 1})
        with pytest.raises(Denied):
            orders.erase(keys={"id": 1})
        orders.alter(row_deletion=True)
        with pytest.raises(UsageError):
            orders.erase()
        with pytest.raises(SchemaMismatch):
            orders.erase(keys={"id": "x"})
        assert orders.erase(keys={"id": 1}).rows == 1
        assert list(orders[:]) == [] and orders.next_offset == 1
