"""What to do with what a crash left. Runs under the partition's lock, before the first append.

Below the synced watermark nothing is touched: a bad block there is damage, and reading
or verifying names it. Above it:

 1. blocks whose headers are in the chain are kept as long as header and bytes verify.
    Within one boot the bytes are in the page cache as they were written, so only the
    headers are looked at; after another boot every byte is hashed again;
 2. blocks that are whole in the data but missing in the chain come back: their headers
    are made again from what the blocks say of themselves;
 3. the rest, from the first bad byte on, is copied beside the files (`….torn-<n>`) and
    cut off, even if later blocks are good: pages reach the disk in any order. Had the
    chain named any of it, readers may have seen it: the epoch rises first, so that they
    look again, and tokens in that stretch get HistoryChanged.

A chain file that is gone or does not agree is made again the same from its data file.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta.errors import Corrupt
from virta.storage import block, chain, state
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.files import Files, read_fully, write_fully
from virta.storage.layout import TORN_MARK
from virta.storage.segment import Segment
from virta.storage.view import View

# Evidence of one recovery is at most what lies above the watermark; copied in pieces of this size.
_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What recovery found and did."""

    kept_blocks: int
    found_blocks: int  # whole in the data, missing in the chain
    cut_headers: int
    cut_bytes: int
    first_cut_offset: int
    last_cut_offset: int
    reason: str
    evidence: str

    def event(self) -> dict[str, Any]:
        return {
            "from": self.first_cut_offset,
            "to": self.last_cut_offset,
            "blocks": self.cut_headers,
            "bytes": self.cut_bytes,
            "reason": self.reason,
            "evidence": self.evidence,
        }


def recover(view: View, lock_descriptor: int) -> Recovered:
    """Bring the active segment into a state that can be appended to."""
    files, segment = view.files, view.active
    chain_size = files.size(segment.chain_descriptor)
    data_size = files.size(segment.data_descriptor)
    same_boot = view.state.boot_id == files.boot_id()
    sound = _sound_headers(view, chain_size // HEADER_SIZE, check_bytes=not same_boot)
    end = sound.end
    found, reason = _whole_blocks(view, sound, data_size)
    headers = found.headers
    end = found.end
    known = sound.count + len(headers)
    named = chain_size // HEADER_SIZE
    cut_headers = max(0, named - known)
    cut_bytes = data_size - end
    evidence = ""
    last_cut = _last_named_offset(segment, named, found.next_offset) if cut_headers else found.next_offset
    if cut_bytes > 0 or cut_headers or chain_size % HEADER_SIZE:
        evidence = _keep_evidence(files, segment, end, known * HEADER_SIZE)
    _write_epoch(view, lock_descriptor, raise_epoch=bool(cut_headers))
    if chain_size > known * HEADER_SIZE:
        files.truncate(segment.chain_descriptor, known * HEADER_SIZE)
    if headers:
        made = b"".join(header.to_bytes() for header in headers)
        write_fully(files, segment.chain_descriptor, made, sound.count * HEADER_SIZE)
    if cut_bytes > 0:
        files.truncate(segment.data_descriptor, end)
    view.look_from_end()
    return Recovered(
        kept_blocks=known,
        found_blocks=len(headers),
        cut_headers=cut_headers,
        cut_bytes=max(0, cut_bytes),
        first_cut_offset=found.next_offset,
        last_cut_offset=last_cut,
        reason=reason,
        evidence=evidence,
    )


@dataclass(slots=True)
class _Sound:
    """How far the active segment is good."""

    count: int
    end: int
    next_offset: int
    head: bytes
    headers: list[Header]


def _start(view: View) -> _Sound:
    """The watermark, if the state record's agrees with the chain; else the segment's beginning."""
    segment, known = view.active, view.state
    sound = _Sound(
        0,
        len(block.schema_message(segment.schema)),
        segment.entry.base,
        segment.entry.previous_hash,
        [],
    )
    count = known.synced_blocks
    if known.segment_base != segment.entry.base or count == 0:
        return sound
    if view.files.size(segment.chain_descriptor) < count * HEADER_SIZE:
        return sound
    header = chain.unpack_header(segment.read_chain((count - 1) * HEADER_SIZE, HEADER_SIZE))
    if header.hash != known.synced_hash or header.end_offset != known.synced_offset:
        return sound
    return _Sound(count, header.end_position, header.end_offset, header.hash, [])


def _sound_headers(view: View, named: int, *, check_bytes: bool) -> _Sound:
    """Step 1: follow the chain from the watermark as long as it is good."""
    sound = _start(view)
    segment = view.active
    data_size = view.files.size(segment.data_descriptor)
    for index in range(sound.count, named):
        header = chain.unpack_header(segment.read_chain(index * HEADER_SIZE, HEADER_SIZE))
        fields = chain.without_place(header.fields())
        try:
            chain.check_follows(header, next_offset=sound.next_offset, position=sound.end)
            if chain.link(sound.head, fields, header.digest) != header.hash:
                break
            if header.end_position > data_size:
                break
            if check_bytes:
                block.check_against(segment.read_data(header.position, header.length), header)
        except Corrupt:
            break
        sound = _Sound(index + 1, header.end_position, header.end_offset, header.hash, [])
    return sound


def _whole_blocks(view: View, sound: _Sound, data_size: int) -> tuple[_Sound, str]:
    """Step 2: blocks behind the chain's end that say of themselves that they belong there."""
    segment = view.active
    end, next_offset, head = sound.end, sound.next_offset, sound.head
    headers: list[Header] = []
    reason = ""
    while end < data_size:
        try:
            length = block.measure(segment.read_data, end, data_size)
            header = header_of(segment.read_data(end, length), head, end)
            chain.check_follows(header, next_offset=next_offset, position=end)
            if header.schema_version != segment.entry.schema_version:
                raise Corrupt("the block has another schema version than its segment")
        except Corrupt as error:
            reason = error.message
            break
        headers.append(header)
        end, next_offset, head = header.end_position, header.end_offset, header.hash
    return _Sound(sound.count, end, next_offset, head, headers), reason


def header_of(data: Any, previous: bytes, position: int) -> Header:
    """The header of a block, made from the block itself. Corrupt when its digest is wrong."""
    fields, digest = block.check(data)
    placed = chain.with_place(fields, position, len(data))
    return chain.unpack_header(placed + digest + chain.link(previous, fields, digest))


def _last_named_offset(segment: Segment, named: int, otherwise: int) -> int:
    """The end of what the chain named, as far as its last header can be believed."""
    header = chain.unpack_header(segment.read_chain((named - 1) * HEADER_SIZE, HEADER_SIZE))
    return header.end_offset if otherwise <= header.end_offset < otherwise + (1 << 32) else otherwise


def _write_epoch(view: View, lock_descriptor: int, *, raise_epoch: bool) -> None:
    view.state = state.write(
        view.files,
        lock_descriptor,
        dataclasses.replace(
            view.state,
            epoch=view.state.epoch + (1 if raise_epoch else 0),
            boot_id=view.files.boot_id(),
            generation=view.manifest.generation,
        ),
    )


def _keep_evidence(files: Files, segment: Segment, data_from: int, chain_from: int) -> str:
    """Copy what will be cut beside the files; the name of the data's copy."""
    kept = ""
    for path, descriptor, start in (
        (segment.chain_path, segment.chain_descriptor, chain_from),
        (segment.data_path, segment.data_descriptor, data_from),
    ):
        if files.size(descriptor) > start:
            target = _free_name(files, path)
            _copy(files, descriptor, start, target)
            kept = target.name
    if kept:
        files.sync_directory(segment.data_path.parent)
    return kept


def _free_name(files: Files, path: Path) -> Path:
    taken = set(files.names(path.parent))
    number = 1
    while f"{path.name}{TORN_MARK}{number}" in taken:
        number += 1
    return path.with_name(f"{path.name}{TORN_MARK}{number}")


def _copy(files: Files, source: int, start: int, target: Path) -> None:
    descriptor = files.open(target, write=True, create=True)
    try:
        written = 0
        while piece := read_fully(files, source, _COPY_BYTES, start + written):
            write_fully(files, descriptor, piece, written)
            written += len(piece)
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def rebuild_chain(files: Files, data_path: Path, *, previous: bytes, start: int, end: int | None) -> bytes:
    """The bytes of a chain file, made from the data file alone.

    `start` is the length of the schema message, `end` where the blocks end (None: where
    the file's last whole block does). Raises Corrupt at the first bad block before `end`.
    """
    descriptor = files.open(data_path)
    try:
        size = files.size(descriptor)
        limit = size if end is None else min(end, size)

        def read(at: int, length: int) -> bytes:
            return read_fully(files, descriptor, length, at)

        headers = []
        at = start
        while at < limit:
            try:
                length = block.measure(read, at, limit)
                header = header_of(read(at, length), previous, at)
            except Corrupt as error:
                if end is None:
                    break
                raise Corrupt(error.message, file=str(data_path), position=at) from error
            headers.append(header.to_bytes())
            at, previous = header.end_position, header.hash
        return b"".join(headers)
    finally:
        files.close(descriptor)
