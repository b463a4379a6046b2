"""What the parts of the interface share: the console of a request, its parameters, its body."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from virta.console.state import Console
from virta.console.values import dump
from virta.errors import TooLarge, UsageError

# A pasted table is some megabytes at most; files go another way, streamed.
_BODY_BYTES = 32 * 1024 * 1024


def console_of(request: HTTPConnection) -> Console:
    found: Console = request.app.state.console
    return found


def answer(value: Any) -> Response:
    """A value as JSON."""
    return Response(dump(value), media_type="application/json")


def text_of(request: Request, name: str, otherwise: str | None = None) -> str:
    """A parameter of the address."""
    found = request.query_params.get(name, otherwise)
    if found is None:
        raise UsageError(f"the request names no {name}")
    return found


def number_of(request: Request, name: str, otherwise: int | None = None) -> int:
    found = request.query_params.get(name)
    if found is None and otherwise is not None:
        return otherwise
    try:
        return int(found or "")
    except ValueError:
        raise UsageError(f"{name} is a whole number, not {found!r}") from None


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was posted."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > _BODY_BYTES:
            raise TooLarge("this is too much for one request", hint="import it as a file")
        pieces.append(piece)
    try:
        found = json.loads(b"".join(pieces) or b"{}")
    except ValueError as error:
        raise UsageError(f"the request is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError("the request is not a JSON object")
    return found
