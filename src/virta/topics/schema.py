"""The schemas of one topic: every version by number, the newest for readers.

Versions are read once and kept: a version's schema never changes. The newest is told
by the topic's record, which is read again when a partition says that it changed.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from virta.metadata.catalog import Catalog, TopicRecord


class SchemaSource:
    def __init__(self, catalog: Catalog, record: TopicRecord) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._known: dict[int, pa.Schema] = {}
        self.record = record

    def version(self, number: int) -> pa.Schema:
        """The stored schema of a version, with the leading columns."""
        with self._lock:
            found = self._known.get(number)
            if found is None:
                found = self._known[number] = self._catalog.schema(self.record, number)
            return found

    def know(self, record: TopicRecord, schema: pa.Schema) -> None:
        """A record that was just read, and the schema that came with it."""
        with self._lock:
            self._known.setdefault(record.schema_version, schema)
            if record.version >= self.record.version:
                self.record = record

    def newest(self) -> pa.Schema:
        return self.version(self.record.schema_version)

    def follow(self, topic_version: int) -> None:
        """Take in a change, if the partition says that there was one."""
        if topic_version != self.record.version:
            self.reload()

    def follow_block(self, schema_version: int) -> None:
        """Take in a change of schema that a block shows."""
        if schema_version > self.record.schema_version:
            self.reload()

    def reload(self) -> TopicRecord:
        """Read the topic's record again."""
        found = self._catalog.load(self.record.name)
        if found.id == self.record.id:
            self.record = found
        return found
