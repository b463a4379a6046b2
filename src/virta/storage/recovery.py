"""What to do with what a crash left. Runs under the partition's lock, before the first append.

Below the synced watermark nothing is touched: a bad block there is damage, and reading
or verifying names it. Above it:

 1. blocks whose headers are in the chain are kept as long as header and bytes verify.
    Within one boot the bytes are in the page cache as they were written, so only the
    headers above the watermark are looked at; after another boot all headers are (the
    chain file is not synced, and may even have an older history's headers back), and
    every byte above the watermark is hashed again;
 2. blocks that are whole in the data but missing in the chain come back: their headers
    are made again from what the blocks say of themselves;
 3. the rest, from the first bad byte on, is copied beside the files (`….torn-<n>`) and
    cut off, even if later blocks are good: pages reach the disk in any order. Had the
    chain named any of it, readers may have seen it: the epoch rises first, so that they
    look again, and tokens in that stretch get HistoryChanged.

A chain file that is gone or does not agree is made again the same from its data file.
If the data itself ends, or is bad, below the watermark, nothing is cut: that is damage.

The boot id is written last: a recovery that is killed halfway is done again from the start.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta.errors import Corrupt
from virta.storage import block, chain, room, state
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.files import Files, read_fully, write_fully
from virta.storage.layout import TORN_MARK
from virta.storage.rebuild import header_of
from virta.storage.segment import Segment
from virta.storage.view import View, trusted_blocks

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
    same_boot = view.state.is_checked_in(files.boot_id())
    sound = _sound_headers(view, chain_size // HEADER_SIZE, same_boot=same_boot)
    found, reason = _whole_blocks(view, sound, data_size)
    headers = found.headers
    end = found.end
    _refuse_damage(view, found, data_size, reason)
    known = sound.count + len(headers)
    named = chain_size // HEADER_SIZE
    cut_headers = max(0, named - known)
    cut_bytes = room.bytes_behind(files, segment.data_descriptor, end)
    evidence = ""
    last_cut = _last_named_offset(segment, named, found.next_offset) if cut_headers else found.next_offset
    if cut_bytes or cut_headers or chain_size % HEADER_SIZE:
        evidence = _keep_evidence(files, segment, end, known * HEADER_SIZE)
    if cut_headers:
        _write_state(view, lock_descriptor, epoch=max(view.state.epoch, found.epoch) + 1)
    if chain_size > known * HEADER_SIZE:
        files.truncate(segment.chain_descriptor, known * HEADER_SIZE)
    if headers:
        made = b"".join(header.to_bytes() for header in headers)
        write_fully(files, segment.chain_descriptor, made, sound.count * HEADER_SIZE)
    if cut_bytes:
        files.truncate(segment.data_descriptor, end)
    _write_state(
        view,
        lock_descriptor,
        epoch=max(view.state.epoch, found.epoch),
        boot_id=files.boot_id(),
        generation=view.manifest.generation,
    )
    view.look_from_end()
    return Recovered(
        kept_blocks=known,
        found_blocks=len(headers),
        cut_headers=cut_headers,
        cut_bytes=cut_bytes,
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
    epoch: int = 0


def _start(view: View) -> _Sound:
    """The watermark, if the state record's agrees with the chain; else the segment's beginning."""
    segment, known = view.active, view.state
    sound = _beginning(segment)
    count = known.synced_blocks
    if not known.is_of(segment.entry) or count == 0:
        return sound
    if view.files.size(segment.chain_descriptor) < count * HEADER_SIZE:
        return sound
    header = chain.unpack_header(segment.read_chain((count - 1) * HEADER_SIZE, HEADER_SIZE))
    if header.hash != known.synced_hash or header.end_offset != known.synced_offset:
        return sound
    return _Sound(count, header.end_position, header.end_offset, header.hash, [], header.epoch)


def _beginning(segment: Segment) -> _Sound:
    opening = len(block.schema_message(segment.schema))
    return _Sound(0, opening, segment.entry.base, segment.entry.previous_hash, [])


def _sound_headers(view: View, named: int, *, same_boot: bool) -> _Sound:
    """Step 1: follow the chain as long as it is good: from the watermark, or all of it after a boot."""
    segment = view.active
    sound = _start(view) if same_boot else _beginning(segment)
    synced = named if same_boot else trusted_blocks(segment, view.state, named)
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
            if index >= synced:
                block.check_against(segment.read_data(header.position, header.length), header)
        except Corrupt:
            break
        sound = _Sound(index + 1, header.end_position, header.end_offset, header.hash, [], header.epoch)
    return sound


def _whole_blocks(view: View, sound: _Sound, data_size: int) -> tuple[_Sound, str]:
    """Step 2: blocks behind the chain's end that say of themselves that they belong there."""
    segment = view.active
    end, next_offset, head, epoch = sound.end, sound.next_offset, sound.head, sound.epoch
    headers: list[Header] = []
    reason = ""
    while end < data_size:
        try:
            length = block.measure(segment.read_data, end, data_size)
            header = header_of(segment.read_data(end, length), head, end)
            chain.check_follows(header, next_offset=next_offset, position=end)
            chain.check_appended(header)
            if header.schema_version != segment.entry.schema_version:
                raise Corrupt("the block has another schema version than its segment")
        except Corrupt as error:
            reason = error.message
            break
        headers.append(header)
        end, next_offset, head = header.end_position, header.end_offset, header.hash
        epoch = header.epoch
    return _Sound(sound.count, end, next_offset, head, headers, epoch), reason


def _refuse_damage(view: View, found: _Sound, data_size: int, reason: str) -> None:
    """Below the watermark nothing may be cut: what is bad or missing there is damage."""
    known, segment = view.state, view.active
    synced = known.synced_length if known.is_of(segment.entry) else 0
    if found.end >= synced and found.end <= data_size:
        return
    raise Corrupt(
        f"rows that were synced to disk are damaged: {reason or 'the data file is too short'}",
        topic=view.identity.topic,
        partition=view.identity.number,
        file=str(segment.data_path),
        position=min(found.end, data_size),
        offset=found.next_offset,
        hint="rows before it can still be read; `virta verify` tells more",
    )


def _last_named_offset(segment: Segment, named: int, otherwise: int) -> int:
    """The end of what the chain named, as far as its last header can be believed."""
    header = chain.unpack_header(segment.read_chain((named - 1) * HEADER_SIZE, HEADER_SIZE))
    return header.end_offset if otherwise <= header.end_offset < otherwise + (1 << 32) else otherwise


def _write_state(view: View, lock_descriptor: int, **changes: Any) -> None:
    view.state = state.write(view.files, lock_descriptor, dataclasses.replace(view.state, **changes))


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
    except BaseException:
        files.unlink(target)  # a copy cut short, made again at every try, would eat up the disk
        raise
    finally:
        files.close(descriptor)
