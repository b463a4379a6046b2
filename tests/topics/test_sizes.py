"""Rows are measured in bytes, and batches cut so that every piece fits a block."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virta.topics.sizes import compacted, element_sizes, split


def decoded_size(batch: pa.RecordBatch) -> int:
    """The bytes of the batch's body as Arrow writes it, dictionaries and all."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return sum(message.body.size for message in stream if message.body is not None)


@pytest.mark.parametrize(
    ("array", "sizes"),
    [
        (pa.array([1, None, 3], pa.int32()), [4, 4, 4]),
        (pa.array([True, False]), [1, 1]),
        (pa.array(["", "a", "ää", None]), [0, 1, 4, 0]),
        (pa.array([b"abc", b""], pa.large_binary()), [3, 0]),
        (pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())), [16, 0, 0, 8]),
        (pa.array([["a", "bc"], []], pa.large_list(pa.string())), [3, 0]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)), [4, 4]),
        (pa.array([{"a": 1, "b": "xyz"}, {"a": 2, "b": ""}]), [11, 8]),
        (pa.array([{"k": b"vv"}, {}, {"a": b"", "b": b"c"}], pa.map_(pa.string(), pa.binary())), [3, 0, 3]),
        (pa.array(["aaaa", "b", None, "aaaa"]).dictionary_encode(), [8, 5, 8, 8]),
        (pa.array([b"0" * 16], pa.binary(16)).cast(pa.uuid()), [16]),
        (pa.array([], pa.string()), []),
    ],
)
def test_elements_are_measured_also_in_slices(array: pa.Array, sizes: list[int]) -> None:
    assert element_sizes(array).tolist() == sizes
    for start in range(len(array) + 1):
        assert element_sizes(array.slice(start)).tolist() == sizes[start:]
        assert element_sizes(array.slice(0, start)).tolist() == sizes[:start]


columns: list[st.SearchStrategy[Any]] = [
    st.integers(0, 2**60),
    st.booleans(),
    st.text(max_size=40),
    st.binary(max_size=400) | st.none(),
    st.lists(st.text(max_size=20), max_size=4),
    st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text(max_size=9)}),
]
types = [
    pa.int64(),
    pa.bool_(),
    pa.large_string(),
    pa.binary(),
    pa.list_(pa.string()),
    pa.struct([("a", pa.int8()), ("b", pa.string())]),
]


@given(st.data(), st.integers(1, 60), st.integers(2500, 8000))
@settings(max_examples=60, deadline=None)
def test_pieces_fit_and_are_the_whole(data: st.DataObject, rows: int, limit: int) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(types))), min_size=1, max_size=4, unique=True))
    arrays = [
        pa.array(data.draw(st.lists(columns[at], min_size=rows, max_size=rows)), types[at]) for at in chosen
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(at) for at in chosen])
    batch = batch.slice(data.draw(st.integers(0, rows - 1)))
    parts = split(batch, limit)
    for part in parts:
        assert part.num_rows == 1 or decoded_size(part) + 16 * part.num_rows <= limit
    assert pa.Table.from_batches(parts).to_pylist() == batch.to_pylist()


def test_pieces_are_not_needlessly_small() -> None:
    batch = pa.record_batch({"x": [bytes(1000)] * 1000})
    assert len(split(batch, 100_000)) <= 11


def test_small_batches_are_not_touched() -> None:
    batch = pa.record_batch({"x": [1, 2, 3]})
    assert split(batch)[0] is batch
    large = pa.record_batch({"x": np.zeros(4_000_000)})
    part = large.slice(5, 10)
    assert split(part)[0] is part  # a slice of something large is small


def test_a_row_too_large_stands_alone() -> None:
    batch = pa.record_batch({"x": ["a", "b" * 10_000, "c"]})
    assert [part.num_rows for part in split(batch, 5000)] == [1, 1, 1]


def test_dictionaries_are_cut_to_what_is_used() -> None:
    chooser = random.Random(7)
    labels = pa.array([f"label {n:040}" for n in range(5000)])
    indices = pa.array([chooser.choice([None, chooser.randrange(5000)]) for _ in range(50)], pa.int32())
    array = pa.DictionaryArray.from_arrays(indices, labels, ordered=True)
    small = compacted(array)
    small.validate(full=True)
    assert small.type == array.type
    assert small.to_pylist() == array.to_pylist()
    used = small.dictionary.to_pylist()
    assert used == sorted({value for value in array.to_pylist() if value is not None})
    (part,) = split(pa.record_batch({"x": array}))
    assert decoded_size(part) < 10_000


def test_every_piece_carries_a_small_dictionary() -> None:
    labels = pa.array([f"label {n:040}" for n in range(2000)])
    array = pa.DictionaryArray.from_arrays(pa.array(range(2000), pa.int32()), labels)
    batch = pa.record_batch({"x": array})
    parts = split(batch, 20_000)
    assert all(decoded_size(part) <= 20_000 for part in parts)
    assert [value for part in parts for value in part.column("x").to_pylist()] == array.to_pylist()


def test_a_dictionary_that_holds_null_keeps_it() -> None:
    labels = pa.array([None, *(f"label {n:040}" for n in range(2000))])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 5, None], pa.int32()), labels)
    assert compacted(array).to_pylist() == array.to_pylist()
