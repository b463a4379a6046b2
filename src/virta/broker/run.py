"""A broker as a process: the event loop, descriptors, and one operation from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
from collections.abc import Callable

from virta.broker.operation.operation import Operation

# Blocks in memory are many small objects that live long and hold no cycles: looking through them
# for garbage as often as Python does by itself takes a third of the time of small appends.
_COLLECT_AFTER = (10_000, 20, 50)
# A connection is a descriptor; the files of topics are more of them.
_DESCRIPTORS = 65_536


def run(operation: Operation) -> None:
    """Serve until SIGTERM or SIGINT; what was begun is finished then."""
    _raise_descriptors()
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(*_COLLECT_AFTER)
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        runner.run(operation.run())


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: half the time per frame. The broker runs without it too."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def _raise_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
