"""An inbox with mail in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
import time_machine

from tests.conftest import Call

Post = Callable[[str], str]
Clock = time_machine.Traveller


@pytest.fixture
def post(call: Call, team: None, project: str) -> Post:
    """Send bob a message with this subject; its id."""

    def post(subject: str) -> str:
        sent = call(
            "message_create",
            project_root=project,
            from_agent_id="ana",
            subject=subject,
            body=f"body of {subject}",
            target={"strategy": "direct", "agent_id": "bob"},
        )
        message_id: str = sent["message_id"]
        return message_id

    return post


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Noon, standing still until the test moves it."""
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        yield clock
