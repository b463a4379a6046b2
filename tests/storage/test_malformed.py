"""Bytes that nobody of ours wrote, in each kind of file: an error that says so, and nothing worse.

Every read runs under a limit on memory, so a length that is believed shows as a
MemoryError; a test that hangs is ended by the alarm.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from virta.errors import DamageError, UsageError, VirtaError
from virta.log import Log
from virta.metadata.catalog import parse_record
from virta.storage import block, chain, encode, manifest, message, state
from virta.storage.chain import HEADER_SIZE
from virta.storage.files import OperatingSystemFiles
from virta.storage.rebuild import mend_chain
from virta.storage.verify import verify_partition
from virta.testing.faults.scratch import scratch
from virta.testing.rig import QUIET, SCHEMA, Rig, batch_of
from virta.types import Durability

REAL = OperatingSystemFiles()
SECONDS = 20
EXTRA_BYTES = 1 << 29

hostile_numbers = st.sampled_from([0, 1, 7, 8, 2**31 - 8, 2**31, 2**32 - 8, 2**32 - 1]) | st.integers(
    0, 2**32 - 1
)
junk = st.binary(max_size=600)
slow = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Little more memory than now, and not for ever."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)

    def hang(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"not done in {SECONDS} seconds")

    previous = signal.signal(signal.SIGALRM, hang)
    resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA_BYTES, before[1]))
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_AS, before)
    signal.signal(signal.SIGALRM, previous)


def build(root: Path) -> Rig:
    """Two sealed segments and an active one."""
    rig = Rig(root / "p", REAL, segment_bytes=2000).create()
    for number in range(0, 16, 2):
        rig.append([number, number + 1], Durability.DISK)
    rig.partition.sync()
    rig.close()
    return rig


@pytest.fixture(scope="module")
def pristine() -> Iterator[Path]:
    with scratch("virta-malformed") as root:
        build(root)
        yield root / "p"


@pytest.fixture
def place(pristine: Path) -> Iterator[Path]:
    with scratch("virta-malformed") as root:
        yield root / "p"


def reset(pristine: Path, place: Path) -> None:
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(pristine, place)


def use(place: Path) -> None:
    """Read all, verify, write: each works or raises an error of ours; what is read is right."""
    for act in (_read, _verify, _write):
        try:
            act(place)
        except VirtaError:
            continue


def _read(place: Path) -> None:
    rig = Rig(place, REAL)
    try:
        found = rig.read_out()
        assert found.numbers == tuple(range(len(found.numbers)))
    finally:
        rig.abandon()


def _verify(place: Path) -> None:
    rig = Rig(place, REAL)
    verify_partition(REAL, rig.paths, rig.identity, lambda _: SCHEMA)


def _write(place: Path) -> None:
    rig = Rig(place, REAL)
    try:
        with rig.partition.writing():
            pass
    finally:
        rig.abandon()


FILES = ["lock", "manifest", "sealed chain", "active chain", "sealed data", "active data"]


def path_of(place: Path, kind: str) -> Path:
    if kind in ("lock", "manifest"):
        return place / kind
    suffix = ".chain" if kind.endswith("chain") else ".arrows"
    found = sorted(place.glob(f"0*{suffix}"))
    return found[0] if kind.startswith("sealed") else found[-1]


@slow
@pytest.mark.parametrize("kind", FILES)
@given(data=junk, keep=st.integers(0, 2000))
def test_any_bytes_in_any_file(pristine: Path, place: Path, kind: str, data: bytes, keep: int) -> None:
    reset(pristine, place)
    path = path_of(place, kind)
    path.write_bytes(path.read_bytes()[:keep] + data)
    use(place)


@slow
@pytest.mark.parametrize("kind", ["sealed chain", "active chain"])
@given(
    index=st.integers(0, 3),
    position=hostile_numbers,
    length=hostile_numbers,
    span=hostile_numbers | st.none(),
    base=st.integers(0, 2**64 - 1) | st.none(),
)
@example(index=1, position=0, length=2**32 - 8, span=None, base=None)
@example(index=1, position=2**32 - 1, length=2**32 - 1, span=None, base=None)
@example(index=1, position=2**31, length=8, span=2**32 - 1, base=2**64 - 1)
def test_a_header_that_follows_from_the_one_before_but_lies(
    pristine: Path,
    place: Path,
    kind: str,
    index: int,
    position: int,
    length: int,
    span: int | None,
    base: int | None,
) -> None:
    """Place and length stand outside the hash; for the other fields it is made again, as a forger would."""
    reset(pristine, place)
    path = path_of(place, kind)
    data = bytearray(path.read_bytes())
    index = min(index, len(data) // HEADER_SIZE - 1)
    at = index * HEADER_SIZE
    struct.pack_into("<II", data, at + chain.PLACE_AT, position, length)
    if span is not None:
        struct.pack_into("<I", data, at + 8, span)
    if base is not None:
        struct.pack_into("<Q", data, at, base)
    if index:
        fields = chain.without_place(bytes(data[at : at + 64]))
        linked = chain.link(bytes(data[at - 32 : at]), fields, bytes(data[at + 64 : at + 96]))
        data[at + 96 : at + HEADER_SIZE] = linked
    path.write_bytes(data[: at + HEADER_SIZE] if base is not None or span is not None else data)
    for act in (_read, _verify, _write):
        try:
            act(place)
        except (VirtaError, AssertionError) as error:
            # a forged base offset shortens what is seen; the rows that are seen are right
            assert isinstance(error, VirtaError), error


def _forge(prepared_at: Callable[[bytearray], None]) -> bytes:
    """A block whose digest is right, but whose metadata was changed before it was made."""
    stamped = block.stamp(
        encode.prepare(batch_of(range(4))),
        base_offset=0,
        timestamp=1,
        previous=bytes(32),
        schema_version=1,
        epoch=0,
        position=0,
    )
    data = bytearray(block.join(stamped.parts))
    prepared_at(data)
    _, _, digest_at = block.describe(bytes(data))
    data[digest_at : digest_at + 64] = b"0" * 64
    from blake3 import blake3

    data[digest_at : digest_at + 64] = blake3(bytes(data)).hexdigest().encode()
    return bytes(data)


@slow
@given(
    at=st.integers(8, 700),
    value=st.sampled_from([0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1])
    | st.integers(0, 2**63),
    size=st.sampled_from([2, 4, 8]),
)
def test_a_block_with_a_right_digest_and_hostile_metadata(at: int, value: int, size: int) -> None:
    """A forger can make digests too: reading such a block must not crash either."""

    def change(data: bytearray) -> None:
        data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")

    try:
        data = _forge(change)
        fields, _ = block.check(data)
        assert len(fields) == 64
    except DamageError:
        return
    try:
        block.measure(lambda start, length: data[start : start + length], 0, len(data))
        batch = block.decode(data, SCHEMA, dictionaries=False)
        batch.validate(full=True)
    except (DamageError, pa.ArrowInvalid):
        return


@given(data=junk)
@example(data=b"\xff\xff\xff\xff\xf8\xff\xff\x7f")
@example(data=b"\xff\xff\xff\xff\x08\x00\x00\x00" + b"\xff" * 8)
@example(data=b"\xff\xff\xff\xff\x10\x00\x00\x00" + struct.pack("<IiII", 4, -8, 0, 0))
def test_messages(data: bytes) -> None:
    for parse in (
        message.parse_head,
        block.describe,
        block.check,
        block.event_of,
        lambda raw: block.measure(lambda at, length: raw[at : at + length], 0, len(raw)),
        lambda raw: block.decode(raw, SCHEMA, dictionaries=False),
        lambda raw: block.decode(raw, SCHEMA, dictionaries=True),
    ):
        with contextlib.suppress(DamageError):
            parse(data)


@given(data=junk, count=st.integers(0, 2**32 - 1))
def test_manifests(data: bytes, count: int) -> None:
    from blake3 import blake3

    body = manifest.MAGIC + struct.pack("<QII", 1, count, 0) + data
    for raw in (data, body + blake3(body).digest()):
        try:
            found = manifest.parse(raw, "manifest")
        except DamageError:
            continue
        assert found.to_bytes() == raw


@given(data=junk)
def test_state_records_and_headers(data: bytes) -> None:
    assert state.parse(data) is None
    assert chain.check_links(data, bytes(32)) == 0
    assert isinstance(chain.as_array(data), np.ndarray)


@given(data=junk | st.text().map(str.encode))
@example(data=b"format = 1")
@example(data=b"format = 1\nname = 1\nid = ''\nversion = 'x'\nschema_version = 1\ncreated_us = 1\n[config]")
@example(data=b"[" * 100_000)
@example(data=b"a = " + b"[" * 20_000)
def test_configurations(data: bytes) -> None:
    with pytest.raises((DamageError, UsageError)):
        parse_record(data, Path("topic.toml"))


@slow
@given(data=junk, name=st.sampled_from(["log.toml", "topics/t/topic.toml", "topics/t/schemas/0001.arrow"]))
def test_a_log_with_any_bytes_in_its_small_files(data: bytes, name: str) -> None:
    with scratch("virta-malformed") as root:
        with Log(root, settings=QUIET) as log:
            log.create_topic("t", {"n": int}).append({"n": 1})
        (root / name).write_bytes(data)
        with pytest.raises(VirtaError), Log(root, settings=QUIET) as log:
            log.topic("t").to_arrow()


@slow
@given(data=junk, keep=st.integers(0, 1500))
def test_making_a_chain_from_any_data(pristine: Path, place: Path, data: bytes, keep: int) -> None:
    reset(pristine, place)
    rig = Rig(place, REAL)
    entry = manifest.load(REAL, rig.paths.manifest).segments[0]
    path = path_of(place, "sealed data")
    whole = path.read_bytes()
    path.write_bytes(whole[:keep] + data)
    path_of(place, "sealed chain").unlink()
    if whole.startswith(whole[:keep] + data) and keep + len(data) >= entry.data_length:
        return
    with pytest.raises(DamageError):
        mend_chain(REAL, rig.paths, entry)


@pytest.mark.slow
def test_a_file_of_gigabytes_is_not_read_into_memory(pristine: Path, place: Path) -> None:
    """Sparse files: their length costs nothing, and must not cost memory."""
    for kind in FILES:
        reset(pristine, place)
        with path_of(place, kind).open("r+b") as file:
            file.truncate(2 << 30)
        use(place)


def test_every_kind_of_error_is_one_of_ours(pristine: Path, place: Path) -> None:
    """Missing files too."""
    seen: set[Any] = set()
    for kind in FILES:
        reset(pristine, place)
        path_of(place, kind).unlink()
        try:
            _read(place)
        except VirtaError as error:
            seen.add(type(error).__name__)
    assert seen
