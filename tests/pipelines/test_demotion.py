"""De-promotion: masked on the way down, never up; no original value in the copy; a statement that holds."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import virta
from tests.pipelines.conftest import Crash, crash_at, run_with_crashes
from tests.served import Served
from virta import contexts
from virta.errors import Denied, NotFound, UsageError
from virta.pipelines import Pipeline, check_statement, load_statement
from virta.pipelines.statement import new_signing_key
from virta.security.masking import MaskingKey

RULES = [
    {"columns": ["id", "user_id", "card"], "mask": "hash"},
    {"columns": ["order"], "mask": "id"},
    {"columns": ["email"], "mask": "email"},
    {"columns": ["name"], "mask": "name"},
    {"columns": ["phone"], "mask": "phone", "keep_first": 3},
    {"columns": ["note"], "mask": "redact"},
    {"columns": ["account"], "mask": "partial", "last": 4},
    {"columns": ["amount", "country"], "mask": "keep"},
]
DEMOTE = {
    "from": "@prod",
    "to": "@dev",
    "topics": ["users", "orders"],
    "key": {"env": "VIRTA_MASKING_KEY"},
    "mask": RULES,
}
USERS = 300


def user(number: int) -> dict[str, Any]:
    return {
        "id": 1_000_000_007 + number * 7919,
        "email": f"ada.lovelace.{number}@analytical-engines.org",
        "name": f"Wilhelmina{number} Featherstonehaugh{number}",
        "phone": f"+358 40 {5550000 + number * 13}",
        "account": f"FI21123456{number:08d}",
        "country": "FI",
    }


def bought(number: int) -> dict[str, Any]:
    who = user(number % USERS)
    return {
        "order": f"ORD-{77_000_000 + number * 31}",
        "user_id": who["id"],
        "card": f"4111{number:012d}",
        "note": f"call {who['name']} about parcel number {number}",
        "amount": number / 4,
    }


@pytest.fixture
def prod(environments: Path) -> Any:
    with virta.open("@prod") as log:
        users = {"id": int, "email": str, "name": str, "phone": str, "account": str, "country": str}
        log.create_topic("users", users, kind="update", keys=["id"]).append([user(n) for n in range(USERS)])
        orders = {"order": str, "user_id": int, "card": str, "note": str, "amount": float}
        log.create_topic("orders", orders).append([bought(n) for n in range(1000)])
        yield log


def pipeline(base: Path, **changes: Any) -> Pipeline:
    demote = {name: value for name, value in {**DEMOTE, **changes}.items() if value is not None}
    return Pipeline.of({"name": "down", "engine": "local", "batch_rows": 300, "demote": demote}, base=base)


def bytes_of(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file())


@pytest.mark.slow
def test_no_original_value_is_anywhere_in_the_copy(prod: Any, environments: Path) -> None:
    assert run_with_crashes(lambda: pipeline(environments)) > 5
    copied = bytes_of(environments / "dev")
    originals: list[bytes] = []
    for number in range(USERS):
        row = user(number)
        originals += [str(row[name]).encode() for name in ("email", "name", "phone", "account")]
        originals += [
            row["name"].split()[0].encode(),
            row["id"].to_bytes(8, "little"),
            str(row["id"]).encode(),
        ]
    for number in range(1000):
        row = bought(number)
        originals += [str(row[name]).encode() for name in ("order", "card", "note")]
    assert not [value for value in originals if value in copied]
    assert b"a secret that stays in production" not in bytes_of(environments / "dev")
    state = bytes_of(environments / ".virta-down")
    assert b"a secret that stays in production" not in state
    assert not [value for value in originals if value in state]


@pytest.mark.slow
def test_joins_survive_and_plain_columns_are_as_they_were(prod: Any, environments: Path) -> None:
    pipeline(environments).run()
    with virta.open("@dev") as dev:
        users, orders = dev.topic("users").to_arrow().to_pylist(), dev.topic("orders").to_arrow().to_pylist()
        assert str(dev.topic("users").config.kind) == "update"
    assert len({row["id"] for row in users}) == USERS
    assert {row["user_id"] for row in orders} == {row["id"] for row in users}
    assert [row["amount"] for row in orders] == [bought(number)["amount"] for number in range(1000)]
    first, again = orders[0]["user_id"], orders[USERS]["user_id"]
    assert first == again
    assert all(
        row["account"].startswith("*") and row["account"][-4:] == f"{at:08d}"[-4:]
        for at, row in enumerate(users)
    )


def test_samples_keep_whole_users(prod: Any, environments: Path) -> None:
    sample = {"share": 0.2, "by": {"users": "id", "orders": "user_id"}}
    report = pipeline(environments, sample=sample, where={"orders": "amount >= 10"}).run()
    with virta.open("@dev") as dev:
        users = {row["id"] for row in dev.topic("users").to_arrow().to_pylist()}
        orders = [row["user_id"] for row in dev.topic("orders").to_arrow().to_pylist()]
    assert 20 < len(users) < 110
    assert set(orders) <= users
    expected = sum(bought(number)["amount"] >= 10 for number in range(1000))
    assert report.rows == len(users) + len(orders) < 1000 < expected + USERS


def test_columns_without_a_rule_stop_everything(prod: Any, environments: Path) -> None:
    rules = [rule for rule in RULES if rule["mask"] not in ("email", "redact")]
    with pytest.raises(Denied, match='columns of "users": email'):
        pipeline(environments, mask=rules).run()
    with pytest.raises(Denied, match='columns of "orders": note'):
        pipeline(environments, mask=[*rules, RULES[2]]).run()
    assert not (environments / "dev" / "topics").exists() or not list(
        (environments / "dev" / "topics").iterdir()
    )


def test_only_down(prod: Any, environments: Path) -> None:
    contexts.add("prod2", str(environments / "prod2"), environment="prod")
    contexts.add("alias", str(environments / "prod"), environment="dev")
    for names in (("@dev", "@prod"), ("@prod", "@prod2"), ("@prod", "@prod")):
        with pytest.raises(Denied, match="only goes down"):
            pipeline(environments, **{"from": names[0], "to": names[1]}).run()
    with pytest.raises(Denied, match="the same log"):
        pipeline(environments, to="@alias").run()
    (environments / "link").symlink_to(environments / "prod")
    contexts.add("link", str(environments / "link"), environment="dev")
    with pytest.raises(Denied, match="the same topic"):
        pipeline(environments, to="@link").run()
    with pytest.raises(UsageError, match="is a context"):
        pipeline(environments, to=str(environments / "dev")).run()


def test_a_plain_flow_does_not_go_round_it(prod: Any, environments: Path) -> None:
    flow = {"source": {"topic": "users", "log": "@prod"}, "sink": {"topic": "users", "log": "@dev"}}
    with pytest.raises(Denied, match="unmasked"):
        Pipeline.of({"name": "round", "engine": "local", "flow": [flow]}, base=environments)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"topics": ["nothing-*"]}, NotFound, "no topic 'nothing-"),
        ({"topics": []}, UsageError, "names no topics"),
        ({"sample": {"share": 0.5}}, UsageError, "by which column"),
        ({"sample": {"share": 0.5, "by": {"nobody": "id"}}}, UsageError, "not copied"),
        ({"where": {"orders": 3}}, UsageError, "cannot be 3"),
        ({"key": None}, UsageError, "needs a masking key"),
        ({"key": {"env": "NOWHERE"}}, NotFound, "NOWHERE"),
        (
            {"mask": [{"columns": ["id"], "mask": "drop"}, {"columns": "*", "mask": "keep"}]},
            UsageError,
            "is dropped",
        ),
    ],
)
def test_mistakes(prod: Any, environments: Path, changes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pipeline(environments, **changes).run()


# -- statements --------------------------------------------------------------------------------------

KEY = MaskingKey.of("a secret that stays in production")


def test_a_statement_tells_what_was_done_and_holds(prod: Any, environments: Path) -> None:
    private, public = environments / "sign.pem", environments / "sign.pub"
    public.write_text(new_signing_key(private))
    report = pipeline(environments, sign={"file": "sign.pem"}).run()
    statement = load_statement(report.statement)
    told = {each["topic"]: each for each in statement["topics"]}
    assert told["orders"]["rows"] == 1000
    assert {each["column"]: each["mask"] for each in told["users"]["columns"]}["email"] == "email"
    assert statement["key"] == KEY.fingerprint and "secret" not in json.dumps(statement)
    whole = {"public_key": public, "source": "@prod", "target": "@dev"}
    checked = check_statement(statement, **whole, policy_hash=statement["policy"])
    assert checked.ok and len(checked.passed) == 7
    prod.topic("orders").append(bought(5000))  # history that goes on is still that history
    with virta.open("@dev") as dev:
        dev.topic("orders").append({"order": "x", "user_id": 1, "card": "c", "note": "n", "amount": 0.0})
    assert check_statement(statement, **whole).ok


def test_a_statement_that_was_changed_does_not_hold(prod: Any, environments: Path) -> None:
    (environments / "sign.pub").write_text(new_signing_key(environments / "sign.pem"))
    statement = load_statement(pipeline(environments, sign={"file": "sign.pem"}).run().statement)
    for change in ({"policy": "0" * 64}, {"topics": []}, {"to": {**statement["to"], "rank": 99}}):
        assert not check_statement({**statement, **change}, public_key=environments / "sign.pub").ok
    (environments / "other.pub").write_text(new_signing_key(environments / "other.pem"))
    assert not check_statement(statement, public_key=environments / "other.pub").ok
    assert check_statement(statement).notices
    assert not check_statement(statement, policy_hash="0" * 64).ok
    assert not check_statement({**statement, "signature": {}}).ok


def test_without_a_signing_key_the_masking_key_signs(prod: Any, environments: Path) -> None:
    statement = load_statement(pipeline(environments).run().statement)
    assert check_statement(statement, masking_key=KEY).ok
    assert not check_statement(statement, masking_key=MaskingKey.of("another secret of mine")).ok
    assert not check_statement(statement).ok
    assert not check_statement({**statement, "run": "x"}, masking_key=KEY).ok


def test_a_copy_that_was_changed_or_made_again_does_not_hold(prod: Any, environments: Path) -> None:
    statement = load_statement(pipeline(environments).run().statement)
    data = next((environments / "dev" / "topics" / "orders" / "p0000").glob("*.arrows"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    assert not check_statement(statement, masking_key=KEY, target="@dev").ok
    prod.drop_topic("orders")
    checked = check_statement(statement, masking_key=KEY, source="@prod")
    assert any("orders" in each for each in checked.failed)


def test_every_statement_stays_and_a_run_without_news_makes_none(prod: Any, environments: Path) -> None:
    pipeline(environments).run()
    latest = environments / ".virta-down" / "statement.json"
    first = latest.read_bytes()
    assert pipeline(environments).run().rows == 0
    assert latest.read_bytes() == first
    prod.topic("orders").append(bought(5000))
    pipeline(environments).run()
    kept = sorted((environments / ".virta-down" / "statements").iterdir())
    assert [each.read_bytes() for each in kept] == [first, latest.read_bytes()]
    key = MaskingKey.of("a secret that stays in production")
    for each in kept:
        assert check_statement(load_statement(each), masking_key=key, source="@prod", target="@dev").ok


def test_a_copy_without_a_row_is_an_empty_topic(prod: Any, environments: Path) -> None:
    report = pipeline(environments, where={"orders": "amount > 1000000"}).run()
    assert report.flows[1].rows == 0
    with virta.open("@dev") as dev:
        assert dev.topic("orders").count() == 0
    key = MaskingKey.of("a secret that stays in production")
    statement = load_statement(environments / ".virta-down" / "statement.json")
    assert check_statement(statement, masking_key=key, source="@prod", target="@dev").ok


def test_tags_go_down_with_their_columns(environments: Path) -> None:
    tagged = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("email", pa.string(), metadata={"virta.tags": "pii,contact"}),
            pa.field("note", pa.string(), metadata={"virta.tags": "public"}),
        ]
    )
    rules = [{"tags": ["pii"], "mask": "email"}, {"columns": ["id", "note"], "mask": "keep"}]
    with virta.open("@prod") as log:
        log.create_topic("tagged", tagged).append({"id": 1, "email": "ada@corp.org", "note": "x"})
    pipeline(environments, topics=["tagged"], mask=rules).run()
    with virta.open("@dev") as log:
        fields = log.topic("tagged").schema
        assert fields.field("email").metadata[b"virta.tags"] == b"pii,contact"
        assert fields.field("note").metadata[b"virta.tags"] == b"public"
        assert "ada" not in str(log.topic("tagged")[:].to_pylist())


# -- tables: what is not wanted any more goes -----------------------------------------------------------


TABLE_RULES = [{"columns": "id", "mask": "hash"}, {"columns": "*", "mask": "keep"}]


def table_of(address: str, topic: str) -> list[tuple[Any, ...]]:
    with virta.open(address) as log:
        rows = log.topic(topic).table().to_arrow().to_pylist()
    return sorted((row["owner"], row["amount"], tuple(row["tags"] or ())) for row in rows)


def test_a_row_that_is_not_wanted_any_more_goes_from_the_copy(environments: Path) -> None:
    schema = {"id": int, "owner": str, "amount": float, "tags": list[str]}
    with virta.open("@prod") as log:
        accounts = log.create_topic("accounts", schema, kind="update", keys=["id"])
        rows = [{"id": n, "owner": f"o{n}", "amount": 5.0 + n, "tags": ["x"]} for n in range(10)]
        accounts.append(rows)
        changes = {"topics": ["accounts"], "mask": TABLE_RULES, "where": {"accounts": "amount > 6"}}
        pipeline(environments, **changes).run()
        assert len(table_of("@dev", "accounts")) == 8
        accounts.delete({"id": 9})
        accounts.append([{"id": 8, "owner": "o8", "amount": 1.0, "tags": ["secret"]}])
        pipeline(environments, **changes).run()
    assert table_of("@dev", "accounts") == [(f"o{n}", 5.0 + n, ("x",)) for n in range(2, 8)]
    assert b"secret" not in bytes_of(environments / "dev")


def test_a_sampled_table_follows_its_entities(environments: Path) -> None:
    """Sampled by another column than the key: an account that changes hands leaves, or comes."""
    schema = {"id": int, "owner": str, "amount": float, "tags": list[str]}
    sample = {"share": 0.5, "by": {"accounts": "owner"}}
    changes = {"topics": ["accounts"], "mask": TABLE_RULES, "sample": sample}
    with virta.open("@prod") as log:
        accounts = log.create_topic("accounts", schema, kind="update", keys=["id"], partitions=3)
        accounts.append([{"id": n, "owner": f"o{n % 40}", "amount": 1.0, "tags": ["x"]} for n in range(200)])
        pipeline(environments, **changes).run()
        stay = {owner for owner, _, _ in table_of("@dev", "accounts")}
        assert 8 < len(stay) < 32
        accounts.append(
            [{"id": n, "owner": f"o{(n + 1) % 40}", "amount": 2.0, "tags": ["y"]} for n in range(200)]
        )
        accounts.delete([{"id": n} for n in range(0, 200, 7)])
        pipeline(environments, **changes).run()
        left = accounts.table().to_arrow().to_pylist()
    wanted = sorted((row["owner"], row["amount"], tuple(row["tags"])) for row in left if row["owner"] in stay)
    assert table_of("@dev", "accounts") == wanted


def test_deletions_are_no_rows_of_a_topic_that_only_grows(environments: Path) -> None:
    with virta.open(environments / "log") as log:
        accounts = log.create_topic("accounts", {"id": int, "amount": float}, kind="update", keys=["id"])
        accounts.append([{"id": 1, "amount": 1.0}, {"id": 2, "amount": 2.0}])
        accounts.delete({"id": 1})
        written = {
            "name": "grow",
            "engine": "local",
            "log": str(environments / "log"),
            "flow": {
                "source": {"topic": "accounts"},
                "sink": {"topic": "seen", "kind": "append", "keys": []},
            },
        }
        Pipeline.of(written, base=environments).run()
        assert [row["id"] for row in log.topic("seen")] == [1, 2]


# -- over the wire --------------------------------------------------------------------------------------


def test_from_one_broker_to_another(prod: Any, environments: Path) -> None:
    """The same copy between logs that are served, killed at every third step; its statement holds there."""
    above, below = Served(environments / "prod"), Served(environments / "dev")
    try:
        contexts.add("prod", above.address, environment="prod", replace=True)
        contexts.add("dev", below.address, environment="dev", replace=True)
        for number in range(1, 30, 3):
            with contextlib.suppress(Crash):
                pipeline(environments).run(watch=crash_at(number))
        pipeline(environments).run()
        with virta.open("@dev") as dev:
            users, orders = (dev.topic(name).to_arrow().to_pylist() for name in ("users", "orders"))
            noted = [row["kind"] for row in dev.topic("__events")[:].to_pylist()]
        assert (len(users), len(orders)) == (USERS, 1000)
        assert {row["user_id"] for row in orders} == {row["id"] for row in users}
        assert "pipeline run" in noted
        statement = load_statement(environments / ".virta-down" / "statement.json")
        key = MaskingKey.of("a secret that stays in production")
        assert check_statement(statement, masking_key=key, source="@prod", target="@dev").ok
    finally:
        below.stop()
        above.stop()
