"""Waiting in the event loop: without a thread each, cancelled promptly, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.aio import AsyncLog, AsyncTopic
from virta.memory.waiters import process_waiters

TAILERS = 200


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[AsyncLog]:
    async with virta.aopen(tmp_path / "events") as log:
        yield log


@pytest.fixture
async def numbers(log: AsyncLog) -> AsyncTopic:
    return await log.create_topic("numbers", {"n": int})


@pytest.fixture(autouse=True)
def nobody_left_waiting() -> Iterator[None]:
    yield
    assert not process_waiters()._waiting


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.001)


async def idle(count: int) -> None:
    """Until so many wait for rows."""
    await until(lambda: len(process_waiters()._waiting) == count)


async def test_two_hundred_tailers_need_one_thread(numbers: AsyncTopic) -> None:
    async def follow() -> list[int]:
        return [row["n"] async for row in numbers.limit(3).tail()]

    await numbers.append({"n": 0})
    threads = set(threading.enumerate())
    tasks = [asyncio.create_task(follow()) for _ in range(TAILERS)]
    await idle(TAILERS)
    assert len(set(threading.enumerate()) - threads) <= 1
    await numbers.append({"n": 1})
    await idle(TAILERS)
    await numbers.append({"n": 2})
    assert await asyncio.gather(*tasks) == [[0, 1, 2]] * TAILERS


async def test_two_hundred_long_polls(numbers: AsyncTopic) -> None:
    partition = numbers.partition(0)
    token = await partition.first_token
    tasks = [asyncio.create_task(partition.long_poll(token, timeout=30)) for _ in range(TAILERS)]
    await idle(TAILERS)
    ack = await numbers.append({"n": 7})
    for blocks, following in await asyncio.gather(*tasks):
        assert [block.base_offset for block in blocks] == [ack.first_offset]
        assert following.offset == 1


async def test_the_loop_goes_on_while_another_holds_the_lock(numbers: AsyncTopic) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with numbers._sync.partition(0).stored.writing():
            held.set()
            let_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    await asyncio.to_thread(held.wait)
    append = asyncio.create_task(numbers.append({"n": 1}))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not append.done()
    let_go.set()
    assert (await append).first_offset == 0
    holder.join()


async def test_a_cancelled_tail_ends_at_once(numbers: AsyncTopic) -> None:
    tail = numbers.tail()
    task = asyncio.create_task(anext(tail))
    await idle(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(0)


async def test_a_timeout_loses_no_row(numbers: AsyncTopic) -> None:
    """Also when it strikes while the worker is reading."""
    tail = numbers.tail()
    got: list[int] = []
    for n in range(50):
        await numbers.append({"n": n})
        task = asyncio.create_task(anext(tail))
        for _ in range(n % 4):
            await asyncio.sleep(0)
        task.cancel()
        try:
            got.append((await task)["n"])
        except asyncio.CancelledError:
            got.append((await anext(tail))["n"])
    assert got == list(range(50))


async def test_a_tail_left_by_break_and_closed(numbers: AsyncTopic) -> None:
    await numbers.append([{"n": 0}, {"n": 1}])
    tail = numbers.tail()
    async for row in tail:
        assert row["n"] == 0
        break
    assert (await anext(tail))["n"] == 1
    await tail.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(tail)


async def test_a_tail_closed_while_another_task_waits_in_it(numbers: AsyncTopic) -> None:
    tail = numbers.tail()
    task = asyncio.create_task(anext(tail, None))
    await idle(1)
    await tail.aclose()
    async with asyncio.timeout(5):
        assert await task is None


async def test_stop_when_idle(numbers: AsyncTopic) -> None:
    await numbers.append([{"n": 0}, {"n": 1}])
    assert [row["n"] async for row in numbers.tail(stop_when_idle=0.01)] == [0, 1]
    assert [batch.num_rows async for batch in numbers[:].tail_batches(stop_when_idle=0.01)] == [2]


async def test_closing_the_log_tells_who_waits(tmp_path: Path) -> None:
    log = await virta.aopen(tmp_path)
    numbers = await log.create_topic("numbers", {"n": int})
    tail = asyncio.create_task(anext(numbers.tail()))
    poll = asyncio.create_task(numbers.partition(0).long_poll(await numbers.token(0)))
    await idle(2)
    await log.close()
    await log.close()
    for task in (tail, poll):
        with pytest.raises(virta.Closed):
            await task
    with pytest.raises(virta.Closed):
        await numbers.append({"n": 1})


async def test_another_handle_of_the_process_goes_on(tmp_path: Path) -> None:
    async with virta.aopen(tmp_path) as one, virta.aopen(tmp_path) as other:
        topic = await one.create_topic("numbers", {"n": int}, durability="memory")
        same = await other.topic("numbers")
        row = asyncio.create_task(anext(same.tail()))
        await idle(1)
        await topic.append({"n": 5})
        await one.close()
        assert (await row)["n"] == 5
        assert await same.next_offset == 1


async def test_memory_rows_wake_the_waiting(log: AsyncLog) -> None:
    topic = await log.create_topic("quick", {"n": int}, durability="memory")
    row = asyncio.create_task(anext(topic.tail()))
    await idle(1)
    await topic.append({"n": 5})
    async with asyncio.timeout(0.9):  # well before the backstop
        assert (await row)["n"] == 5


def append_from_elsewhere(path: Path, count: int) -> None:
    with virta.open(path) as log:
        topic = log.topic("numbers")
        for n in range(count):
            topic.append({"n": n})


async def test_rows_of_another_process(log: AsyncLog, numbers: AsyncTopic) -> None:
    rows = asyncio.create_task(_all(numbers.limit(100).tail()))
    await idle(1)
    other = multiprocessing.get_context("spawn").Process(target=append_from_elsewhere, args=(log.path, 100))
    other.start()
    async with asyncio.timeout(30):
        assert [row["n"] for row in await rows] == list(range(100))
    await asyncio.to_thread(other.join)
    assert other.exitcode == 0


async def _all(reading: Any) -> list[Any]:
    return [item async for item in reading]


async def test_a_cancelled_opening_leaves_nothing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    opening = asyncio.ensure_future(_open(tmp_path))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: not set(threading.enumerate()) - threads)
    async with virta.aopen(tmp_path) as log:
        assert await log.topics() == []


async def _open(path: Path) -> AsyncLog:
    return await virta.aopen(path)


async def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(virta.NotFound):
        await virta.aopen(tmp_path / "none", create=False)
    with pytest.raises(virta.NotFound):
        async with virta.aopen(tmp_path / "none", create=False):
            pytest.fail("there is nothing to open")


async def test_the_thread_ends_with_the_log(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    async with virta.aopen(tmp_path) as log:
        topic = await log.create_topic("numbers", {"n": int})
        await topic.append({"n": 1})
    del log, topic
    gc.collect()
    await until(lambda: not [each for each in set(threading.enumerate()) - threads if "async" in each.name])


# -- the writer ---------------------------------------------------------------------------------


async def test_a_writer_flushes_by_time(numbers: AsyncTopic) -> None:
    async with numbers.writer(linger=0.001) as writer:
        await writer.send({"n": 1})
        async with asyncio.timeout(5):
            assert (await anext(numbers.tail()))["n"] == 1


async def test_a_writer_flushes_by_rows_and_bytes(numbers: AsyncTopic) -> None:
    async with numbers.writer(max_rows=10, linger=0) as writer:
        for n in range(25):
            await writer.send({"n": n})
        assert await numbers.next_offset == 20
    assert await numbers.next_offset == 25


async def test_what_fails_in_the_background_is_raised(numbers: AsyncTopic) -> None:
    with pytest.raises(virta.SchemaMismatch):
        async with numbers.writer(linger=0.001) as writer:
            await writer.send({"n": "one"})
            await until(lambda: writer._sync._failure is not None)
            await writer.flush()
            pytest.fail("the failure was passed over")
    assert await numbers.next_offset == 0


async def test_an_older_holder_is_fenced(numbers: AsyncTopic) -> None:
    with pytest.raises(virta.Fenced):
        async with numbers.writer(producer="one", linger=0) as older:
            await older.send({"n": 0})
            await older.flush()
            async with numbers.writer(producer="one", linger=0) as newer:
                assert newer.last_sequence == 0
            await older.send({"n": 1})
    assert await numbers.next_offset == 1


async def test_a_writer_still_open_when_the_log_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await virta.aopen(tmp_path)
    topic = await log.create_topic("numbers", {"n": int})
    writer = await topic.writer(linger=0.001)
    await writer.send({"n": 1})
    await log.close()
    await asyncio.sleep(0.01)  # the timer strikes a closed log, and says nothing
    assert not caplog.records
    with pytest.raises(virta.Closed):
        await writer.close()


async def test_progress_is_told_in_the_loop(numbers: AsyncTopic) -> None:
    await numbers.append([{"n": n} for n in range(100)])
    seen: list[threading.Thread] = []
    report = await numbers.verify(progress=lambda *_: seen.append(threading.current_thread()))
    assert report.ok
    assert report.rows == 100
    assert set(seen) <= {threading.main_thread()}
