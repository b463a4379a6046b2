"""Keys of rows as they are typed: `id=7`, `region=eu,id=7`, or the value alone for a key of one column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from virta.errors import UsageError


def typed_keys(topic: Any, given: Sequence[str]) -> list[dict[str, Any]]:
    """Keys in the types of their columns. A key that commas or types make difficult is a JSON object."""
    names: tuple[str, ...] = topic.config.keys
    return [_key(topic, names, text) for text in given]


def _key(topic: Any, names: Sequence[str], text: str) -> dict[str, Any]:
    if text.startswith("{"):
        return _json_key(topic, names, text)
    if len(names) == 1:
        column, mark, value = text.partition("=")
        found = {names[0]: value if mark and column == names[0] else text}
        if mark and column != names[0] and column in topic.schema.names:
            raise _no_key(topic, names, text)
    else:
        found = {}
        for part in text.split(","):
            column, mark, value = part.partition("=")
            if not mark or column not in names:
                raise _no_key(topic, names, text)
            found[column] = value
    if set(found) != set(names):
        raise _no_key(topic, names, text)
    return {name: typed(value, topic.schema.field(name).type) for name, value in found.items()}


def _json_key(topic: Any, names: Sequence[str], text: str) -> dict[str, Any]:
    from virta.exchange.input import Builder  # Arrow is not for --help

    try:
        row = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not JSON: {error}") from error
    if set(row) != set(names):
        raise _no_key(topic, names, text)
    batch = Builder(topic.schema, "the key").from_rows([row], [1], 0).rows
    return dict(batch.to_pylist()[0])


def _no_key(topic: Any, names: Sequence[str], text: str) -> UsageError:
    said = ",".join(f"{name}=…" for name in names)
    return UsageError(f'"{text}" is not a key of topic "{topic.name}"', hint=said or "the topic has no keys")


def typed(text: str, kind: Any) -> Any:
    """A value of a column's type, from its text."""
    import pyarrow as pa  # not for --help

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return text.encode()
    try:
        return pa.array([text]).cast(kind)[0].as_py()
    except pa.ArrowException as error:
        raise UsageError(f'"{text}" is not of type {kind}') from error
