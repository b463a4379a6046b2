"""Several processes on one directory: appending, following, forking, and a directory that goes away."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.errors import NotFound, VirtaError
from virta.log import Log
from virta.memory import wake
from virta.steward.steward import Steward
from virta.topics.topic import Topic

SPAWN = multiprocessing.get_context("spawn")
ROWS = 400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with virta.open(path) as log:
        yield log


class Helper:
    """Another process; what it says comes through a pipe, and it ends well or the test fails."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=target, args=(theirs, *arguments))
        self._process.start()
        theirs.close()

    def hear(self) -> Any:
        assert self.pipe.poll(30), "the other process says nothing"
        return self.pipe.recv()

    def say(self, word: Any) -> None:
        self.pipe.send(word)

    def end(self) -> None:
        self._process.join(30)
        assert self._process.exitcode == 0
        self.pipe.close()


# -- what helpers do -----------------------------------------------------------------------------


def append_rows(pipe: Any, path: Path, writer: int, durability: str) -> None:
    with virta.open(path) as log:
        topic = log.topic("shared")
        pipe.send("ready")
        pipe.recv()
        for n in range(ROWS):
            topic.append({"writer": writer, "n": n, "filler": bytes(200)})


def follow_rows(pipe: Any, path: Path, count: int) -> None:
    """Tell the offsets in the order they are seen."""
    with virta.open(path) as log:
        tail = log.topic("shared").limit(count).tail()
        pipe.send("ready")
        pipe.send([(row.offset, row["writer"], row["n"]) for row in tail])


def answer(pipe: Any, path: Path) -> None:
    """Do as told, one word after another."""
    with virta.open(path) as log:
        topic = log.topic("shared")
        acts: dict[str, Callable[[], Any]] = {
            "count": lambda: topic.count(),
            "append": lambda: topic.append({"writer": 9, "n": -1}).first_offset,
            "alter": lambda: topic.alter(
                schema={"writer": int, "n": int, "filler": bytes | None, "note": str | None}
            ),
            "lock": lambda: topic.lock(),
            "drop": lambda: log.drop_topic("shared"),
            "remove": lambda: remove_oldest(log, topic),
        }
        pipe.send("ready")
        while (word := pipe.recv()) != "end":
            pipe.send(acts[word]())


def remove_oldest(log: Log, topic: Topic) -> int:
    """Rows enough for some segments, and a steward that keeps few of them; where the log begins then."""
    for n in range(ROWS):
        topic.append({"writer": 9, "n": n, "filler": bytes(600)})
    Steward(log).run_once(topic="shared")
    return topic.start_offset


def make_topic(log: Log, **options: Any) -> Topic:
    return log.create_topic("shared", {"writer": int, "n": int, "filler": bytes | None}, **options)


# -- appending together ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_writers_and_readers_in_processes(log: Log, path: Path, durability: str) -> None:
    """Every row once, each writer's in its order, over rolls, and no reader sees a gap."""
    topic = make_topic(log, durability=durability, segment_bytes="64KiB")
    writers = [Helper(append_rows, path, number, durability) for number in range(2)]
    reader = Helper(follow_rows, path, 3 * ROWS)
    for helper in (*writers, reader):
        assert helper.hear() == "ready"
    here: list[tuple[int, int, int]] = []
    follower = threading.Thread(
        target=lambda: here.extend(
            (row.offset, row["writer"], row["n"]) for row in topic.limit(3 * ROWS).tail()
        )
    )
    follower.start()
    for writer in writers:
        writer.say("go")
    for n in range(ROWS):
        topic.append({"writer": 2, "n": n})
    seen = reader.hear()
    follower.join(30)
    for helper in (*writers, reader):
        helper.end()
    assert [offset for offset, _, _ in seen] == list(range(3 * ROWS))
    assert here == seen
    for number in range(3):
        assert [n for _, writer, n in seen if writer == number] == list(range(ROWS))
    assert topic.stats().segments > 1
    assert topic.verify().ok


def test_rows_in_memory_are_dumped_for_another_writer(log: Log, path: Path) -> None:
    """A process that holds undumped rows holds the lock; another's append makes it write them."""
    topic = make_topic(log, durability="memory")
    other = Helper(answer, path)
    assert other.hear() == "ready"
    for turn in range(5):
        assert topic.append({"writer": 1, "n": 2 * turn}).first_offset == 2 * turn
        other.say("append")
        assert other.hear() == 2 * turn + 1
    other.say("end")
    other.end()
    assert [row["n"] for row in topic[:]] == [0, -1, 2, -1, 4, -1, 6, -1, 8, -1]


def test_changes_by_another_process(log: Log, path: Path) -> None:
    topic = make_topic(log)
    topic.append({"writer": 0, "n": 0})
    other = Helper(answer, path)
    assert other.hear() == "ready"
    other.say("alter")
    other.hear()
    topic.append({"writer": 0, "n": 1, "note": "new"})
    assert topic.version == 2
    assert [row["note"] for row in topic[:]] == [None, "new"]
    other.say("lock")
    other.hear()
    with pytest.raises(virta.Locked):
        topic.append({"writer": 0, "n": 2})
    other.say("end")
    other.end()


def test_a_topic_dropped_by_another_process(log: Log, path: Path) -> None:
    topic = make_topic(log)
    topic.append({"writer": 0, "n": 0})
    tail = iter(topic.tail())
    next(tail)
    other = Helper(answer, path)
    assert other.hear() == "ready"
    other.say("drop")
    other.hear()
    with pytest.raises(VirtaError):
        next(tail)
    with pytest.raises(VirtaError):
        topic.append({"writer": 0, "n": 1})
    with pytest.raises(NotFound):
        log.topic("shared")
    other.say("end")
    other.end()


# -- asleep, moved, deleted ------------------------------------------------------------------------


def test_a_reader_asleep_over_rolls(log: Log, path: Path) -> None:
    """Rows that another process appended over many segments are all there when it wakes."""
    topic = make_topic(log, segment_bytes="64KiB")
    tail = iter(topic.limit(ROWS + 1).tail())
    topic.append({"writer": 1, "n": -1})
    assert next(tail)["n"] == -1
    other = Helper(append_rows, path, 0, "os")
    assert other.hear() == "ready"
    other.say("go")
    other.end()
    assert [row["n"] for row in tail] == list(range(ROWS))
    assert topic.stats().segments > 1


def test_a_reader_asleep_over_a_removal(log: Log, path: Path) -> None:
    """It is told what is gone, and goes on from the oldest row that is left."""
    topic = make_topic(log, segment_bytes="64KiB", retention_rows=10)
    topic.append({"writer": 1, "n": -1})
    partition = topic.partition(0)
    token = partition.token(1)  # it has read all there was
    tail = iter(topic.tail())
    assert next(tail)["n"] == -1
    other = Helper(answer, path)
    assert other.hear() == "ready"
    other.say("remove")
    start = other.hear()
    assert start > 1
    for read in (lambda: partition.poll(token), lambda: next(tail)):
        with pytest.raises(virta.HistoryChanged) as changed:
            read()
        assert changed.value.oldest.offset == start
    blocks, _ = partition.poll(changed.value.oldest)
    assert next(block.base_offset for block in blocks if block.rows) == start
    other.say("end")
    other.end()


def test_a_directory_deleted_and_made_again(path: Path) -> None:
    with virta.open(path) as log:
        topic = make_topic(log)
        topic.append({"writer": 0, "n": 0})
        shutil.rmtree(path)
        # the path is looked up every few milliseconds, not at each append
        with pytest.raises(VirtaError):
            for n in range(100_000):
                topic.append({"writer": 0, "n": n})
        with virta.open(path) as again:
            fresh = make_topic(again)
            fresh.append({"writer": 1, "n": 7})
            # the old handle must not write into the new log, whatever it says
            with pytest.raises(VirtaError):
                topic.append({"writer": 0, "n": 1})
            assert [row["n"] for row in fresh[:]] == [7]
    with virta.open(path) as log:
        assert [row["n"] for row in log.topic("shared")[:]] == [7]


def test_a_tail_of_a_deleted_directory_says_so(log: Log, path: Path) -> None:
    topic = make_topic(log)
    topic.append({"writer": 0, "n": 0})
    tail = iter(topic.tail())
    next(tail)
    shutil.rmtree(path)
    with pytest.raises(VirtaError):
        next(tail)


# -- fork ---------------------------------------------------------------------------------------------


def in_child(act: Callable[[], None]) -> int:
    """Run it in a forked child; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_a_forked_child_opens_for_itself(log: Log, path: Path, durability: str) -> None:
    topic = make_topic(log, durability=durability)
    topic.append({"writer": 0, "n": 0})
    topic.sync()

    def child() -> None:
        for call in (lambda: topic.append({"writer": 1, "n": 1}), log.topics, lambda: list(topic[:])):
            with pytest.raises(virta.Closed, match="fork"):
                call()
        with virta.open(path) as own:
            assert own.topic("shared").append({"writer": 1, "n": 1}).first_offset == 1

    assert in_child(child) == 0
    # the child's closing let go of nothing that is the parent's
    assert topic.append({"writer": 0, "n": 2}).first_offset == 2
    assert [row["n"] for row in topic[:]] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_the_lock_is_held(log: Log, path: Path) -> None:
    """The child's copies of the descriptors keep no lock alive."""
    topic = make_topic(log)
    topic.append({"writer": 0, "n": 0})
    read_end, write_end = os.pipe()
    with topic.partition(0).stored.writing():
        child = os.fork()
        if child == 0:
            os.read(read_end, 1)  # stays until the parent is done
            os._exit(0)
    other = Helper(answer, path)
    assert other.hear() == "ready"
    other.say("append")
    assert other.hear() == 1
    other.say("end")
    other.end()
    os.write(write_end, b"x")
    os.waitpid(child, 0)
    os.close(read_end)
    os.close(write_end)
    assert topic.count() == 2


# -- no inotify, closed elsewhere ------------------------------------------------------------------------


def no_inotify(wakeups: wake.Wakeups) -> None:
    wakeups.close()  # from here on it polls, as on systems that have none


def no_watches(wakeups: wake.Wakeups) -> None:
    wakeups._add = lambda *_: None  # type: ignore[method-assign]  # as where no more are allowed


@pytest.mark.parametrize("without", [no_inotify, no_watches])
def test_readers_wake_without_notifications(
    log: Log, path: Path, monkeypatch: pytest.MonkeyPatch, without: Callable[[wake.Wakeups], None]
) -> None:
    wakeups = wake.Wakeups()
    without(wakeups)
    monkeypatch.setattr(wake, "_process_wakeups", wakeups)
    topic = make_topic(log)
    other = Helper(answer, path)
    assert other.hear() == "ready"
    seen: list[int] = []
    ready = threading.Event()

    def follow() -> None:
        partition = topic.partition(0)
        token = partition.token(0)
        for _ in range(3):
            ready.set()
            blocks, token = partition.long_poll(token, timeout=30.0)
            seen.extend(block.base_offset for block in blocks if block.rows)

    follower = threading.Thread(target=follow)
    follower.start()
    for number in range(3):
        assert ready.wait(30)
        ready.clear()
        other.say("append")
        assert other.hear() == number
    follower.join(30)
    assert seen == [0, 1, 2]
    other.say("end")
    other.end()
    wakeups.close()


def test_a_tail_in_a_thread_ends_when_the_log_is_closed(path: Path) -> None:
    log = virta.open(path)
    topic = make_topic(log)
    topic.append({"writer": 0, "n": 0})
    failures: list[BaseException] = []
    seen = threading.Event()

    def follow() -> None:
        try:
            for _ in topic.tail():
                seen.set()
        except VirtaError as error:
            failures.append(error)

    follower = threading.Thread(target=follow)
    follower.start()
    assert seen.wait(30)
    log.close()
    follower.join(30)
    assert isinstance(failures[0], virta.Closed)
