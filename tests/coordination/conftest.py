"""A session, and the clock that it ages by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from time_machine import Traveller

from tests.conftest import Call


@pytest.fixture
def clock() -> Iterator[Traveller]:
    """Time that moves only when told to."""
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False) as traveller:
        yield traveller


@pytest.fixture
def session(clock: Traveller, call: Call, ann: str, workspace: str) -> dict[str, Any]:
    """What ann was answered when she opened it."""
    return call("session_open", agent_id=ann, workspace_id=workspace)
