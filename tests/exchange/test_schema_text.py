"""Schemas as they are typed, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from virta.errors import UsageError
from virta.exchange.schema_text import schema_of_data, schema_of_json, schema_of_words, text_of, texts_of

LINES = pa.field("item", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False)

WORDS = [
    ("id:int", pa.field("id", pa.int64(), nullable=False)),
    ("user:str?", pa.field("user", pa.string())),
    ("at:datetime", pa.field("at", pa.timestamp("us", "UTC"), nullable=False)),
    ("at:timestamp(ns,Europe/Helsinki)?", pa.field("at", pa.timestamp("ns", "Europe/Helsinki"))),
    ("at:timestamp(ms)?", pa.field("at", pa.timestamp("ms"))),
    ("n:uint16?", pa.field("n", pa.uint16())),
    ("price:decimal(10,2)?", pa.field("price", pa.decimal128(10, 2))),
    ("digest:bytes(32)?", pa.field("digest", pa.binary(32))),
    ("kind:label?", pa.field("kind", pa.dictionary(pa.int32(), pa.string()))),
    ("id:uuid?", pa.field("id", pa.uuid())),
    ("tags:str?[]?", pa.field("tags", pa.list_(pa.string()))),
    ("tags:str[][]?", pa.field("tags", pa.list_(LINES))),
    ("point:float?[2]?", pa.field("point", pa.list_(pa.float64(), 2))),
    ("attributes:map<str,int?>?", pa.field("attributes", pa.map_(pa.string(), pa.int64()))),
    (
        "place:{lat:float?,name:str?[]?}?",
        pa.field("place", pa.struct([("lat", pa.float64()), ("name", pa.list_(pa.string()))])),
    ),
]


@pytest.mark.parametrize(("word", "field"), WORDS, ids=[word for word, _ in WORDS])
def test_a_word_is_a_column_and_back(word: str, field: pa.Field) -> None:
    (made,) = schema_of_words([word])
    assert made.equals(field)
    assert schema_of_words([f"{field.name}:{text_of(field)}"]).field(0).equals(field)


def test_other_names_of_types() -> None:
    others = {"string": "str", "text": "str", "binary": "bytes", "integer": "int", "int64": "int"}
    others |= {"double": "float", "boolean": "bool", "timestamp": "datetime", "category": "label"}
    made = schema_of_words([f"{name}:{name}" for name in others])
    assert texts_of(made) == others


@pytest.mark.parametrize(
    "word",
    ["id", "id:", ":int", "id:strr", "id:list", "id:str]", "id:{a}", "id:map<str>", "id:decimal(a,b)",
     "id:decimal(1,2,3)", "id:timestamp(day)", "id:int?x", "id:float[x]", "id:int(5)", "id:bytes(",
     "id:time64(s)"],
)  # fmt: skip
def test_what_is_no_column_is_refused_with_a_hint(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        schema_of_words([word])
    assert refused.value.hint


def test_a_near_type_is_suggested() -> None:
    with pytest.raises(UsageError, match='there is no type "flot"') as refused:
        schema_of_words(["x:flot"])
    assert "float" in (refused.value.hint or "")


def test_a_json_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"id": "int", "place": {"lat": "float", "lon": "float?"}}))
    assert texts_of(schema_of_json(file)[0]) == {"id": "int", "place": "{lat:float,lon:float?}"}
    file.write_text(json.dumps({"topic": "x", "schema": {"id": "int", "_headers": "map<str,bytes?>?"}}))
    schema, headers = schema_of_json(file)
    assert headers and texts_of(schema) == {"id": "int"}


@pytest.mark.parametrize("text", ["[", "[]", '{"id": 5}', '{"id": null}'])
def test_a_json_file_that_is_no_schema(tmp_path: Path, text: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(text)
    with pytest.raises(UsageError):
        schema_of_json(file)


def test_the_schema_of_data_leaves_out_our_own_columns(tmp_path: Path) -> None:
    table = pa.table({"_offset": [0], "id": [1], "user": ["ada"]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with (
        pa.OSFile(str(tmp_path / "rows.arrows"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as stream,
    ):
        stream.write_table(table)
    for name in ("rows.parquet", "rows.arrow", "rows.arrows"):
        assert texts_of(schema_of_data(tmp_path / name)) == {"id": "int?", "user": "str?"}
    (tmp_path / "rows.csv").write_text("id,user\n")
    with pytest.raises(UsageError):
        schema_of_data(tmp_path / "rows.csv")
