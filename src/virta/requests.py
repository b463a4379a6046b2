"""What users ask for, as text or Python values, made exact: moments, ranges, sizes, tokens.

    moment    2026-11-18T10:00Z  2026-11-18  -15m  -2h30m  now  (no zone: UTC)
    duration  7d  2h30m  1.5s  250ms  (a number: seconds)
    size      10MiB  1GB  4096
    range     topic@from:to, either side left out or one of:
              100 an offset · -10 rows before the end · a moment · #3f9c1a a block's hash
              (or its beginning) · a token · end the end as of now

A moment holds ':' itself, so the rule for the ':' of a range is: if the text after '@' is
one bound as a whole, it is a point; otherwise the ':' at which both sides are bounds (or
empty) divides it, and there is never more than one. A topic's name ends at the last '@'.

Pure: reads no clock (`now_us` is given), opens nothing, imports nothing heavy. Whatever
cannot be understood is a UsageError that lists the forms.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import zlib
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from virta.errors import UsageError
from virta.types import TOKEN_FIELDS, TOKEN_PREFIX, Token

_MOMENT_FORMS = "-15m, -2h30m, -7d, 2026-11-18, 2026-11-18T10:00Z, 2026-11-18T10:00:30+02:00 or now"
_DURATION_FORMS = "7d, 2h30m, 90s, 1.5h or 250ms"
_SIZE_FORMS = "10MiB, 1.5GB, 512kB or 4096"
_RANGE_FORMS = "topic@100:200, topic@-10:, topic@2026-11-18T10:00:, topic@-15m:, topic@:end or topic@#<hash>"

# Offsets and moments are stored as signed 64-bit numbers.
_MOST = (1 << 63) - 1


# -- durations ----------------------------------------------------------------------------

_UNITS_US = {
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}

# Twelve digits reach past the age of any log and cannot make the arithmetic large.
_SPAN = re.compile(r"(?:\d{1,12}(?:\.\d{1,6})?(?:ms|us|[wdhms])\s*)+", re.ASCII)
_SPAN_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|[wdhms])", re.ASCII)


def parse_duration(value: str | float | datetime.timedelta) -> float:
    """A length of time in seconds; it cannot be negative."""
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{_shown(value)} is not a duration", hint=f"write {_DURATION_FORMS}")
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _as_float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(r"\d{1,12}(\.\d+)?", text, re.ASCII):
        return float(text)
    microseconds = _span_us(text)
    return None if microseconds is None else microseconds / 1_000_000


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _span_us(text: str) -> int | None:
    """The microseconds of "2h30m", each unit at most once and in falling order."""
    if not _SPAN.fullmatch(text):
        return None
    parts = _SPAN_PART.findall(text)
    units = [list(_UNITS_US).index(unit) for _, unit in parts]
    if units != sorted(set(units)):
        return None
    return round(sum(Fraction(number) * _UNITS_US[unit] for number, unit in parts))


def format_duration(seconds: float) -> str:
    """The duration as people write it, exact to the microsecond: "2h30m", "1.5s", "250ms"."""
    left = round(seconds * 1_000_000)
    if left < 1_000_000:
        unit = "ms" if left >= 1000 else "us"
        return "0s" if left == 0 else f"{_decimal(left, _UNITS_US[unit])}{unit}"
    text = ""
    for unit in ("d", "h", "m"):
        count, left = divmod(left, _UNITS_US[unit])
        text += f"{count}{unit}" if count else ""
    return text + (f"{_decimal(left, 1_000_000)}s" if left else "")


def _decimal(number: int, unit: int) -> str:
    """`number / unit` without a rounding error and without trailing zeros."""
    whole, rest = divmod(number, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


# -- sizes ----------------------------------------------------------------------------------

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)


def parse_size(value: str | int) -> int:
    """A number of bytes; MiB is 1024², MB is 1000²."""
    size: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value.strip().lower())):
        unit = _SIZE_UNITS.get(found[2])
        size = None if unit is None else round(Fraction(found[1]) * unit)
    if size is None or not 0 <= size <= _MOST:
        raise UsageError(f"{_shown(value)} is not a size", hint=f"write {_SIZE_FORMS}")
    return size


def format_size(size: int) -> str:
    """The size as people read it: "10 MiB", "1.4 GiB", "512 B"."""
    power = min(5, max(0, (abs(size).bit_length() - 1) // 10))
    if power and round(abs(size) / 1024**power, 1) >= 1024:
        power = min(5, power + 1)  # not "1024 KiB"
    amount = f"{size / 1024**power:.1f}".removesuffix(".0")
    return f"{amount} {['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][power]}"


# -- moments --------------------------------------------------------------------------------

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

# Stricter than fromisoformat: 20261118 is an offset, and T10 alone would be a riddle in a range.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)

# Seconds since 1970 beyond this (the year 5138) were meant to be milliseconds or microseconds.
_SECONDS_MOST = 1e11


def parse_moment(
    value: str | float | datetime.date | datetime.timedelta,
    now_us: int,
) -> int:
    """A moment in microseconds since 1970, UTC.

    Text as above; a datetime without a zone and a date are UTC; a timedelta is that long
    before now, whatever its sign; a number is seconds since 1970, as `time.time()` gives.
    """
    moment = _moment(value, now_us)
    if moment is None or not -_MOST <= moment <= _MOST:
        raise UsageError(f"{_shown(value)} is not a moment", hint=f"write {_MOMENT_FORMS}")
    return moment


def _moment(value: object, now_us: int) -> int | None:
    if isinstance(value, str):
        return _moment_of_text(value.strip(), now_us)
    if isinstance(value, datetime.timedelta):
        return now_us - abs(value) // _MICROSECOND
    if isinstance(value, datetime.date):
        return _moment_of_date(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _moment_of_number(value)
    return None


def _moment_of_text(text: str, now_us: int) -> int | None:
    if text == "now":
        return now_us
    if text.startswith("-"):
        span = _span_us(text[1:])
        return None if span is None else now_us - span
    if not _ISO.fullmatch(text):
        return None
    try:
        return _moment_of_date(datetime.datetime.fromisoformat(text.upper()))
    except ValueError:
        return None


def _moment_of_date(value: datetime.date) -> int | None:
    if value != value:  # pandas' NaT is a datetime that equals nothing
        return None
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.utcoffset() is None:
        value = value.replace(tzinfo=datetime.UTC)
    return (value - _EPOCH) // _MICROSECOND


def _moment_of_number(value: float) -> int | None:
    if not 0 <= value < math.inf:
        return None
    if value > _SECONDS_MOST:
        raise UsageError(
            f"{_shown(value)} is not a moment",
            hint="a number is seconds since 1970; this one looks like milli- or microseconds",
        )
    return round(Fraction(value) * 1_000_000)


def format_moment(moment_us: int) -> str:
    """The moment as ISO 8601 in UTC, to the microsecond only where it says something."""
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=moment_us)
    except OverflowError:
        return f"{moment_us}us"
    precise = "auto" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precise).replace("+00:00", "Z")


# -- tokens ---------------------------------------------------------------------------------

_TOKEN_LENGTH = len(TOKEN_PREFIX) + (TOKEN_FIELDS.size + 4) * 4 // 3


def format_token(token: Token) -> str:
    """The token as opaque text, safe in addresses and file names; a typing error is noticed."""
    return str(token)


def parse_token(text: str) -> Token:
    """The token back; text that is not exactly one is a UsageError."""
    data = _token_bytes(str(text).strip())
    if data is None:
        raise UsageError(
            f"{_shown(text)} is not a token",
            hint=f"a token is {_TOKEN_LENGTH} characters beginning with "
            f"{TOKEN_PREFIX!r}; copy it whole, as it was given",
        )
    partition, offset, digest = TOKEN_FIELDS.unpack(data)
    return Token(partition=partition, offset=offset, hash=digest)


def _token_bytes(text: str) -> bytes | None:
    if len(text) != _TOKEN_LENGTH or not text.startswith(TOKEN_PREFIX):
        return None
    try:
        # the plain alphabet is not allowed beside the safe one: a token has one spelling
        data = base64.b64decode(text[len(TOKEN_PREFIX) :].encode("ascii"), b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    body, check = data[:-4], data[-4:]
    return body if zlib.crc32(body).to_bytes(4, "little") == check else None


# -- ranges ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The row with this number."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromEnd:
    """So many rows before the end."""

    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The first row stamped then or later."""

    us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HashBound:
    """The block whose hash begins with these hexadecimal digits."""

    hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBound:
    """Where a reader stood."""

    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end as it is when the range is resolved."""


Bound: TypeAlias = Offset | FromEnd | Moment | HashBound | TokenBound | End


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """Rows of a topic: from `start` on, up to and without `end`; None is open.

    A point (`topic@100`, `topic@#3f9c1a`) has a start only and says `is_point`. The
    grammar names no partition, because a topic's name may hold any separator.
    """

    topic: str
    partition: int | None = None
    start: Bound | None = None
    end: Bound | None = None
    is_point: bool = False


# Fewer digits of a hash would name a block by chance in a log of thousands of blocks.
_HASH = re.compile(r"#[0-9a-fA-F]{6,64}", re.ASCII)
_OFFSET = re.compile(r"-?\d{1,19}", re.ASCII)


def parse_range(text: str, now_us: int) -> RangeRequest:
    """`topic` or `topic@from:to`."""
    topic, at, bounds = text.rpartition("@")
    if not at:
        topic, bounds = text, ":"
    if not topic:
        raise UsageError(f"{_shown(text)} names no topic", hint=f"write {_RANGE_FORMS}")
    point = _bound(bounds, now_us)
    if point is not None:
        return RangeRequest(topic=topic, start=point, is_point=True)
    for place in (found.start() for found in re.finditer(":", bounds)):
        sides = _sides(bounds[:place], bounds[place + 1 :], now_us)
        if sides is not None:
            return RangeRequest(topic=topic, start=sides[0], end=sides[1])
    raise UsageError(f"{_shown(text)} is not a range", hint=f"write {_RANGE_FORMS}")


def parse_bound(text: str, now_us: int) -> Bound:
    """One side of a range on its own."""
    bound = _bound(text.strip(), now_us)
    if bound is None:
        raise UsageError(
            f"{_shown(text)} is not a position",
            hint=f"write an offset, -10, end, #<hash>, a token, {_MOMENT_FORMS}",
        )
    return bound


def _sides(left: str, right: str, now_us: int) -> tuple[Bound | None, Bound | None] | None:
    start, end = _bound(left, now_us), _bound(right, now_us)
    if (left and start is None) or (right and end is None):
        return None
    return start, end


def _bound(text: str, now_us: int) -> Bound | None:
    if text == "end":
        return End()
    if _OFFSET.fullmatch(text):
        return _offset_bound(text)
    if _HASH.fullmatch(text):
        return HashBound(hex=text[1:].lower())
    data = _token_bytes(text)
    if data is not None:
        return TokenBound(token=parse_token(text))
    moment = _moment_of_text(text, now_us)
    return None if moment is None else Moment(us=moment)


def _offset_bound(text: str) -> Bound | None:
    number = int(text)
    if abs(number) > _MOST:
        return None
    return FromEnd(rows=-number) if text.startswith("-") else Offset(offset=number)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
