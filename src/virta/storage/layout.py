"""The names of everything in a log's directory. No other module spells a file name.

events/
  log.toml                        format version and log id
  topics/<name>/
    topic.toml                    a snapshot of the topic's configuration
    schemas/0001.arrow            one schema per version
    p0000/                        a partition
      lock  turnstile  manifest
      <base>[.g<generation>].arrows | .chain | .stats
      <base>….torn-<n>            what recovery cut, kept as evidence
  staging/<topic>/                rows that Spark is about to append (virta.spark.staging)
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from virta.errors import TooLarge, UsageError

FORMAT_VERSION = 1
NAME_LIMIT_BYTES = 1024  # of a topic's name (DESIGN, section 5)
_DIRECTORY_NAME_LIMIT = 180  # file systems take 255 bytes; room is left for suffixes

LOG_FILE = "log.toml"
TOPICS = "topics"
GROUPS = "groups"
STAGING = "staging"
TOPIC_FILE = "topic.toml"
SCHEMAS = "schemas"
LOCK = "lock"
TURNSTILE = "turnstile"
MANIFEST = "manifest"
DATA_SUFFIX = ".arrows"
CHAIN_SUFFIX = ".chain"
STATS_SUFFIX = ".stats"
KEYS_SUFFIX = ".keys"
DERIVED_SUFFIXES = (STATS_SUFFIX, KEYS_SUFFIX)
TORN_MARK = ".torn-"

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_=+,@")
_ESCAPED = re.compile(r"%([0-9a-f]{2})|\^([a-z])")
_SEGMENT_NAME = re.compile(r"(\d{20})(?:\.g(\d{4,}))?\.(arrows|chain|stats|keys)")


def check_topic_name(name: str) -> None:
    if not name:
        raise UsageError("a topic needs a name that is not empty")
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > NAME_LIMIT_BYTES:
        raise TooLarge(
            f"the topic name has {size} bytes; the limit is {NAME_LIMIT_BYTES}",
            size=size,
            limit=NAME_LIMIT_BYTES,
        )
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"the topic name {name!r} is not valid Unicode") from error
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise UsageError(f"the topic name {name!r} has control characters")


def topic_directory_name(name: str) -> str:
    """A name every file system takes, also one that folds case: `%` and `^` escape, `~` marks a cut.

    Only a very long name is cut (and told apart by a digest); any other can be read back.
    """
    encoded = "".join(map(_encode_byte, name.encode("utf-8")))
    if len(encoded) <= _DIRECTORY_NAME_LIMIT:
        return encoded
    digest = hashlib.sha256(name.encode("utf-8")).hexdigest()[:32]
    return f"{encoded[:120]}~{digest}"


def _encode_byte(byte: int) -> str:
    character = chr(byte)
    if character in _PLAIN:
        return character
    return f"^{character.lower()}" if "A" <= character <= "Z" else f"%{byte:02x}"


def topic_name_of(directory_name: str) -> str | None:
    """The topic a directory is named for; None when the name was cut or is none of ours."""
    if "~" in directory_name or directory_name.startswith("."):
        return None
    text = _ESCAPED.sub(
        lambda match: match.group()[1].upper() if match.group(2) else chr(int(match.group(1), 16)),
        directory_name,
    )
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPaths:
    root: Path

    @property
    def log_file(self) -> Path:
        return self.root / LOG_FILE

    @property
    def topics(self) -> Path:
        return self.root / TOPICS

    @property
    def staging(self) -> Path:
        return self.root / STAGING

    @property
    def groups(self) -> Path:
        return self.root / GROUPS

    def topic(self, name: str) -> TopicPaths:
        return TopicPaths(root=self.topics / topic_directory_name(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPaths:
    root: Path

    @property
    def topic_file(self) -> Path:
        return self.root / TOPIC_FILE

    @property
    def schemas(self) -> Path:
        return self.root / SCHEMAS

    def schema(self, version: int) -> Path:
        return self.schemas / f"{version:04d}.arrow"

    def partition(self, number: int) -> PartitionPaths:
        return PartitionPaths(root=self.root / f"p{number:04d}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPaths:
    root: Path

    @property
    def lock(self) -> Path:
        return self.root / LOCK

    @property
    def turnstile(self) -> Path:
        return self.root / TURNSTILE

    @property
    def manifest(self) -> Path:
        return self.root / MANIFEST

    @property
    def directories(self) -> tuple[Path, ...]:
        """Whose entries lead here: partition, topic, topics, log, and where the log lies."""
        return (self.root, *self.root.parents[:4])

    def _segment(self, base: int, generation: int, suffix: str) -> Path:
        mark = f".g{generation:04d}" if generation else ""
        return self.root / f"{base:020d}{mark}{suffix}"

    def data(self, base: int, generation: int = 0) -> Path:
        return self._segment(base, generation, DATA_SUFFIX)

    def chain(self, base: int, generation: int = 0) -> Path:
        return self._segment(base, generation, CHAIN_SUFFIX)

    def stats(self, base: int, generation: int = 0) -> Path:
        return self._segment(base, generation, STATS_SUFFIX)

    def keys(self, base: int, generation: int = 0) -> Path:
        return self._segment(base, generation, KEYS_SUFFIX)

    def derived(self, base: int, generation: int = 0) -> tuple[Path, ...]:
        """What is made from a sealed segment, and can be made again."""
        return tuple(self._segment(base, generation, suffix) for suffix in DERIVED_SUFFIXES)


def segment_of(name: str) -> tuple[int, int, str] | None:
    """Base offset, generation and kind of a segment file's name; None for any other file."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match.group(1)), int(match.group(2) or 0), match.group(3)
