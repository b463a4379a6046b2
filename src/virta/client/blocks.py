"""Blocks as they come from a broker, checked by the reader: links, digests, and their place.

A broker hands out blocks without looking into them. Whoever reads checks that each header
follows from the hash before it and that the bytes match their digest, so that nothing
between the disk and here can change a row unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from virta.errors import Corrupt
from virta.protocol.frames import BrokenProtocol, Frame
from virta.storage import block, chain
from virta.storage.chain import HEADER_SIZE
from virta.storage.segment import StoredBlock


def blocks_of(
    frame: Frame, header: Any, schema_of: Callable[[int], pa.Schema], *, verify: bool = True
) -> list[StoredBlock]:
    """The blocks of an answer."""
    count = header.count
    if not count:
        return []
    body = frame.body
    at = count * HEADER_SIZE
    if at > len(body):
        raise BrokenProtocol("an answer has fewer headers than it says")
    headers = chain.unpack_headers(body[:at])
    previous = header.previous
    if chain.check_links(body[:at], previous) != count:
        raise Corrupt("the blocks from the broker do not follow from each other")
    blocks = []
    for each in headers:
        data = body[at : at + each.length]
        at += each.length
        if verify and not block.is_named_by(data, each):
            block.check_against(data, each)
        blocks.append(StoredBlock(each, previous, [data], schema_of(each.schema_version)))
        previous = each.hash
    if at != len(body):
        raise BrokenProtocol("an answer's blocks do not fill it")
    return blocks
