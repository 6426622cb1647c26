"""An agent's signal file changes when something new waits for it, and only where somebody made the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from nexus.hooks import signal_files
from tests.conftest import Call

HOME = settings.NEXUS.home


@pytest.fixture
def armed(committed: None, call: Call) -> int:
    """A registered agent `builder` with a signal file; its time."""
    call("agent_register", agent_id="builder", capabilities=["ocr"])
    signal_files.arm(HOME, "builder")
    return stamp()


def stamp() -> int:
    found = signal_files.stamp(HOME, "builder")
    assert found is not None
    return found


def send(call: Call, project: str, to: str, **more: Any) -> None:
    target = {"strategy": "direct", "agent_id": to}
    call("message_create", project_root=project, from_agent_id="x", subject="s", body="b", target=target, **more)


def test_it_keeps_its_time_when_another_asks_for_it(armed: int) -> None:
    signal_files.arm(HOME, "builder")
    assert stamp() == armed


def test_it_changes_with_mail_for_its_agent_alone(call: Call, project: str, armed: int) -> None:
    call("agent_register", agent_id="other")
    send(call, project, "other")
    assert stamp() == armed
    assert signal_files.stamp(HOME, "other") is None
    send(call, project, "builder")
    assert stamp() != armed


def test_it_changes_with_a_handoff_that_the_agent_may_claim(call: Call, project: str, armed: int) -> None:
    offer = {"project_root": project, "from_agent_id": "x", "visibility": "eligible"}
    call("handoff_create", target={"strategy": "capability", "capability": "translate"}, **offer)
    assert stamp() == armed
    call("handoff_create", target={"strategy": "capability", "capability": "ocr"}, **offer)
    assert stamp() != armed


def test_it_changes_with_the_outcome_of_a_handoff(call: Call, project: str, armed: int) -> None:
    offer = {"project_root": project, "from_agent_id": "builder", "visibility": "public"}
    created = call("handoff_create", **offer, target={"strategy": "role", "role": "tester"})
    call("agent_register", agent_id="tester", role="tester")
    claim = {"project_root": project, "handoff_id": created["handoff_id"], "agent_id": "tester"}
    call("handoff_claim", **claim)
    before = stamp()
    call("handoff_complete", **claim)
    assert stamp() != before


@pytest.mark.parametrize("agent_id", ["../../etc/passwd", "a/b", "Ω\n\t", "x" * 255])
def test_it_has_a_safe_name_whatever_the_agent_is_called(tmp_path: Path, agent_id: str) -> None:
    file = signal_files.arm(tmp_path, agent_id)
    assert file.parent == tmp_path / "signals"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
