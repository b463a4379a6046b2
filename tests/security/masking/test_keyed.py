"""Hashing columns: BLAKE3's own digests, the same value the same, kinds apart."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from virta.errors import NotFound, UsageError
from virta.security.masking.blake3_blocks import digests
from virta.security.masking.key import MaskingKey, new_secret
from virta.security.masking.keyed import KeyedHash, hexadecimal, mapped
from virta.security.masking.permutation import permuted

KEY = MaskingKey.of("a secret for these tests")


@given(st.lists(st.binary(max_size=64), min_size=1, max_size=50), st.binary(min_size=32, max_size=32))
def test_many_at_once_are_the_librarys_digests(values: list[bytes], key: bytes) -> None:
    blocks = np.zeros((len(values), 64), np.uint8)
    for row, value in enumerate(values):
        blocks[row, : len(value)] = np.frombuffer(value, np.uint8)
    found = digests(key, blocks, np.array([len(value) for value in values]))
    assert [row.tobytes() for row in found] == [blake3(value, key=key).digest() for value in values]


@given(st.lists(st.text(max_size=100), max_size=30))
def test_a_value_has_one_digest_whatever_its_array(values: list[str]) -> None:
    digest = KeyedHash(KEY, "hash")
    key = KEY.purpose("hash", "", "text")
    wanted = [blake3(value.encode(), key=key).digest() for value in values]
    plain = pa.array(values, pa.string())
    padded = pa.concat_arrays([pa.array(["before"]), plain, pa.array(["after"])]).slice(1, len(values))
    for array in (plain, padded, plain.cast(pa.large_string())):
        assert [row.tobytes() for row in digest(array)] == wanted
    assert hexadecimal(digest(plain), 16).to_pylist() == [each[:16].hex() for each in wanted]


def test_widths_share_pseudonyms_and_kinds_do_not() -> None:
    digest = KeyedHash(KEY, "hash")

    def one(value: object, type_: pa.DataType) -> bytes:
        return bytes(digest(pa.array([value], type_))[0].tobytes())

    assert one(7, pa.int8()) == one(7, pa.int64()) == one(7, pa.uint16())
    assert one(0.0, pa.float32()) == one(-0.0, pa.float64())
    assert one(float("nan"), pa.float32()) == one(float("nan"), pa.float64())
    kinds = [
        one(7, pa.int64()),
        one(7.0, pa.float64()),
        one("7", pa.string()),
        one(b"7", pa.binary()),
        one(7, pa.date32()),
        one(7, pa.timestamp("us")),
        one(7, pa.duration("us")),
        one(decimal.Decimal(7), pa.decimal128(3)),
    ]
    assert len(set(kinds)) == len(kinds)


def test_other_keys_purposes_and_domains_are_unrelated() -> None:
    values = pa.array(["ada"])
    found = [
        KeyedHash(key, purpose, domain)(values).tobytes()
        for key in (KEY, MaskingKey.of("another secret of mine"))
        for purpose in ("hash", "sample")
        for domain in ("", "hr")
    ]
    assert len(set(found)) == len(found)


def test_each_distinct_value_is_changed_once() -> None:
    seen: list[int] = []

    def change(values: pa.Array) -> pa.Array:
        seen.append(len(values))
        return values

    array = pa.array(["a", None, "b", "a"] * 1000)
    assert mapped(array, change).equals(array)
    assert seen == [2]
    assert mapped(pa.nulls(3, pa.string()), change).null_count == 3


# -- the permutation -------------------------------------------------------------------------------


@given(st.integers(1, 3000), st.binary(min_size=32, max_size=32))
def test_a_permutation_is_one(size: int, key: bytes) -> None:
    made = permuted(key, np.arange(size), np.full(size, size))
    assert sorted(made.tolist()) == list(range(size))


def test_a_permutation_of_a_large_space_stays_in_it() -> None:
    sizes = np.array([10**18, 2**62, 5, 10**18 - 1], np.uint64)
    made = permuted(b"k" * 32, sizes - np.uint64(1), sizes)
    assert (made < sizes).all()
    with pytest.raises(ValueError, match="outside"):
        permuted(b"k" * 32, np.array([5]), np.array([5]))


# -- the key ---------------------------------------------------------------------------------------


def test_a_key_is_found_and_never_shows_itself(tmp_path, monkeypatch) -> None:
    secret = new_secret()
    file = tmp_path / "key"
    file.write_text(secret + "\n")
    file.chmod(0o600)
    monkeypatch.setenv("MASK", secret)
    key = MaskingKey.named({"file": str(file)})
    assert key == MaskingKey.named({"env": "MASK"}) == MaskingKey.of(secret)
    assert key.fingerprint == MaskingKey.of(secret).fingerprint != MaskingKey.of(new_secret()).fingerprint
    assert secret not in repr(key) and repr(key.secret) not in repr(key)


def test_a_key_that_cannot_be_one_is_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(UsageError, match="at least 16 bytes"):
        MaskingKey.of("short")
    with pytest.raises(UsageError, match="never written down"):
        MaskingKey.named({"value": "0123456789abcdef"})
    monkeypatch.delenv("MASK", raising=False)
    with pytest.raises(NotFound, match=r"\$MASK"):
        MaskingKey.named({"env": "MASK"})
    with pytest.raises(NotFound, match="cannot be read"):
        MaskingKey.from_file(tmp_path / "none")
    open_to_all = tmp_path / "key"
    open_to_all.write_text(new_secret())
    open_to_all.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        MaskingKey.from_file(open_to_all)
