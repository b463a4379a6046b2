"""Every error Virta raises, sorted by what the reader of it can do.

`UsageError`: fix the call. `UnavailableError`: try again, or fix the
environment. `DamageError`: the bytes are not what was written; the error names
the topic, partition, file and position. Each carries a stable `code` (for
machines), a message and, where there is one, a `hint` that says what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


class VirtaError(Exception):
    """The root of all errors that Virta raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


# -- fix the call ---------------------------------------------------------------------


class UsageError(VirtaError):
    """The call cannot work as it is written."""

    code = "usage"


class NotFound(UsageError):
    """The named log, topic, partition, block or schema does not exist."""

    code = "not_found"


class AlreadyExists(UsageError):
    """A topic of this name is already there."""

    code = "already_exists"


class Conflict(UsageError):
    """The log stood somewhere else than the caller expected; nothing was written."""

    code = "conflict"

    def __init__(self, *, expected: int, actual: int, what: str = "next offset") -> None:
        super().__init__(
            f"expected {what} {expected}, but it is {actual}",
            hint="read what was appended meanwhile, then try again from there",
        )
        self.expected = expected
        self.actual = actual


class SchemaMismatch(UsageError):
    """Rows do not fit the topic's schema; nothing was written."""

    code = "schema_mismatch"

    def __init__(
        self,
        message: str,
        *,
        column: str | None = None,
        row: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.column = column
        self.row = row


class TooLarge(UsageError):
    """A name, key, row or frame is over its limit; nothing was written."""

    code = "too_large"

    def __init__(
        self,
        message: str,
        *,
        column: str | None = None,
        row: int | None = None,
        size: int | None = None,
        limit: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.column = column
        self.row = row
        self.size = size
        self.limit = limit


class Denied(UsageError):
    """The configuration or the permissions do not allow this."""

    code = "denied"


class Locked(UsageError):
    """The topic is locked: it takes no more rows, for good."""

    code = "locked"


class Fenced(UsageError):
    """A newer holder took over this producer name; this one may not write any more."""

    code = "fenced"


class Closed(UsageError):
    """The object was used after it was closed, or after a fork."""

    code = "closed"


# -- try again, or fix the environment --------------------------------------------------


class UnavailableError(VirtaError):
    """The call was right, but the environment does not let it through now."""

    code = "unavailable"


class Unreachable(UnavailableError):
    """The other side does not answer."""

    code = "unreachable"


class Timeout(UnavailableError):
    """Not done within the time given."""

    code = "timeout"


class NoSpace(UnavailableError):
    """The disk is full; nothing of this call became visible."""

    code = "no_space"


class StorageFailed(UnavailableError):
    """The disk or file system answered with an error; nothing of this call was acknowledged."""

    code = "storage_failed"


# -- the bytes are not what was written ---------------------------------------------------


class DamageError(VirtaError):
    """What is stored is not what was written, or no longer what a reader knew."""

    code = "damage"

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        file: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.file = file
        self.position = position
        self.offset = offset

    def __str__(self) -> str:
        where = [
            f"{name} {value}"
            for name, value in (
                ("topic", self.topic),
                ("partition", self.partition),
                ("file", self.file),
                ("position", self.position),
                ("offset", self.offset),
            )
            if value is not None
        ]
        text = f"{self.message} [{', '.join(where)}]" if where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def details(self) -> dict[str, Any]:
        """The place of the damage, for machines."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "offset": self.offset,
        }


class Corrupt(DamageError):
    """A block, header or file does not verify."""

    code = "corrupt"


class HistoryChanged(DamageError):
    """The history a token stands on is no longer there.

    `oldest` is the token of the oldest row that can still be read: a reader that
    can accept the gap goes on from it.
    """

    code = "history_changed"

    def __init__(self, message: str, *, oldest: Any = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.oldest = oldest
