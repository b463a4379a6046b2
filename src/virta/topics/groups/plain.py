"""Groups as plain values, for answers in JSON, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from virta.requests import parse_token
from virta.topics.groups.model import GroupDescription, Lag, MemberDescription, PartitionStanding


def to_plain(found: GroupDescription) -> dict[str, Any]:
    plain = dataclasses.asdict(found)
    for part, standing in zip(plain["partitions"], found.partitions, strict=True):
        part["token"] = None if standing.token is None else str(standing.token)
    return plain


def from_plain(plain: dict[str, Any]) -> GroupDescription:
    return GroupDescription(
        group=plain["group"],
        topic=plain["topic"],
        epoch=plain["epoch"],
        members=tuple(
            MemberDescription(
                member=each["member"],
                instance=each["instance"],
                partitions=tuple(each["partitions"]),
                expires_in_seconds=each["expires_in_seconds"],
            )
            for each in plain["members"]
        ),
        partitions=tuple(
            PartitionStanding(
                partition=each["partition"],
                offset=each["offset"],
                token=None if each["token"] is None else parse_token(each["token"]),
                next_offset=each["next_offset"],
                lag=Lag(rows=each["lag"]["rows"], seconds=each["lag"]["seconds"]),
                owner=each["owner"],
                epoch=each["epoch"],
            )
            for each in plain["partitions"]
        ),
    )
