"""Topics of kind update: tables by their keys."""

from __future__ import annotations

import math
import threading
from datetime import datetime, timedelta
from typing import Any

import polars
import pyarrow as pa
import pytest

from virta.errors import NotFound, SchemaMismatch, UsageError
from virta.testing.conformance.base import Conformance, nothing_written

USERS = {"region": str, "id": int, "email": str | None, "points": int}


def user(region: str, id_: int, email: str | None = None, points: int = 0) -> dict[str, Any]:
    return {"region": region, "id": id_, "email": email, "points": points}


def plain(rows: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


class TableConformance(Conformance):
    """`append`, `delete`, `get`, `table` and SQL over them."""

    @pytest.fixture
    def users(self, log: Any) -> Any:
        return log.create_topic("users", USERS, kind="update", keys=["region", "id"])

    # -- what is true now ----------------------------------------------------------------------

    def test_the_newest_row_of_a_key_is_the_truth(self, users: Any) -> None:
        users.append(user("eu", 7, "old"))
        users.append([user("eu", 8), user("us", 7), user("eu", 7, "new", 5)])
        assert plain(users.table()) == [user("eu", 8), user("us", 7), user("eu", 7, "new", 5)]
        assert users.get({"region": "eu", "id": 7}).to_dict() == user("eu", 7, "new", 5)
        assert users.get({"id": 7, "region": "us"}).offset == 2
        assert users.get({"region": "eu", "id": 9}) is None
        assert users.table().count() == 3
        assert users.kind == "update"
        assert users.config.keys == ("region", "id")

    def test_a_deleted_key_is_gone_and_may_come_back(self, users: Any) -> None:
        users.append([user("eu", 7), user("eu", 8)])
        ack = users.delete({"region": "eu", "id": 7})
        assert (ack.first_offset, ack.last_offset) == (2, 2)
        assert users.get({"region": "eu", "id": 7}) is None
        assert plain(users.table()) == [user("eu", 8)]
        users.append(user("eu", 7, "again"))
        assert users.get({"region": "eu", "id": 7})["email"] == "again"
        users.delete([{"region": "eu", "id": 7}, {"region": "eu", "id": 8}, {"region": "eu", "id": 9}])
        assert plain(users.table()) == []
        users.append(user("eu", 8))
        users.delete(pa.table({"id": [8], "region": ["eu"]}))
        assert users.table().to_arrow().num_rows == 0

    def test_many_versions_in_one_append(self, users: Any) -> None:
        users.append([user("eu", n % 10, points=n) for n in range(1000)])
        assert [row["points"] for row in users.table()] == list(range(990, 1000))
        assert users.get({"region": "eu", "id": 3})["points"] == 993

    def test_every_row_stays_in_the_topic(self, users: Any) -> None:
        users.append([user("eu", 7), user("eu", 7, "b")])
        users.delete({"region": "eu", "id": 7})
        assert [row.deleted for row in users[:]] == [False, False, True]
        assert [row["email"] for row in users[:]] == [None, "b", None]
        assert users[2].to_dict() == user("eu", 7)  # what is not null is zero or empty
        assert users[:].to_arrow().column("_deleted").to_pylist() == [False, False, True]
        assert "_deleted" not in users.schema.names
        assert users.verify().ok

    def test_a_second_handle_sees_it_at_once(self, users: Any, other: Any) -> None:
        theirs = other.topic("users")
        for turn in range(5):
            users.append(user("eu", 1, points=turn))
            assert theirs.get({"region": "eu", "id": 1})["points"] == turn
            theirs.append(user("eu", 2, points=turn))
            assert [row["points"] for row in users.table()] == [turn, turn]

    # -- some columns ---------------------------------------------------------------------------

    def test_an_upsert_keeps_the_other_columns(self, users: Any) -> None:
        users.append([user("eu", 1, "a", 5), user("eu", 2, "b", 6)])
        ack = users.upsert({"region": "eu", "id": 1, "email": None})
        assert (ack.first_offset, ack.rows) == (2, 1)
        users.upsert([{"region": "eu", "id": 2, "points": 7}, {"id": 1, "region": "eu", "points": 8}])
        assert sorted(plain(users.table()), key=lambda row: row["id"]) == [
            user("eu", 1, None, 8),
            user("eu", 2, "b", 7),
        ]

    def test_an_upsert_of_a_new_key_is_a_row(self, users: Any) -> None:
        users.upsert({"region": "eu", "id": 1, "points": 5})
        assert plain(users.table()) == [user("eu", 1, None, 5)]
        users.delete(("eu", 1))
        with nothing_written(users), pytest.raises(SchemaMismatch, match="'points' is not null"):
            users.upsert([{"region": "eu", "id": 2, "points": 1}, {"region": "eu", "id": 1, "email": "x"}])
        with nothing_written(users), pytest.raises(SchemaMismatch, match="key column 'id' is missing"):
            users.upsert({"region": "eu", "points": 1})
        with nothing_written(users), pytest.raises(SchemaMismatch, match="did you mean 'points'"):
            users.upsert({"region": "eu", "id": 1, "pionts": 1})
        assert users.upsert([]).rows == 0

    def test_later_rows_of_an_upsert_see_earlier_ones(self, users: Any) -> None:
        users.upsert(
            [
                {"region": "eu", "id": 1, "points": 1, "email": "a"},
                {"region": "eu", "id": 1, "points": 2},
                {"region": "us", "id": 1, "points": 3},
                {"region": "eu", "id": 1, "email": "b"},
            ]
        )
        assert plain(users.table()) == [user("eu", 1, "b", 2), user("us", 1, None, 3)]

    def test_an_upsert_takes_arrow(self, users: Any) -> None:
        users.append([user("eu", n, f"{n}@eu", n) for n in range(5)])
        users.upsert(pa.table({"id": [3, 4, 9], "region": ["eu"] * 3, "points": [30, 40, 90]}))
        expected = [0, 1, 2, 30, 40, 90]
        assert [row["points"] for row in users.table()] == expected
        assert users.get(("eu", 4))["email"] == "4@eu"
        assert users.get(("eu", 9))["email"] is None

    def test_no_upsert_is_lost(self, users: Any, other: Any) -> None:
        """Writers that set different columns of one row, at once."""
        users.append(user("eu", 1, "0", 0))
        theirs = other.topic("users")
        rounds = 20

        def set_points() -> None:
            for n in range(1, rounds + 1):
                theirs.upsert({"region": "eu", "id": 1, "points": n})

        thread = threading.Thread(target=set_points)
        thread.start()
        for n in range(1, rounds + 1):
            users.upsert({"region": "eu", "id": 1, "email": str(n)})
        thread.join()
        assert users.get(("eu", 1)).to_dict() == user("eu", 1, str(rounds), rounds)
        emails = [int(row["email"]) for row in users[:]]
        points = [row["points"] for row in users[:]]
        assert emails == sorted(emails) and points == sorted(points)
        assert users.next_offset == 1 + 2 * rounds

    # -- narrowed, and in Arrow ----------------------------------------------------------------

    def test_a_table_is_narrowed(self, users: Any) -> None:
        users.append([user("eu", n, points=n) for n in range(10)])
        users.append([user("eu", n, points=100 + n) for n in range(5)])
        table = users.table()
        assert [row["id"] for row in table.where("points >= 100")] == [0, 1, 2, 3, 4]
        assert table.where("points < 100").where("id > 7").columns("id").to_pylist() == [{"id": 8}, {"id": 9}]
        assert table.where("points < 100").count() == 5
        assert table.limit(2).count() == 2
        assert table.columns("points", "id").limit(1).to_arrow().to_pylist() == [{"points": 5, "id": 5}]
        assert table.where("_offset >= 10").count() == 5
        assert table.first()["id"] == 5
        with pytest.raises(NotFound, match="did you mean 'points'"):
            table.columns("pionts")
        with pytest.raises(UsageError):
            table.where("nothing = 1")
        with pytest.raises(NotFound):
            table.columns("_deleted")

    def test_a_table_feeds_every_arrow_reader(self, users: Any) -> None:
        users.append([user("eu", 1), user("us", 2, "x"), user("eu", 1, "y")])
        found = users.table().to_arrow()
        assert found.column_names == ["_offset", "_timestamp", "region", "id", "email", "points"]
        assert found.column("_offset").to_pylist() == [1, 2]
        assert users.table().schema.equals(found.schema)
        assert polars.DataFrame(found)["email"].to_list() == ["x", "y"]
        assert users.table().to_reader().read_all().equals(found)
        assert users.table().dataset().count_rows() == 2

    def test_an_empty_table_has_its_columns(self, users: Any) -> None:
        assert users.table().to_arrow().schema.names[2:] == list(USERS)
        assert users.table().count() == 0
        assert users.table().first() is None
        assert users.get({"region": "", "id": 0}) is None
        assert users.delete([]).rows == 0

    # -- what was true then --------------------------------------------------------------------

    def test_the_table_as_it_was(self, users: Any) -> None:
        users.append([user("eu", 1, "a"), user("eu", 2)])
        users.append(user("eu", 1, "b"))
        users.delete({"region": "eu", "id": 2})
        states = [[(row["id"], row["email"]) for row in users.table(as_of=end)] for end in range(5)]
        assert states == [
            [],
            [(1, "a")],
            [(1, "a"), (2, None)],
            [(2, None), (1, "b")],
            [(1, "b")],
        ]
        assert users.table(as_of=-1).count() == 2
        assert users.table().as_of(users.token(3)).count() == 2
        assert users.table(as_of={0: 2}).where("id = 1").first()["email"] == "a"

    def test_the_table_as_of_a_time(self, users: Any) -> None:
        users.append(user("eu", 1, "a"))
        before: datetime = users[0].timestamp
        assert users.table(as_of=before).count() == 0
        assert users.table(as_of=before + timedelta(microseconds=1)).count() == 1
        assert users.table(as_of="2000-01-01").count() == 0
        assert users.table(as_of="2100-01-01").first()["email"] == "a"

    # -- what happened ---------------------------------------------------------------------------

    def test_changes_say_what_happened(self, users: Any) -> None:
        users.append([user("eu", 1, "a"), user("eu", 2), user("eu", 1, "b")])
        users.delete([("eu", 2), ("eu", 3)])
        users.append(user("eu", 2, "again"))
        seen = [
            (c.kind, c.offset, c.before and c.before["email"], c.after and c.after["email"])
            for c in users.changes()
        ]
        assert seen == [
            ("insert", 0, None, "a"),
            ("insert", 1, None, None),
            ("update", 2, "a", "b"),
            ("delete", 3, None, None),
            ("insert", 5, None, "again"),
        ]
        deleted = list(users.changes())[3]
        assert (deleted.before, deleted.after) == (user("eu", 2), None)
        assert deleted.timestamp == users[3].timestamp

    def test_changes_from_a_place(self, users: Any) -> None:
        users.append([user("eu", n, points=n) for n in range(5)])
        users.append([user("eu", n, points=10 * n) for n in (1, 3)])
        for place in (5, -2, users.token(5), {0: 5}, users[5].timestamp):
            changes = users.changes(place)
            assert [(c.kind, c.before["points"], c.after["points"]) for c in changes] == [
                ("update", 1, 10),
                ("update", 3, 30),
            ]
        assert list(users.changes(users.next_offset)) == []
        assert [c.kind for c in users.changes(4)] == ["insert", "update", "update"]

    def test_changes_in_arrow(self, users: Any) -> None:
        users.append([user("eu", 1, "a"), user("eu", 1, "b")])
        users.delete(("eu", 1))
        found = users.changes().to_arrow()
        assert found.column("_change").to_pylist() == ["insert", "update", "delete"]
        assert found.column("before").to_pylist() == [None, user("eu", 1, "a"), user("eu", 1, "b")]
        assert found.column("after").to_pylist() == [user("eu", 1, "a"), user("eu", 1, "b"), None]
        assert users.changes().schema.equals(found.schema)
        assert sum(batch.num_rows for batch in users.changes().batches()) == 3

    def test_changes_go_on(self, users: Any) -> None:
        users.append(user("eu", 1, "a"))
        seen = []
        for change in users.changes().tail(stop_when_idle=0.01):
            seen.append((change.kind, change.after["email"]))
            if len(seen) < 4:
                users.append(user("eu", 1, str(len(seen))))
        assert seen == [("insert", "a"), ("update", "1"), ("update", "2"), ("update", "3")]

    def test_the_difference_of_two_moments(self, users: Any) -> None:
        users.append([user("eu", n) for n in range(4)])
        users.append([user("eu", 1, "x"), user("eu", 2, "y"), user("eu", 2), user("eu", 9)])
        users.delete(("eu", 3))
        found = users.diff(4)
        assert [(c.kind, (c.before or c.after)["id"]) for c in found] == [
            ("update", 1),
            ("insert", 9),
            ("delete", 3),
        ]
        assert (found.inserted, found.updated, found.deleted, len(found)) == (1, 1, 1, 3)
        assert not users.diff(4, 4)
        assert [c.kind for c in users.diff(users.next_offset, 0)] == ["delete"] * 4
        assert found.to_arrow().column_names == ["_change", "before", "after"]

    def test_the_difference_of_two_topics(self, log: Any, users: Any) -> None:
        users.append([user("eu", 1, "a"), user("eu", 2)])
        more = {"id": int, "region": str, "email": str | None, "points": int, "extra": float | None}
        copy = log.create_topic("copy", more, keys=["id", "region"])
        copy.append([user("eu", 1, "old"), user("eu", 3), user("eu", 1, "a")])
        found = log.diff("users", "copy")
        assert [(c.kind, (c.before or c.after)["id"]) for c in found] == [("insert", 3), ("delete", 2)]
        by_email = log.diff("copy", "users", keys=["email"])
        assert (by_email.inserted, by_email.updated, by_email.deleted) == (0, 1, 1)
        with pytest.raises(SchemaMismatch, match="not a column"):
            log.diff("users", "copy", keys=["nothing"])
        log.create_topic("plain", {"id": int})
        with pytest.raises(UsageError, match="no keys"):
            log.diff("plain", "users")

    # -- keys ----------------------------------------------------------------------------------

    def test_one_key_column_takes_its_value(self, log: Any) -> None:
        t = log.create_topic("t", {"id": str, "n": int}, kind="update", keys="id")
        t.append([{"id": "", "n": 1}, {"id": "a", "n": 2}, {"id": "", "n": 3}])
        assert t.get("")["n"] == 3
        assert t.get({"id": "a"})["n"] == 2
        t.delete("a")
        t.delete(["", "b"])
        assert t.table().count() == 0

    def test_null_and_nan_are_keys_like_others(self, log: Any) -> None:
        t = log.create_topic("t", {"k": float | None, "n": int}, kind="update", keys=["k"])
        values = [None, math.nan, 0.0, -0.0, None, math.nan, 1.0]
        t.append([{"k": value, "n": n} for n, value in enumerate(values)])
        assert [row["n"] for row in t.table()] == [3, 4, 5, 6]
        assert [t.get(value)["n"] for value in (None, math.nan, 0.0, 1)] == [4, 5, 3, 6]
        t.delete([None, math.nan])
        assert [row["n"] for row in t.table()] == [3, 6]

    def test_nested_keys(self, log: Any) -> None:
        t = log.create_topic(
            "t",
            {"at": {"x": int, "y": int | None}, "tags": list[str], "n": int},
            kind="update",
            keys=["at", "tags"],
        )
        keys = [({"x": 1, "y": 2}, []), ({"x": 1, "y": None}, []), ({"x": 1, "y": 2}, [""])]
        t.append([{"at": at, "tags": tags, "n": n} for n, (at, tags) in enumerate(keys * 2)])
        assert [row["n"] for row in t.table()] == [3, 4, 5]
        assert t.get({"at": {"x": 1, "y": None}, "tags": []})["n"] == 4
        t.delete({"at": {"x": 1, "y": 2}, "tags": [""]})
        assert t.table().count() == 2

    def test_a_key_that_is_none(self, users: Any) -> None:
        users.append(user("eu", 1))
        for key, match in [
            ({"region": "eu"}, "key column 'id' is missing"),
            ({"region": "eu", "id": 1, "email": "x"}, "'email' is not a key column"),
            (7, "the key has 2 columns"),
            ({"region": "eu", "id": "seven"}, "column 'id'"),
            ({"region": None, "id": 1}, "column 'region'"),
        ]:
            with pytest.raises(SchemaMismatch, match=match):
                users.get(key)
            with nothing_written(users), pytest.raises(SchemaMismatch, match=match):
                users.delete(key)
        assert users.get(("eu", 1)) is not None

    def test_tombstones_among_rows(self, users: Any) -> None:
        """What was read from a topic can be appended to another one, deletions and all."""
        users.append([user("eu", 1), {**user("eu", 1), "_deleted": True}, user("eu", 2)])
        assert [row["id"] for row in users.table()] == [2]

    # -- kinds ---------------------------------------------------------------------------------

    def test_an_append_topic_is_no_table(self, log: Any) -> None:
        t = log.create_topic("t", {"id": int}, keys=["id"])
        for ask in (t.get, t.delete, lambda _: t.table()):
            with pytest.raises(UsageError, match="kind 'update'"):
                ask(1)

    def test_an_update_topic_needs_keys(self, log: Any) -> None:
        with pytest.raises(UsageError, match="needs keys"):
            log.create_topic("t", {"id": int}, kind="update")
        with pytest.raises(SchemaMismatch, match="cannot be a key"):
            log.create_topic("t", {"m": dict[str, int]}, kind="update", keys=["m"])
        t = log.create_topic("t", kind="update")
        t.append({"key": b"a", "value": b"1"})
        assert t.get(b"a")["value"] == b"1"

    # -- SQL -----------------------------------------------------------------------------------

    def test_sql_sees_the_table(self, log: Any, users: Any) -> None:
        log.create_topic("logins", {"id": int}).append([{"id": 1}, {"id": 1}, {"id": 2}])
        users.append([user("eu", 1, points=1), user("eu", 2, points=2), user("eu", 1, points=3)])
        users.delete({"region": "eu", "id": 2})
        assert log.sql("select id, points from users").to_pylist() == [{"id": 1, "points": 3}]
        joined = log.sql("select sum(points)::int as n from logins join users using (id)")
        assert joined.to_pylist() == [{"n": 6}]
        assert log.sql("select count(*) as n from users where _offset > 1").to_pylist() == [{"n": 1}]
        assert log.sql(
            'select count(*) as n, sum(_deleted::int)::int as gone from "users@:"'
        ).to_pylist() == [{"n": 4, "gone": 1}]

    def test_a_table_over_partitions(self, log: Any) -> None:
        t = log.create_topic("t", {"id": int, "n": int}, kind="update", keys=["id"], partitions=3)
        t.append([{"id": n % 30, "n": n} for n in range(90)])
        t.delete([0, 1, 2])
        assert sorted(row["n"] for row in t.table()) == list(range(63, 90))
        assert [t.get(5)["n"], t.get(1)] == [65, None]
        assert t.table(as_of={0: 0, 1: 0, 2: 0}).count() == 0
        with pytest.raises(UsageError, match="one partition"):
            t.table(as_of=5).count()
