"""Update topics on the command line: upsert, delete, table, get, changes, diff; and versions of topics."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli

ROWS = """\
{"region": "eu", "id": 7, "email": "a@b", "age": 3}
{"region": "us", "id": 7, "email": "c@d", "age": null}
"""


@pytest.fixture
def users(cli: Cli) -> Cli:
    cli.ok("topic", "create", "users", "region:str", "id:int", "email:str?", "age:int?", "--kind", "update",
           "--keys", "region,id")  # fmt: skip
    cli.ok("append", "users", "-", stdin=ROWS)
    return cli


def test_create_says_what_it_would_make(cli: Cli) -> None:
    dry = cli.ok("topic", "create", "raw", "--kind", "update", "--dry-run")
    (made,) = dry.rows
    assert (made["kind"], made["keys"]) == ("update", ["key"])
    assert cli("topic", "create", "x", "id:int", "--kind", "update").code == 2


def test_upsert_sets_what_is_named_and_keeps_the_rest(users: Cli) -> None:
    rows = '{"region": "eu", "id": 7, "age": 4}\n{"id": 8, "region": "eu", "email": "x"}\n'
    assert "set 2 rows" in users.ok("upsert", "users", "-", stdin=rows).err
    found = {(row["region"], row["id"]): row for row in users.ok("table", "users", "-o", "jsonl").rows}
    assert (found["eu", 7]["email"], found["eu", 7]["age"]) == ("a@b", 4)
    assert (found["eu", 8]["email"], found["eu", 8]["age"]) == ("x", None)
    users.ok("upsert", "users", "-", "--format", "csv", stdin="region,id,email\nus,7,\n")
    assert users.ok("get", "users", "region=us,id=7").rows[0]["email"] is None
    dry = users.ok("upsert", "users", "-", "--dry-run", stdin='{"region": "eu", "id": 9}')
    assert "nothing was done" in dry.err and users.ok("table", "users", "--count").out == "3\n"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"region": "eu", "ag": 3}', 'no column "ag"'),
        ('{"region": "eu"}', "stdin:1: the key column 'id' is missing"),
        ('{"region": "eu", "id": 1, "age": "x"}', "stdin:1"),
    ],
)
def test_what_does_not_fit_names_its_line(users: Cli, row: str, said: str) -> None:
    done = users("upsert", "users", "-", stdin=row)
    assert done.code == 2 and said in done.err


def test_get_by_every_form_of_a_key(users: Cli) -> None:
    assert users.ok("get", "users", "region=eu,id=7").rows[0]["age"] == 3
    assert users.ok("get", "users", "id=7,region=us").rows[0]["email"] == "c@d"
    assert users.ok("get", "users", '{"region": "eu", "id": 7}').rows[0]["_offset"] == 0
    both = users("get", "users", "region=eu,id=7", "region=eu,id=9")
    assert both.code == 3 and len(both.rows) == 1 and "no row with the key region=eu,id=9" in both.err
    for wrong in ("7", "region=eu", "region=eu,id=x", '{"region": "eu"}', "{", "region=eu,id=7,age=1"):
        assert users("get", "users", wrong).code == 2, wrong
    users.ok("topic", "create", "words", "word:str", "n:int", "--kind", "update", "--keys", "word")
    users.ok("append", "words", "-", stdin='{"word": "a=b", "n": 1}\n{"word": "", "n": 2}')
    assert users.ok("get", "words", "a=b").rows[0]["n"] == 1
    assert users.ok("get", "words", "word=").rows[0]["n"] == 2
    assert users("get", "orders", "1").code == 3


def test_delete_by_key_and_from_a_pipe(users: Cli) -> None:
    dry = users.ok("delete", "users", "region=eu,id=7", "region=eu,id=9", "--dry-run", "-o", "json")
    assert json.loads(dry.out) == {"topic": "users", "deleted": 1, "dry_run": True}
    assert "deleted 1 row" in users.ok("delete", "users", "region=eu,id=7").err
    rest = users.ok("table", "users", "-o", "jsonl").out
    users.ok("delete", "users", "--from", "-", stdin=rest)
    assert users.ok("table", "users", "--count").out == "0\n"
    assert users("delete", "users").code == 2
    assert users("delete", "users", "--from", "-", stdin='{"id": 1}').code == 2


def test_table_as_of_a_moment(users: Cli) -> None:
    users.ok("delete", "users", "region=us,id=7")
    assert users.ok("table", "users@2", "-q").out == "0\n1\n"
    assert users.ok("table", "users@-1", "-q").out == "0\n1\n"
    assert users.ok("table", "users", "-q").out == "0\n"
    assert users.ok("table", "users@-1h", "--count").out == "0\n"
    assert users.ok("table", "users@2", "--where", "age is null", "--columns", "email").rows == [
        {"email": "c@d"}
    ]
    assert users("table", "users@1:2").code == 2
    users.ok("topic", "create", "plain", "id:int")
    assert "kind 'update'" in users("table", "plain").err


def test_changes_and_where_they_begin(users: Cli) -> None:
    users.ok("upsert", "users", "-", stdin='{"region": "eu", "id": 7, "age": 4}')
    users.ok("delete", "users", "region=us,id=7")
    found = users.ok("changes", "users").rows
    assert [row["_change"] for row in found] == ["insert", "insert", "update", "delete"]
    assert (found[2]["before"]["age"], found[2]["after"]["age"]) == (3, 4)
    assert users.ok("changes", "users@3:").rows == found[3:]
    assert users.ok("changes", "users@-1:").rows == found[3:]
    assert users.ok("changes", "users", "-q").out.split() == ["insert", "insert", "update", "delete"]
    assert users.ok("changes", "users@end", "--follow", "--stop-when-idle", "10ms").rows == []
    followed = users.ok("changes", "users@2", "--follow", "--stop-when-idle", "10ms")
    assert followed.rows == found[2:]
    assert users("changes", "users@1:2").code == 2
    assert users("changes", "users", "--stop-when-idle", "1s").code == 2


def test_diff_of_moments_and_of_topics(users: Cli) -> None:
    same = users.ok("diff", "users", "users")
    assert "no difference" in same.err and not same.out
    users.ok("upsert", "users", "-", stdin='{"region": "eu", "id": 7, "age": 4}\n{"region": "x", "id": 1}')
    users.ok("delete", "users", "region=us,id=7")
    done = users("diff", "users@2", "users", "-o", "jsonl")
    assert done.code == 1 and "1 inserted, 1 updated, 1 deleted" in done.err
    assert sorted(row["_change"] for row in done.rows) == ["delete", "insert", "update"]
    summary = users("diff", "users@2", "users", "--summary")
    assert summary.code == 1 and not summary.out
    users.ok("topic", "create", "copy", "region:str", "id:int", "email:str?", "age:int?")
    users.ok("append", "copy", "-", stdin=users.ok("table", "users", "-o", "jsonl").out)
    assert users("diff", "copy", "users").code == 2  # no keys to go by
    assert users("diff", "copy", "users", "--key", "region,id").code == 0
    assert users("diff", "users", "nowhere").code == 3


def test_versions_are_listed_shown_compared_and_read(users: Cli) -> None:
    dry = users.ok("topic", "alter", "users", "coupon:str?", "--rename", "email=mail", "--dry-run")
    assert "column email: email → mail" in dry.err and "column coupon: none → str?" in dry.err
    users.ok("topic", "alter", "users", "coupon:str?", "--rename", "email=mail", "-q")
    users.ok("topic", "alter", "users", "--rename", "id=number", "--retention-age", "30d", "-q")
    listed = users.ok("topic", "show", "users", "--history", "-o", "jsonl").rows
    assert [(row["version"], row["kind"]) for row in listed] == [
        (1, "created"),
        (2, "schema changed"),
        (3, "schema changed"),
    ]
    assert listed[1]["changes"] == [
        "column email: email str | None → mail str | None",
        "column coupon: none → str | None",
    ]
    changed = users.ok("topic", "show", "users", "--diff", "2:", "-o", "jsonl").rows
    assert [row["what"] for row in changed] == ["keys", "retention_age_seconds", "column id"]
    (first,) = users.ok("topic", "show", "users", "--version", "1", "-o", "jsonl").rows
    assert list(first["columns"]) == ["region", "id", "email", "age"]
    rows = users.ok("read", "users", "--at-version", "1", "--columns", "id,email", "-o", "jsonl").rows
    assert rows == [{"id": 7, "email": "a@b"}, {"id": 7, "email": "c@d"}]
    assert users("topic", "show", "users", "--version", "9").code == 3
    for wrong in ("1", "0:1", "a:b"):
        assert users("topic", "show", "users", "--diff", wrong).code == 2
    assert users("topic", "show", "users", "--history", "--diff", "1:").code == 2
    assert users("topic", "alter", "users", "--rename", "nope=x").code == 2
    assert users("topic", "alter", "users", "--rename", "age").code == 2
