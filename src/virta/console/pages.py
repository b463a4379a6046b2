"""The pages: one shell for all, filled by a module each. Every view's state is in its address."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from virta import __version__
from virta.console.access import ALTER, READ, WRITE
from virta.console.requests import console_of

HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import (?:.* from )?"\./(\w+)\.js";$', re.MULTILINE)

# path → (title, module of static/, what the navigation marks)
PAGES: dict[str, tuple[str, str, str]] = {
    "": ("Topics", "topics", "topics"),
    "rows": ("Rows", "rows", "topics"),
    "row": ("Row", "row", "topics"),
    "produce": ("Produce", "produce", "topics"),
    "replay": ("Replay", "replay", "topics"),
    "settings": ("Settings", "settings", "topics"),
    "new": ("New topic", "new", "topics"),
    "key": ("Key", "key", "topics"),
    "latest": ("Latest", "latest", "topics"),
    "life": ("Cells", "life", "topics"),
    "diff": ("Diff", "diff", "topics"),
    "capsule": ("Capsule", "capsule", "topics"),
    "groups": ("Groups", "groups", "groups"),
    "sql": ("SQL", "sql", "sql"),
    "verify": ("Verify", "verify", "verify"),
    "time": ("Time", "time", "topics"),
    "storage": ("Storage", "storage", "storage"),
    "broker": ("Broker", "broker", "broker"),
    "sign-in": ("Sign in", "signin", ""),
}

NAVIGATION: tuple[tuple[str, str, str], ...] = (
    ("topics", "./", "Topics"),
    ("groups", "groups", "Groups"),
    ("sql", "sql", "SQL"),
    ("verify", "verify", "Verify"),
    ("storage", "storage", "Storage"),
)
_BROKER = ("broker", "broker", "Broker")


def routes() -> list[Route]:
    return [Route(f"/{path}", page) for path in PAGES]


async def page(request: Request) -> Response:
    """The shell of the page whose path this is."""
    console = console_of(request)
    visitor = console.access.visitor(request)
    path = request.url.path.rsplit("/", 1)[-1]
    title, module, marked = PAGES[path]
    may_read = console.access.allows(visitor, READ, None)
    may_alter = console.access.allows(visitor, ALTER, None)
    if not may_read and console.access.has_users:
        title, module = "Sign in", "signin"
    facts = {
        "log": console.address,
        "version": __version__,
        "visitor": visitor.name,
        "users": console.access.has_users,
        "read": may_read,
        "write": console.access.allows(visitor, WRITE, None),
        "create": may_alter,
        "broker": console.broker is not None,
        "development": console.development,
    }
    html = (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            module=module,
            imported=imported_by(module),
            marked=marked,
            navigation=[*NAVIGATION, _BROKER] if console.broker is not None and may_alter else NAVIGATION,
            visitor=visitor.name,
            can_sign_in=console.access.has_users and visitor.name is None,
            facts=json.dumps(facts),
            log=console.address,
            version=__version__,
        )
    )
    return HTMLResponse(html)


@cache
def imported_by(module: str) -> list[str]:
    """All modules that one imports, whatever they import themselves: a browser is to ask for all at once."""
    found: list[str] = []
    waiting = [module]
    while waiting:
        text = (HERE / "static" / f"{waiting.pop()}.js").read_text(encoding="utf-8")
        new = [name for name in _IMPORT.findall(text) if name not in found]
        found += new
        waiting += new
    return sorted(set(found))


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True)
