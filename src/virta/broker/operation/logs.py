"""What a running broker tells: one line per event on stderr, for people or for machines.

    2026-11-18T10:00:00.123Z info    refused  connection=c17 address=10.0.0.9 error=denied message="…"
    {"time": "2026-11-18T10:00:00.123Z", "level": "info", "event": "refused", "connection": "c17", …}

Every field passes through `redact`, and so do messages of other libraries and tracebacks: what
looks like a secret of ours does not get into a log whoever wrote it. Line breaks in values are
escaped, so nobody outside can forge a line.
"""

from __future__ import annotations

import datetime
import json
import logging
import re
import sys
from collections import deque
from typing import Any, TextIO

from virta.security.redact import redact, redact_text

ROOT = "virta"
_PLAIN = re.compile(r"[\w.,:;/@+*#~%$&()\[\]{}<>!?|°^-]+")
# One field: a message, not somebody's megabyte.
_FIELD_CHARACTERS = 2000


class Events:
    """Tells events: a name and fields."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger(f"{ROOT}.broker")

    def __call__(self, event: str, /, level: int = logging.INFO, **fields: Any) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


class _Formatter(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        found: dict[str, Any] = dict(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            found["exception"] = redact_text(self.formatException(record.exc_info))
        return {name: _short(value) for name, value in redact(found).items() if value is not None}

    @staticmethod
    def event(record: logging.LogRecord) -> str:
        return redact_text(record.getMessage())

    @staticmethod
    def time(record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class JsonFormatter(_Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "event": self.event(record),
            **self.fields(record),
        }
        if not record.name.startswith(f"{ROOT}."):
            line["logger"] = record.name
        text = json.dumps(line, ensure_ascii=False, default=str)
        # Some readers take U+2028 and its like for the end of a line.
        return text if text.isprintable() else json.dumps(line, default=str)


class TextFormatter(_Formatter):
    """Fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        words = [f"{name}={_word(value)}" for name, value in self.fields(record).items()]
        event = _escaped(self.event(record))
        return f"{self.time(record)} {record.levelname.lower():<7} {event}  {' '.join(words)}".rstrip()


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _FIELD_CHARACTERS:
        return value[:_FIELD_CHARACTERS] + "…"
    return value


def _word(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if _PLAIN.fullmatch(text) else '"' + _escaped(text).replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


class Recent(logging.Handler):
    """The newest lines, kept for whoever looks at the broker's page."""

    def __init__(self, kept: int = 500) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=kept)
        self._form = _Formatter()
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._count += 1
        self._lines.append(
            {
                "number": self._count,
                "time": record.created,
                "level": record.levelname.lower(),
                "event": self._form.event(record),
                "fields": self._form.fields(record),
            }
        )

    def after(self, number: int) -> list[dict[str, Any]]:
        """The lines after that one, oldest first."""
        return [line for line in list(self._lines) if line["number"] > number]


_HANDLER = "virta-broker"


def set_up(form: str, level: str, *, stream: TextIO | None = None) -> None:
    """Have everything of `virta`, and warnings of anybody else, told in this form; can be called again."""
    take_down()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[form]())
    handler.set_name(_HANDLER)
    logging.getLogger().addHandler(handler)
    logging.getLogger(ROOT).setLevel(level.upper())


def take_down() -> None:
    """As it was before."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if each.get_name() == _HANDLER]:
        root.removeHandler(handler)
    logging.getLogger(ROOT).setLevel(logging.NOTSET)
