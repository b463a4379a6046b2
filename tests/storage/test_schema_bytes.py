"""A schema counts by the bytes it was written in, not by those pyarrow would write today."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import virta
from virta.metadata import catalog
from virta.storage import block


def _padded(data: bytes) -> bytes:
    """The same message with eight more bytes of padding in its metadata."""
    length = int.from_bytes(data[4:8], "little") + 8
    return data[:4] + length.to_bytes(4, "little") + data[8:] + bytes(8)


def test_a_log_with_other_schema_bytes_opens_reads_and_appends(tmp_path: Path, monkeypatch) -> None:
    real = catalog.schema_to_bytes
    monkeypatch.setattr(catalog, "schema_to_bytes", lambda schema: _padded(real(schema)))
    opening = block.schema_message

    def foreign(schema: pa.Schema) -> bytes:
        return _padded(opening(schema)) if "n" in schema.names else opening(schema)

    with monkeypatch.context() as other:
        other.setattr(block, "schema_message", foreign)
        with virta.open(tmp_path / "log") as log:
            log._catalog.create(
                "t",
                pa.schema([*block.leading_fields(), pa.field("n", pa.int64())]),
                virta.TopicConfig(),
            )
    with virta.open(tmp_path / "log") as log:
        topic = log.topic("t")
        topic.append({"n": 1})
        assert [row["n"] for row in topic] == [1]
        assert topic.verify().ok
    (data,) = (tmp_path / "log").rglob("*.arrows")
    schema_file = next((tmp_path / "log").rglob("0001.arrow")).read_bytes()
    assert data.read_bytes().startswith(schema_file)
    assert schema_file != pa.ipc.read_schema(pa.py_buffer(schema_file)).serialize().to_pybytes()
