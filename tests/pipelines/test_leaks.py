"""No original value of a masked column is in any byte of what a run leaves: data, chain, statistics,
keys, events, state, statement, Parquet with its statistics. Values, methods and kinds by Hypothesis."""

from __future__ import annotations

import hashlib
import json
import shutil
import string
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virta
from virta import contexts
from virta.pipelines import Pipeline
from virta.steward.steward import Steward

SECRET = "a secret that stays in production"
ALPHABETS = (
    string.ascii_letters,
    string.ascii_lowercase + string.digits,
    "абвгдежзиклмнопрстуфхцчшщ",
    "äöüéèñçßøå",
)


def scattered(alphabet: str, seed: int, length: int) -> str:
    """A text that stands nowhere by chance, whatever Hypothesis shrinks its seed to."""
    digest = hashlib.blake2b(f"{alphabet}{seed}".encode(), digest_size=length).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest)


SEEDS = st.integers(0, 2**32)
WORDS = st.builds(scattered, st.sampled_from(ALPHABETS), SEEDS, st.integers(10, 20))
PARTS = st.builds(scattered, st.just(string.ascii_lowercase), SEEDS, st.integers(8, 12))
EMAILS = st.builds("{}.{}@{}.org".format, PARTS, PARTS, PARTS)
NUMBERS = SEEDS.map(lambda seed: 10**15 + int(scattered(string.digits[1:], seed, 16)))
TEXT_RULES = [
    {"mask": "hash"},
    {"mask": "redact"},
    {"mask": "constant", "value": "nobody"},
    {"mask": "name"},
    {"mask": "null"},
    {"mask": "drop"},
]
NUMBER_RULES = [
    {"mask": "hash"},
    {"mask": "id"},
    {"mask": "noise", "share": 0.5},
    {"mask": "null"},
    {"mask": "drop"},
    {"mask": "bucket", "width": 1_000_003},
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows, and the rules for them."""
    count = draw(st.integers(1, 25))
    rows = [
        {
            "key": draw(WORDS),
            "email": draw(EMAILS),
            "number": draw(NUMBERS),
            "free": draw(st.none() | WORDS),
            "inner": {"deep": draw(WORDS), "many": draw(st.lists(WORDS, max_size=3))},
            "plain": number,
        }
        for number in range(count)
    ]
    rules = [
        {"columns": "key", "mask": draw(st.sampled_from(["hash", "id"]))},
        {"columns": "email", "mask": draw(st.sampled_from(["email", "hash", "redact"]))},
        {"columns": "number", **draw(st.sampled_from(NUMBER_RULES))},
        {"columns": "free", **draw(st.sampled_from(TEXT_RULES))},
        {"columns": "inner.*", **draw(st.sampled_from(TEXT_RULES[:4]))},
        {"columns": "plain", "mask": "keep"},
    ]
    return rows, rules


def originals(rows: list[dict[str, Any]]) -> set[str]:
    found = {row["email"] for row in rows} | {row["email"].split("@")[0] for row in rows}
    for row in rows:
        found |= {row["key"], row["inner"]["deep"], *row["inner"]["many"], str(row["number"])}
        found |= {row["free"]} - {None}
    return found


def written(place: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file())


def decoded(place: Path) -> str:
    """Every value of a Parquet folder, and what its statistics say: pages are compressed."""
    said = []
    for path in sorted(place.rglob("*.parquet")):
        file = pq.ParquetFile(path)
        said.append(json.dumps(file.read().to_pylist(), default=str, ensure_ascii=False))
        said.append(repr(file.metadata.to_dict()))
        said.append(repr(file.metadata.metadata))
    return "".join(said)


@pytest.mark.slow
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(case=cases())
def test_no_original_value_is_in_any_byte(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    rows, rules = case
    place = tmp_path_factory.mktemp("leaks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        patch.setenv("VIRTA_MASKING_KEY", SECRET)
        contexts.add("up", str(place / "up"), environment="prod")
        contexts.add("down", str(place / "down"), environment="dev")
        with virta.open(place / "up") as log:
            inner = {"deep": str, "many": list[str]}
            schema = {
                "key": str,
                "email": str,
                "number": int,
                "free": str | None,
                "inner": inner,
                "plain": int,
            }
            people = log.create_topic("people", schema, kind="update", keys=["key"])
            people.append(rows)
            people.delete([{"key": row["key"]} for row in rows[::3]])
        run(place, rules)
        look_after(place / "down")
        values = [*originals(rows), SECRET]
        left = written(place / "down") + written(place / ".virta-down")
        assert not [value for value in values if value.encode() in left]
        numbers = [row["number"].to_bytes(8, "little") for row in rows]
        assert not [number for number in numbers if number in left]
        table = decoded(place / "lake") + (place / "lake" / "current" / "_virta.json").read_text()
        assert not [value for value in values if value in table]
    shutil.rmtree(place)


def run(place: Path, rules: list[dict[str, Any]]) -> None:
    key = {"env": "VIRTA_MASKING_KEY"}
    Pipeline.of(
        {
            "name": "down",
            "engine": "local",
            "batch_rows": 20,
            "key": key,
            "demote": {"from": "@up", "to": "@down", "topics": ["people"], "mask": rules},
            "flow": {
                "name": "lake",
                "source": {"topic": "people", "log": "@up"},
                "sink": {"parquet": "lake", "mode": "append"},
                "mask": rules,
            },
        },
        base=place,
    ).run()


def look_after(place: Path) -> None:
    """Have every derived file made: sealed segments, statistics, key indexes, a compaction."""
    with virta.open(place) as log:
        people = log.topic("people")
        assert people.verify().ok
        for row in people.table().to_arrow().to_pylist()[:3]:
            people.get({"key": row["key"]})
        people.where("plain > 3").to_arrow()
        Steward(log).run_once(force=True)
        people.where("plain > 3").to_arrow()
