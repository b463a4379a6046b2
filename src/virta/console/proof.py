"""A proof that a row stood in a topic: the block it lies in, and the headers from there to the head.

    document = make_proof(topic, 0, 17)
    check_proof(document)          # {"offset": 17, "head": "3f9c…", "row": {…}}, or Corrupt

Whoever noted the head (in a ticket, on another machine) can check the document with nothing else: the
block's bytes lead to its digest, digest and fields to its hash, and so on, header by header, to the head.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from virta.console.chain_reading import headers_from
from virta.console.values import encode_column
from virta.errors import Corrupt, UsageError
from virta.storage import block as block_format
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE

KIND = "virta proof 1"
_MOST_HEADERS = 200_000


def make_proof(topic: Any, partition: int, offset: int) -> dict[str, Any]:
    """The proof of a row, as JSON values."""
    place = topic.partition(partition)
    block = place.fetch(place.token(offset))
    before, headers = headers_from(place, offset, _MOST_HEADERS)
    newest = chain.unpack_header(headers, len(headers) - HEADER_SIZE)
    return {
        "kind": KIND,
        "topic": topic.name,
        "topic_id": topic.id,
        "partition": partition,
        "offset": offset,
        "head": newest.hash.hex(),
        "previous": before.hex(),
        "schema": _text(bytes(block_format.schema_message(block.to_arrow().schema))),
        "block": _text(bytes(block.bytes)),
        "headers": _text(headers),
    }


def check_proof(document: dict[str, Any]) -> dict[str, Any]:
    """What the proof shows: the row and the head it leads to. Raises Corrupt where it does not hold."""
    if document.get("kind") != KIND:
        raise UsageError(f"this is not a proof of the kind {KIND!r}")
    headers, block = _bytes(document["headers"]), _bytes(document["block"])
    previous, head = bytes.fromhex(document["previous"]), bytes.fromhex(document["head"])
    count, rest = divmod(len(headers), HEADER_SIZE)
    if rest or not count or chain.check_links(headers, previous) != count:
        raise Corrupt("the headers of the proof do not follow from one another")
    if headers[-32:] != head:
        raise Corrupt("the headers of the proof do not lead to its head")
    first = chain.unpack_header(headers)
    block_format.check_against(block, first)
    row = _row(block, _bytes(document["schema"]), int(document["offset"]))
    return {
        "topic": document["topic"],
        "partition": document["partition"],
        "offset": document["offset"],
        "hash": first.hash.hex(),
        "head": document["head"],
        "blocks": count,
        "row": row,
    }


def _row(block: bytes, schema: bytes, offset: int) -> dict[str, Any]:
    try:
        batch = next(iter(pa.ipc.open_stream(schema + block)))
    except (pa.ArrowInvalid, StopIteration) as error:
        raise Corrupt("the block of the proof cannot be read") from error
    offsets = batch.column(0).to_pylist()
    if offset not in offsets:
        raise Corrupt(f"the block of the proof does not hold offset {offset}")
    row = batch.slice(offsets.index(offset), 1)
    return {name: encode_column(row.column(at))[0] for at, name in enumerate(row.schema.names)}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError as error:
        raise Corrupt("the proof is not whole") from error
