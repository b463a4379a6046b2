"""Making, changing, locking and deleting topics. What cannot be undone wants the name typed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.access import ALTER, DELETE, check
from virta.console.requests import answer, body_of, console_of
from virta.console.state import Console
from virta.errors import UsageError
from virta.exchange.schema_text import schema_of_words, texts_of


def routes() -> list[Route]:
    return [
        Route("/api/create", create, methods=["POST"]),
        Route("/api/alter", alter, methods=["POST"]),
        Route("/api/lock", lock, methods=["POST"]),
        Route("/api/drop", drop, methods=["POST"]),
    ]


async def create(request: Request) -> Response:
    """Make a topic: `columns` as people type them (`id:int user:str?`), or none for key and value."""
    console = console_of(request)
    body = await body_of(request)
    name = str(body.get("name", "")).strip()
    check(console.access, request, ALTER, name)
    await console.hub.work(_create, console, name, body)
    return answer({"name": name})


def _create(console: Console, name: str, body: dict[str, Any]) -> None:
    words = str(body.get("columns", "")).split()
    schema = schema_of_words(words) if words else None
    keys = [key.strip() for key in str(body.get("keys", "")).split(",") if key.strip()]
    console.log.create_topic(
        name,
        schema,
        keys=keys,
        kind=str(body.get("kind") or "append"),
        partitions=int(body.get("partitions") or 1),
        headers=bool(body.get("headers")),
        **_options(body.get("options")),
    )


def _options(given: Any) -> dict[str, Any]:
    """The options that say something; an empty text says nothing."""
    if not isinstance(given, dict):
        return {}
    return {name: value for name, value in given.items() if value != ""}


async def alter(request: Request) -> Response:
    """Change options; `columns` adds columns to the schema, `renames` gives old ones new names."""
    console = console_of(request)
    body = await body_of(request)
    name = str(body.get("topic"))
    check(console.access, request, ALTER, name)
    await console.hub.work(_alter, console, name, body)
    return answer({"topic": name})


def _alter(console: Console, name: str, body: dict[str, Any]) -> None:
    topic = console.log.topic(name)
    words = str(body.get("columns", "")).split()
    options: dict[str, Any] = dict(body.get("options") or {})
    if words:
        added = schema_of_words(words)
        options["schema"] = pa.schema([*topic.schema, *added])
    if not options:
        raise UsageError("nothing is to be changed")
    topic.alter(**options)
    console.hub.windows.forget(topic.id)


async def lock(request: Request) -> Response:
    """Lock a topic for good; its name has to be typed."""
    console, name = await _typed(request, ALTER)
    await console.hub.work(lambda: console.log.topic(name).lock())
    return answer({"topic": name})


async def drop(request: Request) -> Response:
    """Delete a topic and its rows; its name has to be typed."""
    console, name = await _typed(request, DELETE)
    topic = await console.hub.work(console.log.topic, name)
    await console.hub.work(console.log.drop_topic, name)
    console.hub.windows.forget(topic.id)
    return answer({"topic": name})


async def _typed(request: Request, right: str) -> tuple[Console, str]:
    console = console_of(request)
    body = await body_of(request)
    name = str(body.get("topic"))
    check(console.access, request, right, name)
    if body.get("typed") != name:
        raise UsageError("this cannot be undone: type the topic's name", hint=f"type {name}")
    return console, name


def words_of(schema: pa.Schema) -> list[str]:
    """The columns as people type them."""
    return [f"{name}:{kind}" for name, kind in texts_of(schema).items()]
