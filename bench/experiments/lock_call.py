"""How a writer takes the partition's lock, and whether its system calls keep the interpreter.

    python -m bench.experiments.lock_call [--commits N] [--directory DIR]

A commit here is what Virta does for one row at `os`: lock, one positioned write of a
1 KiB block, one of a 128-byte header, unlock. Five ways:

* flock            fcntl.flock and os.pwrite: four calls, each lets the interpreter go
* held             the lock is taken once for all commits; two os.pwrite
* flock kept       flock through ctypes.PyDLL, which keeps the interpreter; os.pwrite
* all kept         flock and pwrite through ctypes.PyDLL
* held, kept       the lock is held, pwrite through ctypes.PyDLL

Alone it shows what a call costs. Beside a thread that burns CPU it shows the price of
letting go: whoever lets the interpreter go may wait a whole switch interval (5 ms) to
get it back. A call that keeps the interpreter stops all other threads while the disk
or another process makes it wait, so only a lock that is tried (LOCK_NB) and a write
into the page cache may be kept, never a sync.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from bench.embedded.append import burning_thread

BLOCK = b"b" * 1024
HEADER = b"h" * 128

Commit = Callable[[int], None]


class Files:
    """The three files a commit touches."""

    def __init__(self, directory: Path) -> None:
        flags = os.O_CREAT | os.O_RDWR
        self.lock, self.data, self.chain = (
            os.open(directory / name, flags, 0o644) for name in ("lock", "data", "chain")
        )

    def close(self) -> None:
        for descriptor in (self.lock, self.data, self.chain):
            os.close(descriptor)


def kept_calls() -> tuple[Callable[[int, int], int], Callable[[int, bytes, int, int], int]]:
    """flock and pwrite of the C library, called without letting the interpreter go."""
    library = ctypes.PyDLL(None, use_errno=True)
    library.flock.argtypes = [ctypes.c_int, ctypes.c_int]
    library.pwrite64.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64]
    library.pwrite64.restype = ctypes.c_ssize_t
    return library.flock, library.pwrite64


def write(files: Files, number: int) -> None:
    os.pwrite(files.data, BLOCK, number * len(BLOCK))
    os.pwrite(files.chain, HEADER, number * len(HEADER))


def ways(files: Files) -> dict[str, Commit]:
    """Each way to commit, by name."""
    flock, pwrite = kept_calls()
    exclusive_try = fcntl.LOCK_EX | fcntl.LOCK_NB

    def locked(number: int) -> None:
        fcntl.flock(files.lock, fcntl.LOCK_EX)
        write(files, number)
        fcntl.flock(files.lock, fcntl.LOCK_UN)

    def held(number: int) -> None:
        write(files, number)

    def flock_kept(number: int) -> None:
        if flock(files.lock, exclusive_try):
            fcntl.flock(files.lock, fcntl.LOCK_EX)  # somebody has it: wait, and let go
        write(files, number)
        flock(files.lock, fcntl.LOCK_UN)

    def write_kept(number: int) -> None:
        pwrite(files.data, BLOCK, len(BLOCK), number * len(BLOCK))
        pwrite(files.chain, HEADER, len(HEADER), number * len(HEADER))

    def all_kept(number: int) -> None:
        if flock(files.lock, exclusive_try):
            fcntl.flock(files.lock, fcntl.LOCK_EX)
        write_kept(number)
        flock(files.lock, fcntl.LOCK_UN)

    return {
        "flock": locked,
        "held": held,
        "flock kept": flock_kept,
        "all kept": all_kept,
        "held, kept": write_kept,
    }


def latencies(commit: Commit, commits: int) -> np.ndarray:
    clock, taken = time.perf_counter_ns, []
    for number in range(commits):
        start = clock()
        commit(number)
        taken.append(clock() - start)
    return np.array(taken) / 1000


def measure(directory: Path, commits: int, *, busy: bool, rounds: int = 3) -> dict[str, np.ndarray]:
    """Best round of each way, by its mean; ways take turns."""
    best: dict[str, np.ndarray] = {}
    files = Files(directory)
    try:
        for _ in range(rounds):
            for name, commit in ways(files).items():
                with burning_thread() if busy else nullcontext():
                    taken = latencies(commit, commits)
                if name not in best or taken.mean() < best[name].mean():
                    best[name] = taken
    finally:
        files.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--directory", type=Path, default=Path())
    chosen = parser.parse_args()
    for busy in (False, True):
        print("beside a thread that burns CPU" if busy else "alone")
        print(f"  {'':12} {'mean µs':>9} {'p50':>8} {'p99':>8} {'p99.9':>8} {'longest':>9}")
        with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
            found = measure(Path(directory), chosen.commits // (4 if busy else 1), busy=busy)
        for name, taken in found.items():
            p50, p99, p999 = np.percentile(taken, (50, 99, 99.9))
            print(f"  {name:12} {taken.mean():9.2f} {p50:8.2f} {p99:8.2f} {p999:8.1f} {taken.max():9.1f}")


if __name__ == "__main__":
    main()
