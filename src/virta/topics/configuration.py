"""Options of a topic, as people write them, into its configuration: checked, with every name known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from virta.errors import UsageError
from virta.metadata.schemas import suggest
from virta.requests import parse_duration, parse_size
from virta.types import Compression, Durability, Kind, TopicConfig

# A segment's positions are 32 bits in units of 8 bytes; a block may still reach beyond the mark.
# Every partition that is open takes some eight descriptors and two watches.
PARTITIONS = 1000
SEGMENT_BYTES = (64 * 1024, 16 * 1024**3)


def _choice(kind: type[StrEnum]) -> Callable[[str, Any], Any]:
    def convert(option: str, value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(repr(str(member)) for member in kind)
            raise UsageError(f"{option} is one of {choices}, not {value!r}") from None

    return convert


def _size(option: str, value: Any) -> int | None:
    if value is None:
        return None
    size = parse_size(value)
    if size <= 0:
        raise UsageError(f"{option} is more than nothing")
    return size


def _segment_size(option: str, value: Any) -> int:
    size = parse_size(value)
    least, most = SEGMENT_BYTES
    if not least <= size <= most:
        raise UsageError(f"{option} lies between 64 KiB and 16 GiB, and {value!r} does not")
    return size


def _age(option: str, value: Any) -> float | None:
    if value is None:
        return None
    age = parse_duration(value)
    if age <= 0:
        raise UsageError(f"{option} is more than nothing")
    return age


def _count(option: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{option} is a whole number above zero, not {value!r}")
    return value


def _truth(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{option} is True or False, not {value!r}")
    return value


def _ratio(option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise UsageError(f"{option} is a number above 0 and up to 1, not {value!r}")
    return float(value)


# option → (field of TopicConfig, how it is read)
_OPTIONS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "durability": ("durability", _choice(Durability)),
    "compression": ("compression", _choice(Compression)),
    "segment_bytes": ("segment_bytes", _segment_size),
    "retention_age": ("retention_age_seconds", _age),
    "retention_bytes": ("retention_bytes", _size),
    "retention_rows": ("retention_rows", _count),
    "join_blocks": ("join_blocks", _truth),
    "compaction_ratio": ("compaction_ratio", _ratio),
    "tombstone_age": ("tombstone_age_seconds", _age),
    "row_limit_bytes": ("row_limit_bytes", _size),
    "row_deletion": ("row_deletion", _truth),
    "topic_deletion": ("topic_deletion", _truth),
    "public_write": ("public_write", _truth),
}


def option_names() -> list[str]:
    return list(_OPTIONS)


def changed_config(config: TopicConfig, options: Mapping[str, Any]) -> TopicConfig:
    """The configuration with these options changed."""
    changes = {}
    for option, value in options.items():
        if option not in _OPTIONS:
            raise UsageError(f"a topic has no option {option!r}", hint=suggest(option, _OPTIONS, "options"))
        field, convert = _OPTIONS[option]
        changes[field] = convert(option, value)
    return dataclasses.replace(config, **changes)


def new_config(*, kind: Any, keys: Any, partitions: Any, options: Mapping[str, Any]) -> TopicConfig:
    """The configuration of a topic that is about to be made."""
    chosen = _choice(Kind)("kind", kind)
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 < partitions <= PARTITIONS:
        raise UsageError(f"partitions is a whole number from 1 to {PARTITIONS}, not {partitions!r}")
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    if chosen is Kind.UPDATE and not names:
        raise UsageError(
            "a topic of kind 'update' needs keys: the newest row of each key is the truth",
            hint="name the columns that tell rows apart: keys=['id']",
        )
    return changed_config(TopicConfig(kind=chosen, keys=names, partitions=partitions), options)
