"""Many topics of many segments: opening the log and naming them, in a fresh process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from bench.embedded import child
from bench.harness import MEBIBYTES, MILLISECONDS, Bench, Contest, Sample, Target, expect_rows
from bench.rows import batches

SEGMENT_BYTES = 64 * 1024  # every batch of a thousand rows fills one


def many_topics(bench: Bench) -> None:
    """500 topics of 100 segments each; in a quick run 50 of 20."""
    try:
        from virta import open as open_log  # heavy, and perhaps not there
    except ImportError as error:
        print(f"\ntopics: not here ({error})")
        return
    topics, segments = (50, 20) if bench.quick else (500, 100)
    with bench.scratch() as place:
        with open_log(place) as log:
            _make(log, topics, segments)
        bench.compete(
            Contest(
                workload="topics",
                title=f"{topics} topics of {segments} segments: open and list",
                conditions="a fresh process; time and memory above the imports; the page cache is warm",
                runners={"virta": functools.partial(_listing, place, topics)},
                targets=[
                    Target(metric=MILLISECONDS, limit=100),
                    Target(metric=MEBIBYTES, limit=40),
                ],
            )
        )


def _make(log: Any, topics: int, segments: int) -> None:
    batch = batches(1)[0].arrow()
    for number in range(topics):
        topic = log.create_topic(f"topic-{number:04d}", segment_bytes=SEGMENT_BYTES)
        for _ in range(segments):
            topic.append(batch)
        found = topic.stats().segments
        if found < segments:
            raise RuntimeError(f"wanted {segments} segments of a topic and made {found}")


def _listing(place: Path, topics: int) -> Sample:
    found = child.answer(child.start("list", str(place)))
    expect_rows("the list of topics", topics, found["topics"])
    return {MILLISECONDS: found["seconds"] * 1000, MEBIBYTES: found["bytes"] / 2**20}
