"""Calls of okto-nexus's clients that need no published package to be understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Call

Submitted = Callable[..., str]
CORE = {"strategy": "capability", "capability": "python"}


@pytest.fixture
def submitted(call: Call, team: None, project: str) -> Submitted:
    """Ana creates a handoff, and bob completes it; its id."""

    def create(**more: Any) -> str:
        given = {"project_root": project, "from_agent_id": "ana", "target": CORE, "visibility": "public", **more}
        made: str = call("handoff_create", acceptance_criteria=["Tests pass."], **given)["handoff_id"]
        call("handoff_claim", project_root=project, handoff_id=made, agent_id="bob")
        done = call("handoff_complete", project_root=project, handoff_id=made, agent_id="bob", result="42")
        assert done["status"] == "SUBMITTED"
        return made

    return create


def test_what_has_criteria_waits_for_the_verdict_of_its_creator(submitted: Submitted, call: Call, project: str) -> None:
    verify = {"project_root": project, "handoff_id": submitted(), "agent_id": "ana"}
    failed = call("handoff_verify", **verify, verdict="fail", feedback="One fails.")
    assert failed["status"] == "CLAIMED" and failed["claim_epoch"] == 2
    assert failed["verification_feedback"] == "One fails." and failed["notified"] == ["bob"]
    call("handoff_complete", **{**verify, "agent_id": "bob"}, claim_epoch=2, result="43")
    passed = call("handoff_verify", **verify, verdict="pass", claim_epoch=2)
    assert (passed["status"], passed["verified_by"], passed["result"]) == ("COMPLETED", "ana", "43")


def test_a_capability_verifies(submitted: Submitted, call: Call, refused: Call, project: str) -> None:
    call("agent_register", agent_id="vera", capabilities=["review"])
    made = submitted(verify_by={"kind": "capability", "capability": "review"})
    verify = {"project_root": project, "handoff_id": made, "verdict": "pass"}
    assert call("handoff_get", project_root=project, handoff_id=made, agent_id="ana")["verifier"] == {
        "capability": "review"
    }
    (notice,) = call("inbox_pull", agent_id="vera")["messages"]
    assert "waits for your verdict" in notice["subject"]
    call("agent_register", agent_id="bob", capabilities=["python", "review"])
    for other in ("ana", "bob"):  # its creator, and who did it
        assert refused("handoff_verify", **verify, agent_id=other)["code"] == "NOT_OWNER"
    assert call("handoff_verify", **verify, agent_id="vera")["status"] == "COMPLETED"


def test_a_verdict_that_says_both_or_nothing_is_refused(submitted: Submitted, refused: Call, project: str) -> None:
    verify = {"project_root": project, "handoff_id": submitted(), "agent_id": "ana"}
    for wrong in (
        {"verdict": "pass", "feedback": "Good."},
        {"verdict": "PASS"},
        {},
        {"verdict": "fail", "feedback": "x" * 2001},
    ):
        assert refused("handoff_verify", **verify, **wrong)["code"] == "VALIDATION_ERROR"
    assert refused("handoff_verify", **verify, verdict="pass", claim_epoch=7)["code"] == "STALE_CLAIM"


def test_a_fail_needs_no_words(submitted: Submitted, call: Call, project: str) -> None:
    failed = call("handoff_verify", project_root=project, handoff_id=submitted(), agent_id="ana", verdict="fail")
    assert failed["status"] == "CLAIMED" and "verification_feedback" not in failed
