"""What reading by message became."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Call


@pytest.mark.parametrize("arguments", [{}, {"message_id": "m"}, {"cursor": -1, "anything": [None]}, {"a": "\x00"}])
@pytest.mark.parametrize(
    ("shim", "replacements"),
    [
        ("message_get", ["inbox_pull", "inbox_peek", "inbox_history", "event_get"]),
        ("message_list", ["inbox_peek", "inbox_history", "event_get"]),
        ("message_wait", ["inbox_count", "inbox_pull", "event_wait"]),
    ],
)
def test_it_answers_every_old_call_with_what_replaces_it(
    refused: Call, shim: str, replacements: list[str], arguments: dict[str, Any]
) -> None:
    error = refused(shim, **arguments)

    assert error["code"] == "MIGRATED"
    assert error["details"] == {"replacements": replacements, "removed_in": "S3"}
    assert all(tool in error["message"] for tool in replacements)


def test_it_names_calls_that_belong_together_in_their_order(refused: Call) -> None:
    assert "Call inbox_count, then inbox_pull, or event_wait instead." in refused("message_wait")["message"]
