"""The catalog of a log that is a directory: which topics there are, and what each is.

A topic's directory is built aside, whole and synced, and appears by rename, so a topic
is there with its first schema and partition or not at all. `topic.toml` is replaced the
same way; its version rises with every change and stands in each partition's state
record too, where a writer compares it at every commit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pyarrow as pa
import tomli_w

from virta.clock import Clock
from virta.errors import AlreadyExists, Corrupt, NotFound, UsageError
from virta.metadata.schemas import schema_from_bytes, schema_to_bytes, suggest
from virta.storage.block import remember_schema_message
from virta.storage.create import create_partition, write_new
from virta.storage.files import Files, read_file, replace_file, storage_error
from virta.storage.layout import (
    FORMAT_VERSION,
    LogPaths,
    TopicPaths,
    check_topic_name,
    topic_name_of,
)
from virta.storage.view import Identity
from virta.types import Compression, Durability, Kind, TopicConfig

_ASIDE = ".new-"
_DROPPED = ".dropped-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """One version of a topic."""

    name: str
    id: bytes
    version: int
    schema_version: int
    created_us: int
    config: TopicConfig

    def to_bytes(self) -> bytes:
        config = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self.config).items()
            if value is not None
        }
        return tomli_w.dumps(
            {
                "format": FORMAT_VERSION,
                "name": self.name,
                "id": self.id.hex(),
                "version": self.version,
                "schema_version": self.schema_version,
                "created_us": self.created_us,
                "config": config,
            }
        ).encode()


def parse_record(data: bytes, path: Path) -> TopicRecord:
    document = _parse_toml(data, path)
    try:
        _check_format(document, path)
        config = document["config"]
        enums: dict[str, Any] = {"kind": Kind, "durability": Durability, "compression": Compression}
        known = {field.name for field in dataclasses.fields(TopicConfig)}
        values: dict[str, Any] = {
            key: enums[key](value) if key in enums else tuple(value) if key == "keys" else value
            for key, value in config.items()
            if key in known
        }
        record = TopicRecord(
            name=document["name"],
            id=bytes.fromhex(document["id"]),
            version=document["version"],
            schema_version=document["schema_version"],
            created_us=document["created_us"],
            config=TopicConfig(**values),
        )
        _check_types(record)
        _check_types(record.config)
        if record.config.partitions < 1 or len(record.id) != 16:
            raise ValueError("it has no partition, or no id")
        return record
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"the topic's configuration is not readable: {error}", file=str(path)) from error


_TYPES = {kind: get_type_hints(kind) for kind in (TopicRecord, TopicConfig)}


def _check_types(value: TopicRecord | TopicConfig) -> None:
    """That a value made from a file has what its type says; TOML has numbers, texts and lists alike."""
    for name, kind in _TYPES[type(value)].items():
        found = getattr(value, name)
        if get_origin(kind) is tuple:
            good = isinstance(found, tuple) and all(isinstance(each, str) for each in found)
        else:
            good = isinstance(found, kind) or (isinstance(found, int) and isinstance(1.0, kind))
            good = good and (kind is bool or not isinstance(found, bool))
        if not good:
            raise ValueError(f"{name} is {found!r}")


def _parse_toml(data: bytes, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"not readable as TOML: {error}", file=str(path)) from error


def _check_format(document: dict[str, Any], path: Path) -> None:
    found = document["format"]
    if not isinstance(found, int) or found < 1:
        raise ValueError("it names no format version")
    if found > FORMAT_VERSION:
        raise UsageError(
            f"{path} has format {found}; this version of Virta knows formats up to {FORMAT_VERSION}",
            hint="install a newer version of virta",
        )


class Catalog:
    """The topics of one log directory."""

    def __init__(self, files: Files, clock: Clock, paths: LogPaths, log_id: bytes) -> None:
        self.files = files
        self.clock = clock
        self.paths = paths
        self.log_id = log_id

    @classmethod
    def open(cls, files: Files, clock: Clock, root: Path, *, create: bool = True) -> Catalog:
        """Open the log in this directory, or make one."""
        paths = LogPaths(root=root)
        try:
            data = _read_if_there(files, paths.log_file)
            if data is None:
                if not create:
                    raise NotFound(
                        f"there is no log in {root}",
                        hint="check the path; opening it for writing or `virta topic create` makes one",
                    )
                data = _create_log(files, clock, paths)
        except OSError as error:
            raise storage_error(error, root, "opening") from error
        document = _parse_toml(data, paths.log_file)
        try:
            _check_format(document, paths.log_file)
            log_id = bytes.fromhex(document["id"])
        except (KeyError, ValueError, TypeError) as error:
            raise Corrupt(f"not readable: {error}", file=str(paths.log_file)) from error
        return cls(files, clock, paths, log_id)

    # -- topics -----------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All topics, by name."""
        found = []
        for entry in self._entries():
            name = topic_name_of(entry)
            if name is None:
                if entry.startswith("."):
                    continue
                name = parse_record(*self._read_record(self.paths.topics / entry)).name
            found.append(name)
        return sorted(found)

    def _entries(self) -> list[str]:
        try:
            return self.files.names(self.paths.topics)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, self.paths.topics, "listing") from error

    def _read_record(self, root: Path) -> tuple[bytes, Path]:
        path = TopicPaths(root=root).topic_file
        return read_file(self.files, path), path

    def load(self, name: str) -> TopicRecord:
        check_topic_name(name)
        path = self.paths.topic(name).topic_file
        try:
            data = _read_if_there(self.files, path)
        except OSError as error:
            raise storage_error(error, path, "reading") from error
        if data is None:
            raise NotFound(f"topic {name!r} not found", hint=suggest(name, self.names(), "topics"))
        record = parse_record(data, path)
        if record.name != name:
            raise Corrupt(f"the directory of topic {name!r} holds topic {record.name!r}", file=str(path))
        return record

    def identity(self, record: TopicRecord, number: int) -> Identity:
        return Identity(log_id=self.log_id, topic_id=record.id, topic=record.name, number=number)

    def schema(self, record: TopicRecord, version: int) -> pa.Schema:
        """A version of the topic's stored schema."""
        path = self.paths.topic(record.name).schema(version)
        self._check_in_place(record)
        try:
            data = read_file(self.files, path)
            schema = schema_from_bytes(data)
            remember_schema_message(schema, data)
            return schema
        except FileNotFoundError as error:
            self._check_in_place(record)
            raise Corrupt(
                f"schema version {version} is missing", topic=record.name, file=str(path)
            ) from error
        except (Corrupt, UsageError) as error:
            raise Corrupt(error.message, topic=record.name, file=str(path)) from error

    def _check_in_place(self, record: TopicRecord) -> None:
        """That the directory of this name is still this topic's, not of one made after it was dropped."""
        try:
            found = self.load(record.name)
        except NotFound as error:
            raise NotFound(f"the topic {record.name!r} was dropped") from error
        if found.id != record.id:
            raise NotFound(
                f"topic {record.name!r} was dropped and made again: it is another topic now",
                hint="get it with log.topic() again",
            )

    def create(self, name: str, schema: pa.Schema, config: TopicConfig) -> TopicRecord:
        """Make a topic with its first schema and its partitions."""
        check_topic_name(name)
        final = self.paths.topic(name)
        record = TopicRecord(
            name=name,
            id=os.urandom(16),
            version=1,
            schema_version=1,
            created_us=self.clock.now_us(),
            config=config,
        )
        aside = TopicPaths(root=self.paths.topics / f"{_ASIDE}{record.id.hex()}")
        there = AlreadyExists(f"topic {name!r} is already there", hint="open it with log.topic(name)")
        try:
            if self.files.identity(final.root) is not None:
                raise there
            self._build_aside(aside, record, schema)
            try:
                self.files.rename(aside.root, final.root)
            except OSError as error:
                self._forget_aside(aside)
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                raise there from error
            self.files.sync_directory(self.paths.topics)
        except OSError as error:
            raise storage_error(error, final.root, "creating") from error
        return record

    def _build_aside(self, aside: TopicPaths, record: TopicRecord, schema: pa.Schema) -> None:
        try:
            self._build(aside, record, schema)
        except BaseException:
            self._forget_aside(aside)
            raise

    def _forget_aside(self, aside: TopicPaths) -> None:
        with contextlib.suppress(OSError):
            remove_tree(self.files, aside.root)

    def _build(self, aside: TopicPaths, record: TopicRecord, schema: pa.Schema) -> None:
        files = self.files
        for directory in (aside.root, aside.schemas):
            files.make_directory(directory)
        write_new(files, aside.schema(1), schema_to_bytes(schema))
        for number in range(record.config.partitions):
            create_partition(
                files,
                aside.partition(number),
                self.identity(record, number),
                schema,
                self.clock,
                topic_version=record.version,
            )
        write_new(files, aside.topic_file, record.to_bytes())
        for directory in (aside.schemas, aside.root):
            files.sync_directory(directory)

    def replace(self, record: TopicRecord, schema: pa.Schema | None = None) -> None:
        """Put a new version of a topic in force; its new schema first, if it has one."""
        paths = self.paths.topic(record.name)
        try:
            if schema is not None:
                replace_file(self.files, paths.schema(record.schema_version), schema_to_bytes(schema))
            replace_file(self.files, paths.topic_file, record.to_bytes())
        except OSError as error:
            raise storage_error(error, paths.root, "changing") from error

    def drop(self, record: TopicRecord) -> None:
        """Take a topic away: it disappears by rename, then its files go."""
        root = self.paths.topic(record.name).root
        gone = self.paths.topics / f"{_DROPPED}{record.id.hex()}"
        try:
            self.files.rename(root, gone)
            self.files.sync_directory(self.paths.topics)
            remove_tree(self.files, gone)
        except OSError as error:
            raise storage_error(error, root, "dropping") from error


def remove_tree(files: Files, root: Path) -> None:
    for name in files.names(root):
        path = root / name
        if path.is_dir() and not path.is_symlink():
            remove_tree(files, path)
        else:
            files.unlink(path)
    files.remove_directory(root)


def _read_if_there(files: Files, path: Path) -> bytes | None:
    try:
        return read_file(files, path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _create_log(files: Files, clock: Clock, paths: LogPaths) -> bytes:
    """Make a log's directory; of two processes that do it at once, the second finds the first's."""
    _make_directories(files, paths.root)
    names = files.names(paths.root)
    if paths.log_file.name in names:  # somebody else made it just now
        return read_file(files, paths.log_file)
    strangers = [name for name in names if not name.startswith(".") and name != paths.topics.name]
    if strangers:
        raise UsageError(
            f"{paths.root} is not a log: it holds {strangers[0]!r} and no {paths.log_file.name}",
            hint="give the path of a log, or of a directory that is new or empty",
        )
    files.make_directory(paths.topics)
    document = {"format": FORMAT_VERSION, "id": os.urandom(16).hex(), "created_us": clock.now_us()}
    aside = paths.log_file.with_name(f".{paths.log_file.name}.{os.urandom(8).hex()}")
    write_new(files, aside, tomli_w.dumps(document).encode())
    try:
        with contextlib.suppress(FileExistsError):
            files.link(aside, paths.log_file)
    finally:
        files.unlink(aside)
    files.sync_directory(paths.root)
    return read_file(files, paths.log_file)


def _make_directories(files: Files, path: Path) -> None:
    missing = []
    while files.identity(path) is None:
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        files.make_directory(directory)
        files.sync_directory(directory.parent)
