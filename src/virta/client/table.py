"""An update topic at a broker as a table: the broker finds the newest row of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from virta.client.partition import WINDOW_BYTES
from virta.client.rows import RowStream
from virta.errors import UsageError
from virta.metadata.schemas import unify
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.requests import parse_moment
from virta.topics.table import Table
from virta.types import Token


class RemoteTable(Table):
    """The current rows of an update topic, not read yet."""

    def snapshot(self) -> Any:
        """Every reading is of the moment at which it begins, at the broker."""
        return SimpleNamespace(schema=self._whole_schema())

    def _read(self, snapshot: Any, *, leading: bool = False) -> Iterator[pa.RecordBatch]:
        schema, wish = snapshot.schema, self._wish
        names = list(schema.names if wish.columns is None else wish.columns)
        if leading:
            names = [*schema.names[:2], *(name for name in names if name not in schema.names[:2])]
        header = self._header()
        header.columns.extend(names)
        wanted = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
        for batch in RowStream(self._wire, FrameType.SELECT, header):
            same = batch.schema.equals(wanted, check_metadata=True)
            yield batch if same else unify(batch, wanted)

    def count(self) -> int:
        """How many rows: from the index alone where nothing has to be looked into."""
        header = self._header()
        header.count = True
        return int(self._wire.call(FrameType.SELECT, header)[1].rows)

    @property
    def _wire(self) -> Any:
        return self._partitions[0].wire  # type: ignore[attr-defined]

    def _header(self) -> Any:
        identity, wish = self._partitions[0].identity, self._wish
        header = message("Select")(
            topic=identity.topic, topic_id=identity.topic_id, table=True, credit=WINDOW_BYTES
        )
        if wish.filter is not None:
            header.filter = str(wish.filter)
        if wish.limit is not None:
            header.limit = wish.limit
        if wish.as_of is not None:
            header.as_of = json.dumps(self._as_of(wish.as_of)).encode()
        return header

    def _as_of(self, wished: Any) -> dict[str, Any]:
        """The offset of each partition, or a moment."""
        if isinstance(wished, Token):
            self._partitions[wished.partition].check_token(wished)
            return {"offsets": {str(wished.partition): wished.offset}}
        if isinstance(wished, bool):
            raise UsageError("as_of takes an offset, a token or a moment")
        if isinstance(wished, int):
            if len(self._partitions) != 1:
                raise UsageError(
                    f"an offset is a matter of one partition, and topic {self._name!r} has "
                    f"{len(self._partitions)}",
                    hint="give one for each, as topic.next_offsets does, or a time",
                )
            stored = self._partitions[0]
            return {"offsets": {"0": wished if wished >= 0 else max(0, stored.next_offset + wished)}}
        if isinstance(wished, Mapping):
            return {"offsets": {str(number): offset for number, offset in wished.items()}}
        return {"until_us": parse_moment(wished, self._now_us())}
