"""Pseudonyms that look like what they stand for: e-mail addresses, phones, names, ids.

The same value has the same pseudonym everywhere (under one key), and no pseudonym is
the value itself, or holds it. Ids and phones are permuted within their shape, so two
of them never become one; e-mail addresses carry 60 bits of a hash. Names are made of
syllables: two people may come to share one.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from virta.errors import UsageError
from virta.security.masking.key import MaskingKey
from virta.security.masking.keyed import KeyedHash, is_text, mapped
from virta.security.masking.methods import Method, Rows, null_as
from virta.security.masking.options import Options
from virta.security.masking.permutation import LARGEST, permuted

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_ONSETS = ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# A pseudonym that holds the value itself is made again; chance alone never needs a tenth of this.
_TRIES = 64


class TextPseudonym(Method):
    """A method that changes each distinct text on its own."""

    needs_key: ClassVar[bool] = True

    def field(self, field: pa.Field) -> pa.Field | None:
        if not is_text(field.type):
            raise UsageError(f"{self.name} is for text, not for {field.type}", hint="use hash or id")
        return field

    def change(self, value: str, attempt: int) -> str:
        """The pseudonym of a value; another one for each attempt."""
        raise NotImplementedError

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        return mapped(array, lambda values: pa.array(map(self._other, values.to_pylist()), array.type))

    def _other(self, value: str | None) -> str | None:
        if not value:
            return value
        plain = value.casefold()
        for attempt in range(_TRIES):
            made = self.change(value, attempt)
            if plain not in made.casefold():
                return made
        return "*" * max(1, len(value))  # one or two signs, which every pseudonym may hold


def _words(digest: bytes, signs: str, count: int) -> str:
    return "".join(signs[byte % len(signs)] for byte in digest[:count])


def _salted(value: str, attempt: int) -> bytes:
    """The bytes that are hashed; an unpaired surrogate is a value like any other."""
    data = value.encode("utf-8", "surrogatepass")
    return data if attempt == 0 else data + b"\x00" + bytes([attempt])


@dataclass(frozen=True, slots=True, kw_only=True)
class Email(TextPseudonym):
    """An address like another: `u3k…@d7f….example`, where no mail ever arrives."""

    name = "email"
    digest: KeyedHash
    domain: str

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:
        assert key is not None
        domain = options.text("domain", "hash")
        if domain not in ("hash", "keep") and not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", domain):
            raise UsageError(f'the domain of email is "hash", "keep" or a domain, not {domain!r}')
        return cls(digest=KeyedHash(key, "email"), domain=domain)

    def change(self, value: str, attempt: int) -> str:
        local, at, host = value.strip().lower().rpartition("@")
        made = "u" + _words(self.digest.one(_salted(value.strip().lower(), attempt)), _BASE32, 12)
        if not at or not local:
            return f"{made}@example.com" if self.domain in ("hash", "keep") else f"{made}@{self.domain}"
        if self.domain == "keep":
            return f"{made}@{host}"
        if self.domain != "hash":
            return f"{made}@{self.domain}"
        return f"{made}@d{_words(self.digest.one(_salted('@' + host, attempt)), _BASE32, 8)}.example"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(TextPseudonym):
    """A name made of syllables, with as many words and the same capitals; each word on its own."""

    name = "name"
    digest: KeyedHash

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:  # noqa: ARG003
        assert key is not None
        return cls(digest=KeyedHash(key, "name"))

    def change(self, value: str, attempt: int) -> str:
        return re.sub(r"\w+", lambda word: self._word(word[0], attempt), value)

    def _word(self, word: str, attempt: int) -> str:
        digest = self.digest.one(_salted(word.casefold(), attempt))
        count = 2 + digest[0] % 3 if len(word) > 2 else 1
        made = "".join(
            _ONSETS[first % len(_ONSETS)] + _VOWELS[second % len(_VOWELS)]
            for first, second in zip(digest[1 : 1 + count], digest[11 : 11 + count], strict=True)
        )
        if word.isupper() and len(word) > 1:
            return made.upper()
        return made.capitalize() if word[0].isupper() else made


# -- ids and phones: another value of the same shape -----------------------------------------------

_DIGITS, _LOWER, _UPPER = string.digits, string.ascii_lowercase, string.ascii_uppercase
_ALPHABETS = {sign: signs for signs in (_DIGITS, _LOWER, _UPPER) for sign in signs}


def _alphabet(sign: str) -> str | None:
    """Where a sign may go; None where it stays."""
    found = _ALPHABETS.get(sign)
    if found is not None or not sign.isalnum():
        return found
    if sign.isdigit() or sign.isnumeric():
        return _DIGITS
    return _UPPER if sign.isupper() else _LOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped(Method):
    """Signs go where signs of their kind were; punctuation stays."""

    name = "id"
    needs_key = True
    key: bytes
    digest: KeyedHash
    keep_first: int

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:
        assert key is not None
        return cls(
            key=key.purpose(cls.name, "permutation"),
            digest=KeyedHash(key, cls.name),
            keep_first=options.number("keep_first", 0, most=16),
        )

    def field(self, field: pa.Field) -> pa.Field | None:
        if not is_text(field.type) and not (pa.types.is_integer(field.type) and self.keep_first == 0):
            kinds = "text" if self.keep_first else "text and integers"
            raise UsageError(f"{self.name} is for {kinds}, not for {field.type}")
        return field

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:  # noqa: ARG002
        if pa.types.is_integer(array.type):
            return mapped(array, self._numbers)
        return mapped(array, lambda values: pa.array(self._texts(values.to_pylist()), array.type))

    def _numbers(self, values: pa.Array) -> pa.Array:
        """A number with as many digits and the same sign."""
        plain = values.fill_null(0).to_numpy(zero_copy_only=False)
        most = np.iinfo(plain.dtype).max
        negative = plain < 0
        size = np.where(negative & (plain == np.iinfo(plain.dtype).min), most, np.abs(plain)).astype(
            np.uint64
        )
        powers = np.array([0, *(10**power for power in range(1, 20))], np.uint64)
        at = np.searchsorted(powers, size, side="right") - 1
        least = powers[at]
        following = np.append(powers[1:], np.uint64(2**64 - 1))[at]
        room = np.minimum(following - np.uint64(1), np.uint64(most)) - least + np.uint64(1)
        made = permuted(self.key, size - least, room) + least
        signed = made.astype(plain.dtype)
        return null_as(pa.array(np.where(negative, -signed, signed), values.type), values)

    def _texts(self, values: list[str | None]) -> Iterable[str | None]:
        made: list[str | None] = [None] * len(values)
        small: list[tuple[int, list[str | None], int, int]] = []
        for at, value in enumerate(values):
            if value is None:
                continue
            if _UUID.fullmatch(value) and not self.keep_first and self.name == "id":
                made[at] = self._uuid(value)
                continue
            places = self._places(value)
            number, size = _number(value, places)
            if size == 1:
                made[at] = "*" * len(value)  # no sign that could become another
            elif size > LARGEST or not value.isascii():
                made[at] = _filled(value, places, self._hashed(value, size))
            else:
                small.append((at, places, number, size))
        if small:
            numbers = permuted(
                self.key,
                np.array([each[2] for each in small], np.uint64),
                np.array([each[3] for each in small], np.uint64),
            )
            for (at, places, _, _), number in zip(small, numbers.tolist(), strict=True):
                made[at] = _filled(values[at] or "", places, number)
        return made

    def _places(self, value: str) -> list[str | None]:
        """The alphabet of each sign; None where it stays."""
        places: list[str | None] = []
        left = self.keep_first
        for sign in value:
            signs = _alphabet(sign)
            if signs is not None and left:
                left -= 1
                signs = None
            places.append(signs)
        return places if any(places) else [_alphabet(sign) for sign in value]

    def _hashed(self, value: str, size: int) -> int:
        data = self.digest.one(_salted(value, 0), 16 + size.bit_length() // 8)
        return int.from_bytes(data, "little") % size

    def _uuid(self, value: str) -> str:
        """Another UUID of the same version."""
        digits = list(self.digest.one(_salted(value.lower(), 0), 16).hex())
        digits[12] = value[14]
        digits[16] = "89ab"[int(digits[16], 16) % 4]
        text = "".join(digits)
        made = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        return made.upper() if value.isupper() else made


@dataclass(frozen=True, slots=True, kw_only=True)
class Phone(Shaped):
    """Other digits (and letters) in the same places; `keep_first = 3` keeps a country's."""

    name = "phone"

    def field(self, field: pa.Field) -> pa.Field | None:
        if not is_text(field.type):
            raise UsageError(f"phone is for text, not for {field.type}", hint="use id for numbers")
        return field


def _number(value: str, places: list[str | None]) -> tuple[int, int]:
    """The signs as one number in mixed radix, and how many numbers there are."""
    number, size = 0, 1
    for sign, signs in zip(value, places, strict=True):
        if signs is not None:
            found = signs.find(sign)
            number = number * len(signs) + (found if found >= 0 else ord(sign) % len(signs))
            size *= len(signs)
    return number, size


def _filled(value: str, places: list[str | None], number: int) -> str:
    """The number written into the places, last sign first."""
    made: list[Any] = list(value)
    for at in range(len(made) - 1, -1, -1):
        signs = places[at]
        if signs is not None:
            number, digit = divmod(number, len(signs))
            made[at] = signs[digit]
    return "".join(made)
