"""The files component: every touch of the file system goes through it.

It is passed in, so the faulty, recording and simulated twins in `virta.testing`
run the very code that users run. It may not know what the bytes mean.

Calls are thin: they are the operating system's own, with its errors. Writes that
may come back short are finished (or refused) by `write_fully`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from virta.errors import Corrupt, NoSpace, StorageFailed, UnavailableError

Bytes = bytes | bytearray | memoryview


class Files(Protocol):
    """What Virta asks of a file system. Positions and lengths are in bytes."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int: ...
    def close(self, descriptor: int, /) -> None: ...
    def pread(self, descriptor: int, length: int, position: int, /) -> bytes: ...
    def pwrite(self, descriptor: int, data: Bytes, position: int, /) -> int: ...
    def pwritev(self, descriptor: int, parts: Sequence[Bytes], position: int, /) -> int: ...
    def size(self, descriptor: int, /) -> int: ...
    def truncate(self, descriptor: int, length: int, /) -> None: ...
    def reserve(self, descriptor: int, position: int, length: int) -> None: ...
    def sync(self, descriptor: int, /) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def map(self, descriptor: int, length: int) -> mmap.mmap: ...
    def seek(self, descriptor: int, offset: int, whence: int, /) -> int: ...
    def flock(self, descriptor: int, operation: int, /) -> None: ...
    def lock(self, descriptor: int, *, exclusive: bool = True, wait: bool = True) -> bool: ...
    def unlock(self, descriptor: int) -> None: ...
    def identity(self, path: Path) -> tuple[int, int] | None: ...
    def identity_of(self, descriptor: int) -> tuple[int, int]: ...
    def modified(self, path: Path) -> tuple[int, int] | None: ...
    def make_directory(self, path: Path) -> None: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def link(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def remove_directory(self, path: Path) -> None: ...
    def names(self, path: Path) -> list[str]: ...
    def drop_cache(self, descriptor: int) -> None: ...
    def boot_id(self) -> bytes: ...


_KEEP_SIZE = 1


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """`fallocate`, which Python does not wrap; None where the system has none."""
    if not sys.platform.startswith("linux"):
        return None
    found = getattr(ctypes.CDLL(None), "fallocate64", None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call


_fallocate = _find_fallocate()


class OperatingSystemFiles:
    """The real thing."""

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    truncate = staticmethod(os.ftruncate)
    # bare calls for the path that is walked once per row; `size`, `lock` and `unlock` say the same
    seek = staticmethod(os.lseek)
    flock = staticmethod(fcntl.flock)
    sync = staticmethod(os.fdatasync if hasattr(os, "fdatasync") else os.fsync)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return os.open(path, flags, 0o666)

    def size(self, descriptor: int, /) -> int:
        # positions are always explicit, so the descriptor's own one is free for this: cheaper than fstat
        return os.lseek(descriptor, 0, os.SEEK_END)

    def reserve(self, descriptor: int, position: int, length: int) -> None:
        """Ask for room behind the file's end, its size unchanged. A wish: nothing depends on it."""
        if _fallocate is not None:
            _fallocate(descriptor, _KEEP_SIZE, position, length)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def map(self, descriptor: int, length: int) -> mmap.mmap:
        return mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)

    def lock(self, descriptor: int, *, exclusive: bool = True, wait: bool = True) -> bool:
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(descriptor, mode if wait else mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def identity_of(self, descriptor: int) -> tuple[int, int]:
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino

    def modified(self, path: Path) -> tuple[int, int] | None:
        """Something that changes when the file at this path is replaced or rewritten."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_mtime_ns

    def make_directory(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name, unless something has that name already."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def drop_cache(self, descriptor: int) -> None:
        """Ask that the next read comes from the device."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def boot_id(self) -> bytes:
        """Sixteen bytes that differ from boot to boot; zeros where the system does not say."""
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        except OSError:
            return bytes(16)
        return bytes.fromhex(text.strip().replace("-", ""))


def write_fully(files: Files, descriptor: int, data: Bytes, position: int) -> None:
    """Write all of it; a short write is followed up, so that its reason becomes an error."""
    written = files.pwrite(descriptor, data, position)
    if written != len(data):
        view = memoryview(data)
        while written < len(view):
            more = files.pwrite(descriptor, view[written:], position + written)
            if more <= 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            written += more


# Linux takes at most 1,024 parts a call (IOV_MAX); few blocks have more than a dozen.
PARTS_PER_CALL = 512


def write_parts(files: Files, descriptor: int, parts: Sequence[Bytes], position: int) -> None:
    """Write the parts one after another, without first copying them together."""
    if len(parts) > PARTS_PER_CALL:
        write_fully(files, descriptor, b"".join(parts), position)
        return
    total = sum(map(len, parts))
    written = files.pwritev(descriptor, parts, position)
    if written != total:
        write_fully(files, descriptor, memoryview(b"".join(parts))[written:], position + written)


# Files that are read whole are small: a manifest of this size would name some 380,000 segments.
_SMALL_FILE_BYTES = 64 * 1024 * 1024


def read_file(files: Files, path: Path) -> bytes:
    """A whole small file."""
    descriptor = files.open(path)
    try:
        size = files.size(descriptor)
        if size > _SMALL_FILE_BYTES:
            raise Corrupt(f"the file has {size} bytes, far more than it can need", file=str(path))
        return read_fully(files, descriptor, size, 0)
    finally:
        files.close(descriptor)


def read_fully(files: Files, descriptor: int, length: int, position: int) -> bytes:
    """Up to `length` bytes: fewer only where the file ends."""
    data = files.pread(descriptor, length, position)
    if len(data) == length or not data:
        return data
    parts = [data]
    missing = length - len(data)
    while missing:
        more = files.pread(descriptor, missing, position + length - missing)
        if not more:
            break
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)


class SyncFailed(OSError):
    """A sync failed: what was written since the last one may be gone, whatever later syncs say."""


def sync_file(files: Files, descriptor: int) -> None:
    try:
        files.sync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, error.filename) from error


def sync_directory(files: Files, path: Path) -> None:
    try:
        files.sync_directory(path)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, str(path)) from error


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """The new content or the old, never a mixture: write aside, sync, rename, sync the directory."""
    aside = path.with_name(f".{path.name}.new")
    descriptor = files.open(aside, write=True, create=True)
    try:
        files.truncate(descriptor, 0)
        write_fully(files, descriptor, data, 0)
        sync_file(files, descriptor)
    finally:
        files.close(descriptor)
    files.rename(aside, path)
    sync_directory(files, path.parent)


_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def storage_error(error: OSError, path: Path | str, doing: str) -> UnavailableError:
    """What an error of the file system means to the caller."""
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return NoSpace(
            f"no space left while {doing} {path}: {reason}",
            hint="free space on the disk or shorten retention, then try again",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageFailed(
            f"too many open files while {doing} {path}",
            hint="raise the limit with `ulimit -n`, or open fewer topics",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageFailed(
            f"not allowed while {doing} {path}: {reason}",
            hint="check the owner and mode of the log's directory",
        )
    return StorageFailed(f"{reason} while {doing} {path}", hint="run `virta doctor` and check the disk")
