"""A power loss for real: a file system on a loop device is shut down under load, without its last log.

Writers at `disk` note each acknowledgement on another file system. `EXT4_IOC_SHUTDOWN`
(`XFS_IOC_GOINGDOWN` is the same number) in mode 2 drops everything that was not synced.
After mounting again, under another boot id, every noted row has to be there. Needs root
and loop devices; where they are missing it is skipped and says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from virta.errors import VirtaError
from virta.log import Log
from virta.settings import Settings
from virta.storage.files import OperatingSystemFiles
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch

WRITERS = 3
# A writer on a busy machine gets so long to begin.
_PATIENCE_SECONDS = 20.0
_GOING_DOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = 2
_SIZES = {"ext4": 96 << 20, "xfs": 320 << 20}
_TEXT = "row after row " * 20


class OtherBoot(OperatingSystemFiles):
    """The real files in a boot of their own."""

    def __init__(self, number: int) -> None:
        self._boot_id = struct.pack("<QQ", 1, number)

    def boot_id(self) -> bytes:
        return self._boot_id


def run(seed: int, seconds: float) -> Report:
    report = Report("loop", seed)
    report.skipped = _why_not()
    kinds = [kind for kind in _SIZES if shutil.which(f"mkfs.{kind}")]
    deadline = time.monotonic() + seconds
    for kind in () if report.skipped else kinds:
        until = time.monotonic() + (deadline - time.monotonic()) / (len(kinds) - kinds.index(kind))
        try:
            with scratch("virta-loop") as root, _device(root, kind) as device:
                _cycles(report, root, device, kind, seed, until)
        except subprocess.CalledProcessError as error:
            report.skipped = (
                f"{error.cmd[0]} does not work here: {error.stderr.decode(errors='replace').strip()}"
            )
    if not report.skipped and not report.counts["acknowledged rows"]:
        report.violated("no row was acknowledged at all: nothing was tried", f"--only loop --seed {seed}")
    return report


def _why_not() -> str:
    if os.geteuid():
        return "a loop device needs root"
    for program in ("losetup", "mount", "mkfs.ext4"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return ""


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True).stdout.decode().strip()


@contextlib.contextmanager
def _device(root: Path, kind: str) -> Iterator[str]:
    image = root / "image"
    with image.open("wb") as file:
        file.truncate(_SIZES[kind])
    _run(f"mkfs.{kind}", "-q", str(image))
    device = _run("losetup", "--find", "--show", str(image))
    try:
        yield device
    finally:
        _run("losetup", "--detach", device)


@contextlib.contextmanager
def _mounted(root: Path, device: str) -> Iterator[Path]:
    place = root / "mnt"
    place.mkdir(exist_ok=True)
    _run("mount", device, str(place))
    try:
        yield place
    finally:
        _unmount(place)


def _unmount(place: Path) -> None:
    for _ in range(50):
        try:
            _run("umount", str(place))
            return
        except subprocess.CalledProcessError:
            time.sleep(0.02)  # a killed process lets go of its files a little later
    _run("umount", "--lazy", str(place))


def _cycles(report: Report, root: Path, device: str, kind: str, seed: int, until: float) -> None:
    rng = random.Random(f"{seed}/{kind}")
    cycle = 0
    while cycle < 2 or time.monotonic() < until:
        with _mounted(root, device) as place:
            _lose_power(place, root, rng, cycle)
        with _mounted(root, device) as place:
            complaints = _check(place, root, cycle, report)
        report.counts[f"power losses on {kind}"] += 1
        for complaint in complaints:
            report.violated(f"{kind}, cycle {cycle}: {complaint}", f"--only loop --seed {seed}")
        if complaints:
            return
        cycle += 1


# -- writing, until the power goes -----------------------------------------------------------------


def _lose_power(place: Path, root: Path, rng: random.Random, cycle: int) -> None:
    before = _noted(root)
    writers = [_start_writer(place, root, index, cycle) for index in range(WRITERS)]
    if cycle:  # the first time it may also go while the log is made
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while _noted(root) == before and time.monotonic() < deadline:
            time.sleep(0.005)
    time.sleep(rng.uniform(0.0, 0.4))
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _GOING_DOWN, struct.pack("<I", _WITHOUT_LOG_FLUSH))
    finally:
        os.close(descriptor)
    for pid in writers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _noted(root: Path) -> int:
    """How many bytes of acknowledgements there are."""
    return sum(path.stat().st_size for path in root.glob("notes-*"))


def _topic(index: int) -> str:
    return f"topic {index % 2}"


def _start_writer(place: Path, root: Path, index: int, cycle: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _write(place, root, index, cycle)
    except (VirtaError, OSError):
        pass  # the file system is gone
    except BaseException:
        (root / f"complaint-{index}").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def _write(place: Path, root: Path, index: int, cycle: int) -> None:
    notes = os.open(root / f"notes-{index}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = Log(place / "log", files=OtherBoot(cycle), settings=Settings(sync_interval_seconds=0.05))
    topic = log.create_topic(
        _topic(index),
        {"writer": int, "n": int, "text": str},
        durability="disk",
        segment_bytes="64 KiB",
        if_missing=True,
    )
    number = cycle * 1_000_000
    while True:
        topic.append({"writer": index, "n": number, "text": _TEXT})
        os.write(notes, struct.pack("<Q", number))
        number += 1


# -- after the power came back -----------------------------------------------------------------------


def _check(place: Path, root: Path, cycle: int, report: Report) -> list[str]:
    complaints = [path.read_text() for path in root.glob("complaint-*")]
    try:
        with Log(place / "log", files=OtherBoot(1000 + cycle)) as log:
            for name in sorted({_topic(index) for index in range(WRITERS)}):
                complaints += _check_topic(log, name, root, report)
    except (VirtaError, OSError, LookupError, ValueError):
        complaints.append(traceback.format_exc())
    return complaints


def _check_topic(log: Log, name: str, root: Path, report: Report) -> list[str]:
    noted = {
        (index, number)
        for index in range(WRITERS)
        if _topic(index) == name
        for (number,) in struct.iter_unpack("<Q", _whole((root / f"notes-{index}"), 8))
    }
    if not noted and name not in log.topics():
        return []
    topic = log.topic(name)
    rows = topic.to_arrow()
    there = list(zip(rows["writer"].to_pylist(), rows["n"].to_pylist(), strict=True))
    report.counts["acknowledged rows"] = max(report.counts["acknowledged rows"], len(noted))
    complaints = []
    if len(set(there)) != len(there):
        complaints.append(f"{name}: rows are there twice")
    if missing := noted - set(there):
        complaints.append(f"{name}: {len(missing)} acknowledged rows are missing: {sorted(missing)[:5]}")
    for index in range(WRITERS):
        own = [number for writer, number in there if writer == index]
        if own != sorted(own):
            complaints.append(f"{name}: rows of writer {index} are out of order")
    verified = topic.verify()
    if not verified.ok:
        complaints.append(f"{name}: verify says {verified.problems}")
    return complaints


def _whole(path: Path, unit: int) -> bytes:
    data = path.read_bytes() if path.exists() else b""
    return data[: len(data) // unit * unit]
