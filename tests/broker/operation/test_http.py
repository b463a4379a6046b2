"""The few pages over HTTP, asked by clients of every kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from virta.broker.operation import http
from virta.broker.operation.http import HttpPages, Page


async def hello() -> Page:
    return Page(body="hello\n")


async def broken() -> Page:
    raise ValueError("the secret of the page")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    pages = HttpPages({"/hello": hello, "/broken": broken})
    yield await pages.start("127.0.0.1", 0)
    await pages.stop()


async def ask(port: int, request: bytes, *, end: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if end:
            writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_page(port: int) -> None:
    answer = await ask(port, b"GET /hello?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Length: 6" in head and body == b"hello\n"
    head, body = (await ask(port, b"HEAD /hello HTTP/1.0\r\n\r\n")).split(b"\r\n\r\n")
    assert b"Content-Length: 6" in head and body == b""


async def test_what_is_not_there_or_not_allowed(port: int) -> None:
    assert b"404" in (await ask(port, b"GET /../etc/passwd HTTP/1.1\r\n\r\n")).split(b"\r\n")[0]
    answer = await ask(port, b"POST /hello HTTP/1.1\r\n\r\n")
    assert b"405" in answer.split(b"\r\n")[0] and b"Allow: GET, HEAD" in answer


async def test_a_page_that_fails_says_so_here_only(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await ask(port, b"GET /broken HTTP/1.1\r\n\r\n")
    assert b"500" in answer and b"secret" not in answer
    assert "the secret of the page" in caplog.text


async def test_hostile_requests(port: int) -> None:
    for request in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"G" * 100_000,
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\x00" * 50 + b"\r\n\r\n",
    ):
        answer = await ask(port, request)
        assert not answer or b" 400 " in answer.split(b"\r\n")[0]
    assert b" 400 " in await ask(port, b"GET / HTTP/1.1\r\n", end=True)
    assert b"hello" in await ask(port, b"GET /hello HTTP/1.1\r\n\r\n")


async def test_clients_that_say_nothing_are_few_and_leave(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SECONDS", 0.2)
    monkeypatch.setattr(http, "CONNECTIONS", 3)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    assert [await reader.read() for reader, _ in silent] == [b""] * 5
    for _, writer in silent:
        writer.close()
    assert b"hello" in await ask(port, b"GET /hello HTTP/1.1\r\n\r\n")
