"""Children of a campaign: made by fork, so that they start at once, and killed by number."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def fork(act: Callable[[], None]) -> int:
    """Run it in a child that leaves nothing of the parent's behind. The parent never opens a log."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        act()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def in_child(act: Callable[[], None]) -> None:
    pid = fork(act)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"a child of the campaign ended with {status}")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
