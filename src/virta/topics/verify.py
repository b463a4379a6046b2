"""Verifying a topic: each partition from its files, and the heads that were noted of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from virta.errors import UsageError
from virta.memory.partition import Partition
from virta.storage.verify import Progress, combine, parse_head, verify_partition
from virta.topics.schema import SchemaSource
from virta.types import VerifyReport

# One head, the path of a file of heads, or the head of each partition as `topic.heads` gives them.
Against = str | Path | Mapping[int, str] | None


def verify_topic(
    partitions: Sequence[Partition],
    schemas: SchemaSource,
    *,
    against: Against = None,
    progress: Callable[[Progress], None] | None = None,
) -> VerifyReport:
    """Check every byte of a topic. Progress is told over all partitions together."""
    heads = heads_by_partition(against, len(partitions))
    told = _Told(progress, sum(partition.stats().bytes for partition in partitions))
    reports = []
    for number, partition in enumerate(partitions):
        partition.dump()  # rows that are only in memory have no bytes to check
        reports.append(
            verify_partition(
                partition.files,
                partition.paths,
                partition.identity,
                schemas.version,
                heads=heads.get(number, ()),
                progress=told if progress is not None else None,
            )
        )
        told.finish(reports[-1])
    return combine(reports)


def heads_by_partition(against: Against, partitions: int) -> Mapping[int, list[str]]:
    """The heads that each partition's chain must hold."""
    if against is None:
        return {}
    if isinstance(against, Mapping):
        return {_number(number, partitions): _listed(head) for number, head in against.items()}
    if _is_head(str(against)):
        if partitions != 1:
            raise UsageError(
                f"a head belongs to one partition, and the topic has {partitions}",
                hint="give {partition: head}, as topic.heads does",
            )
        return {0: [str(against)]}
    return _read_heads(Path(against), partitions)


def _listed(head: Any) -> list[str]:
    return [head] if isinstance(head, str) else list(head)


def _is_head(text: str) -> bool:
    try:
        parse_head(text)
    except UsageError:
        return False
    return True


def _read_heads(path: Path, partitions: int) -> Mapping[int, list[str]]:
    """A file of heads: JSON `{"0": "3f9c…"}`, or lines of `[partition] head`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(
            f"{str(path)!r} is neither a head nor a file of heads",
            hint="a head has 64 hexadecimal digits, as in topic.head",
        ) from error
    pairs = _json_pairs(text) if text.lstrip().startswith("{") else _line_pairs(text)
    found: dict[int, list[str]] = {}
    for number, head in pairs:
        found.setdefault(_number(number, partitions), []).append(head)
    return found


def _json_pairs(text: str) -> Iterable[tuple[str, str]]:
    try:
        document = json.loads(text)
        return [(number, str(head)) for number, head in document.get("heads", document).items()]
    except (ValueError, AttributeError) as error:
        raise UsageError("the file of heads is not a JSON object of partition and head") from error


def _line_pairs(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            yield (words[0], words[1]) if len(words) > 1 else ("0", words[0])


def _number(text: int | str, partitions: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < partitions:
        raise UsageError(f"a head is given for partition {text}, which the topic does not have")
    return number


class _Told:
    """Progress of one partition after the other, told as that of the topic."""

    def __init__(self, progress: Callable[[Progress], None] | None, total_bytes: int) -> None:
        self._progress = progress
        self._total = total_bytes
        self._blocks = 0
        self._bytes = 0

    def __call__(self, step: Progress) -> None:
        if self._progress is not None:
            done = self._bytes + step.bytes
            whole = dataclasses.replace(
                step, blocks=self._blocks + step.blocks, bytes=done, total_bytes=max(self._total, done)
            )
            self._progress(whole)

    def finish(self, report: VerifyReport) -> None:
        self._blocks += report.blocks
        self._bytes += report.bytes
