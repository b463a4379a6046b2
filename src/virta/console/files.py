"""The console's own files, from memory: they are few and small, and a page asks for ten of them at once."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

HERE = Path(__file__).parent / "static"
# Told plainly: what a machine's own tables say of .js differs.
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    body: bytes
    kind: str
    tag: str


class OwnFiles:
    """An ASGI application that serves a directory as it is when this is made."""

    def __init__(self, directory: Path = HERE) -> None:
        self._files = {path.name: _read(path) for path in directory.iterdir() if path.is_file()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        found = self._files.get(scope["path"].rsplit("/", 1)[-1])
        if found is None:
            return PlainTextResponse("there is no such file\n", status_code=404)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("only GET and HEAD\n", status_code=405)
        # asked about each time, answered in a word: another version of the console has other files
        headers = {"cache-control": "no-cache", "etag": found.tag}
        if Headers(scope=scope).get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, media_type=found.kind, headers=headers)


def _read(path: Path) -> _File:
    body = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return _File(body=body, kind=kind, tag=f'"{hashlib.sha256(body).hexdigest()[:16]}"')
