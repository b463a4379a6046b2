"""One-row messages that are taken the short way: never other than the long way would take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import virta
from virta.broker.intake import Intake
from virta.client.encoding import WireForm, parts_of
from virta.errors import VirtaError
from virta.metadata.schemas import written_schema
from virta.storage import block
from virta.topics.topic import Topic

SCHEMAS: dict[str, Any] = {
    "untyped": None,
    "typed": {"id": int, "user": str, "amount": float | None, "data": bytes | None},
    "nested": {"id": int, "tags": list[str] | None, "flag": bool | None},
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "untyped": [{"key": b"k1", "value": b"v" * 21}, {"key": b"k2", "value": b"w" * 21}],
    "typed": [
        {"id": 7, "user": "ada", "amount": 1.5, "data": b"abc"},
        {"id": 8, "user": "é!", "amount": -2.5, "data": b"xyz"},
    ],
    "nested": [{"id": 1, "tags": ["a", "bc"], "flag": True}, {"id": 2, "tags": ["a", "bc"], "flag": True}],
}


@pytest.fixture(params=sorted(SCHEMAS))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with virta.open(tmp_path) as log:
        yield log.create_topic("t", SCHEMAS[request.param]), ROWS[request.param]


def encoded(topic: Topic, row: dict[str, Any]) -> bytes:
    """The body that a client sends for one row."""
    record = topic._schemas.record
    form = WireForm(record, written_schema(topic._schemas.version(record.schema_version)))
    batch = pa.RecordBatch.from_pylist([row], schema=form.converter.schema)
    single = form.single.prepare(row) if form.single is not None else None
    return b"".join(bytes(part) for part in parts_of(single or form.encoder.prepare(batch)))


def outcome(intake: Intake, body: bytes, version: int) -> Any:
    """The block it becomes, or the kind of error."""
    try:
        prepared = intake.take(memoryview(body), version)
    except VirtaError as error:
        return type(error)
    stamped = block.stamp(prepared, 5, 6, bytes(32), 64, 1, 0)
    header = stamped.header
    return header.rows, header.length, prepared.fields_at, bytes(prepared.head), bytes(prepared.body)


def test_what_is_known_is_taken_as_it_was_before(made: Any) -> None:
    topic, rows = made
    version = topic._schemas.record.version
    intake = Intake(topic._schemas)
    for row in [*rows, *rows]:
        body = encoded(topic, row)
        assert outcome(intake, body, version) == outcome(Intake(topic._schemas), body, version)
        assert intake._singles.take(memoryview(body)) is not None


def test_every_changed_byte_is_judged_as_the_long_way_judges_it(made: Any) -> None:
    topic, rows = made
    version = topic._schemas.record.version
    intake, careful = Intake(topic._schemas), Intake(topic._schemas)
    body = encoded(topic, rows[0])
    taken = 0
    for at in range(len(body)):
        for bits in (0x01, 0x80):
            assert not isinstance(outcome(intake, body, version), type)  # known again, whatever came between
            changed = body[:at] + bytes((body[at] ^ bits,)) + body[at + 1 :]
            short = intake._singles.take(memoryview(changed))
            careful._singles._heads.clear()
            expected = outcome(careful, changed, version)
            if short is not None:
                taken += 1
                assert not isinstance(expected, type), f"byte {at} was refused with {expected}"
            assert outcome(intake, changed, version) == expected, at
    assert taken > 0


def test_a_text_that_is_not_utf8_is_refused_the_second_time_too(tmp_path: Path) -> None:
    with virta.open(tmp_path) as log:
        topic = log.create_topic("t", SCHEMAS["typed"])
        version = topic._schemas.record.version
        intake = Intake(topic._schemas)
        body = encoded(topic, ROWS["typed"][0])
        intake.take(memoryview(body), version)
        broken = body.replace(b"ada", b"a\xff\xfe")
        with pytest.raises(VirtaError, match="UTF"):
            intake.take(memoryview(broken), version)
