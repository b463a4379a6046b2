"""Erasing rows: they really go, from every file of the log, and so does what could guess them.

Every segment that holds such a row is rewritten without it; the one that is appended to is
sealed first. Blocks without such a row are copied as they are. With a block its salt goes, so
the digest that the chain keeps cannot be used to try out what stood there. Torn tails that
recovery kept and files that killed rewrites left are removed as well, since they may hold it.

In an update topic a key is erased whole, with all its versions: if only the newest row of a key
went, an older one would be true again.

The receipt and the event say how many rows went, from where and when, never which: a condition
may name what is to be forgotten. Rows that are appended meanwhile are not looked at. Backups,
exports and other topics are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from virta.errors import UsageError
from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten, open_segments, rewrite
from virta.metadata.schemas import unify
from virta.storage import manifest
from virta.storage.files import sync_directory
from virta.storage.layout import TORN_MARK
from virta.storage.manifest import Entry
from virta.storage.rewrite import Keep, SourcesChanged, rewritable, rewriting_alone, unlink_asides
from virta.storage.segment import Segment, StoredBlock
from virta.topics.filters import Filter
from virta.topics.key_values import KeyReader
from virta.topics.keys import encode_rows, hash_rows
from virta.types import Erasure, Kind, TopicConfig

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Match = Callable[[pa.RecordBatch], "Mask | None"]

REASON = "erased"
_READ_BYTES = 8 * 1024 * 1024
# Retention may take segments away while it runs; each time it plans anew.
_ATTEMPTS = 16


# -- which rows -------------------------------------------------------------------------------------


def match_filter(chosen: Filter) -> Match:
    """Rows for which an expression is true."""

    def match(batch: pa.RecordBatch) -> Mask | None:
        mask = chosen.mask(batch).fill_null(False).to_numpy(zero_copy_only=False)
        return mask if mask.any() else None

    return match


class KeySet:
    """Rows that have one of some keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._known: set[bytes] = set()
        self._hashes = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the keys of these rows."""
        self._known.update(encode_rows(batch, self._keys))
        self._hashes = np.union1d(self._hashes, hash_rows(batch, self._keys))

    def match(self, batch: pa.RecordBatch) -> Mask | None:
        mask = np.isin(hash_rows(batch, self._keys), self._hashes)
        rows = np.flatnonzero(mask)
        if not len(rows):
            return None
        found = encode_rows(batch.select(list(self._keys)).take(pa.array(rows)), self._keys)
        mask[rows] = [key in self._known for key in found]
        return mask if mask.any() else None


def keys_of(given: Any, names: Sequence[str], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Keys as people give them: one, a list, or Arrow."""
    if not names:
        raise UsageError("the topic has no keys", hint="erase by a condition: erase(where=…)")
    return KeyReader(schema, names).batches(given)


# -- erasing -----------------------------------------------------------------------------------------


class Eraser:
    """Erases matching rows of one partition."""

    def __init__(
        self,
        partition: Partition,
        config: TopicConfig,
        schema: pa.Schema,
        match: Match,
        advance: Callable[[int], None],
    ) -> None:
        self._partition = partition
        self._config = config
        self._schema = schema
        self._match = match
        self._advance = advance

    def count(self) -> tuple[int, int]:
        """Rows that match, and the segments that hold them. Changes nothing."""
        rows = segments = 0
        for segment, count in self._segments():
            found = sum(int(mask.sum()) for _, mask in self._matches(segment, count))
            rows, segments = rows + found, segments + bool(found)
        return rows, segments

    def run(self) -> list[Rewritten]:
        """Erase all that match; when it returns nothing of them is left in any file."""
        files, paths = self._partition.files, self._partition.paths
        done: list[Rewritten] = []
        with rewriting_alone(files, paths, wait=True):
            end = self._seal_if_needed()
            for _ in range(_ATTEMPTS):
                try:
                    done.extend(self._rewrite_all(end))
                    break
                except SourcesChanged:
                    continue
            else:
                raise SourcesChanged
            self._remove_remains()
        return done

    def _seal_if_needed(self) -> int:
        """Where what is to be erased ends: at what is sealed, once the active segment is if it must."""
        with self._partition.writing() as committer:
            view = committer.view
            if any(True for _ in self._matches(view.active, view.blocks)):
                committer.roll()
            return view.manifest.active.base

    def _rewrite_all(self, end: int) -> Iterator[Rewritten]:
        with self._partition.view() as view:
            entries = [entry for entry in rewritable(view.manifest.segments) if entry.base < end]
        for entry in entries:
            (segment,) = open_segments(self._partition, [entry])
            masks = dict(self._matches(segment, entry.blocks))
            if masks:
                yield self._rewrite(segment, masks, entry)

    def _rewrite(self, segment: Segment, masks: dict[int, Mask], entry: Entry) -> Rewritten:
        return rewrite(
            self._partition,
            [segment],
            keep_but(masks),
            REASON,
            compression=self._config.compression,
            join=False,
            flags=flags_kept(entry),
            advance=self._advance,
        )

    def _remove_remains(self) -> None:
        """Evidence of crashes and files of killed rewrites may hold what was erased."""
        files, paths = self._partition.files, self._partition.paths
        unlink_asides(files, paths)
        for name in files.names(paths.root):
            if TORN_MARK in name:
                files.unlink(paths.root / name)
        sync_directory(files, paths.root)

    def _segments(self) -> Iterator[tuple[Segment, int]]:
        self._partition.dump()
        with self._partition.view() as view:
            counts = [view.blocks_in(index) for index in range(len(view.manifest.segments))]
            segments = view.settled(lambda: [view.segment(index) for index in range(len(counts))])
        yield from zip(segments, counts, strict=True)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that match."""
        for segment, count in self._segments():
            for _, batch, mask in matches(segment, count, self._schema, self._match):
                yield batch.filter(pa.array(mask))

    def _matches(self, segment: Segment, count: int) -> Iterator[tuple[int, Mask]]:
        """The blocks that hold such rows, and which."""
        for index, _, mask in matches(segment, count, self._schema, self._match):
            yield index, mask


def keep_but(masks: Mapping[int, Mask]) -> Keep:
    """Which rows stay, where these go from the blocks of one segment."""

    def keep(_: int, index: int, __: StoredBlock) -> Mask | None:
        mask = masks.get(index)
        return None if mask is None else ~mask

    return keep


def flags_kept(entry: Entry) -> int:
    """What a segment still is when rows went from it."""
    return entry.flags & (manifest.COMPACTED | manifest.JOINED)


def matches(
    segment: Segment, count: int, schema: pa.Schema, match: Match
) -> Iterator[tuple[int, pa.RecordBatch, Mask]]:
    """The blocks of a segment that hold rows that match: place, rows, and which of them."""
    for index, stored in enumerate(_blocks(segment, count)):
        if stored.header.rows:
            batch = stored.decode()
            batch = batch if batch.schema is schema else unify(batch, schema)
            mask = match(batch)
            if mask is not None:
                yield index, batch, mask


def _blocks(segment: Segment, count: int) -> Iterator[StoredBlock]:
    at = 0
    while at < count:
        blocks = segment.read_blocks(at, count, max_bytes=_READ_BYTES, verify=False)
        yield from blocks
        at += len(blocks)


def erase_rows(
    topic: str,
    partitions: Sequence[Partition],
    config: TopicConfig,
    schema: pa.Schema,
    *,
    where: Filter | None,
    keys: Sequence[pa.RecordBatch] | None,
    dry_run: bool,
    on_done: Callable[[Partition, list[Rewritten]], None],
    advance: Callable[[int], None] = lambda _: None,
    kind: Callable[..., Eraser] = Eraser,
) -> Erasure:
    """Erase the rows that a condition or some keys name, in all partitions. `kind` does the work."""

    def eraser(partition: Partition, match: Match) -> Eraser:
        return kind(partition, config, schema, match, advance)

    if where is not None:
        match = match_filter(where)
    if keys is not None or config.kind is Kind.UPDATE:
        known = KeySet(config.keys)
        if keys is not None:
            for batch in keys:
                known.add(batch)
        else:
            for partition in partitions:
                for batch in eraser(partition, match).rows():
                    known.add(batch)
        match = known.match
    rows = segments = touched = 0
    for partition in partitions:
        if dry_run:
            gone, changed = eraser(partition, match).count()
        else:
            done = eraser(partition, match).run()
            gone, changed = sum(each.rows_removed for each in done), len(done)
            if done:
                on_done(partition, done)
        rows, segments, touched = rows + gone, segments + changed, touched + bool(gone)
    return Erasure(topic=topic, rows=rows, segments=segments, partitions=touched, dry_run=dry_run)
