"""Arguments of verbs as a client of ours would never send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.independent import Client, Refused
from tests.served import Served
from virta.broker.administration import VERBS


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Served(tmp_path / "events") as broker:
        client = Client(broker.port)
        client.verb("create_topic", "orders")
        yield client
        client.close()
        assert broker.server.tally.errors["unexpected"] == 0


@pytest.mark.parametrize("value", [5, "x", {"a": 1}], ids=json.dumps)
def test_arguments_of_another_kind(client: Client, value: Any) -> None:
    for name, verb in VERBS.items():
        for argument in [*verb.takes, "nothing"]:
            try:
                client.verb(name, "orders" if verb.takes else "", **{argument: value})
            except Refused as error:
                assert error.number < 64 and error.code != "internal", (name, argument)


def test_a_broker_reads_no_file_that_a_client_names(client: Client, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0 abcdef")
    with pytest.raises(Refused, match="of another kind") as caught:
        client.verb("verify", "orders", against=str(secret))
    assert "abcdef" not in str(caught.value)
