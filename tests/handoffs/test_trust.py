"""Who proves to be who, on every sensitive verb of mail and work."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.models import Event
from tests.conftest import Call
from tests.coordination.test_trust import SENSITIVE

VERBS = sorted(SENSITIVE)
Session = dict[str, str]  # its id and its secret
Acts = dict[str, dict[str, Any]]


@pytest.fixture
def bob(call: Call, team: None, workspace: str) -> Session:
    """Bob's open session."""
    return credentials(call, "bob", workspace)


@pytest.fixture
def anas(call: Call, team: None, workspace: str) -> Session:
    """Ana's open session."""
    return credentials(call, "ana", workspace)


def credentials(call: Call, agent_id: str, workspace: str) -> Session:
    opened = call("session_open", agent_id=agent_id, workspace_id=workspace)
    return {name: opened[name] for name in ("session_id", "session_secret")}


def named(verb: str, proof: Session) -> Session:
    """message_create calls its session by another name."""
    names = {"session_id": "from_session_id"} if verb == "message_create" else {}
    return {names.get(name, name): value for name, value in proof.items()}


def wrong(bob: Session, anas: Session) -> list[tuple[Session, str]]:
    """Credentials with which bob does not act, and how they are refused."""
    return [
        ({**bob, "session_secret": anas["session_secret"]}, "NOT_OWNER"),
        (anas, "NOT_OWNER"),
        ({**anas, "session_id": "ses_none"}, "NOT_FOUND"),
    ]


@pytest.fixture
def acts(call: Call, team: None, project: str) -> Acts:
    """For each verb, arguments with which bob succeeds."""
    to_bob = {"strategy": "direct", "agent_id": "bob"}

    def letter() -> str:
        sent = call("message_create", project_root=project, from_agent_id="ana", subject="s", body="b", target=to_bob)
        message_id: str = sent["message_id"]
        return message_id

    def work(creator: str = "ana", *, claimed: bool = False, **more: Any) -> dict[str, Any]:
        offer = {"from_agent_id": creator, "target": to_bob, "visibility": "public", **more}
        made = call("handoff_create", project_root=project, **offer)
        reference = {"project_root": project, "handoff_id": made["handoff_id"], "agent_id": "bob"}
        if claimed:
            call("handoff_claim", **reference)
        return reference

    def submitted() -> dict[str, Any]:
        """What cleo did, for bob to look at."""
        reference = work(target={"strategy": "direct", "agent_id": "cleo"}, verifier={"agent_id": "bob"})
        for verb in ("handoff_claim", "handoff_complete"):
            call(verb, **reference | {"agent_id": "cleo"})
        return reference

    held = letter()
    call("inbox_pull", agent_id="bob")
    return {
        "message_create": {"project_root": project, "from_agent_id": "bob", "subject": "s", "body": "b"},
        "inbox_pull": {"agent_id": "bob"},
        "inbox_ack": {"agent_id": "bob", "message_ids": letter()},
        "inbox_extend": {"agent_id": "bob", "message_ids": held, "extend_seconds": 60},
        "inbox_peek": {"agent_id": "bob"},
        "inbox_history": {"agent_id": "bob"},
        "handoff_create": {"project_root": project, "from_agent_id": "bob", "target": to_bob, "visibility": "public"},
        "handoff_claim": work(),
        "handoff_complete": work(claimed=True),
        "handoff_reject": work(claimed=True),
        "handoff_cancel": work("bob"),
        "handoff_start": work(claimed=True),
        "handoff_block": {**work(claimed=True), "reason": "no key"},
        "handoff_extend": work(claimed=True),
        "handoff_accept": submitted(),
        "handoff_return": {**submitted(), "reasons": "no tests"},
        "handoff_verify": {**submitted(), "verdict": "pass"},
    }


@pytest.mark.parametrize("verb", VERBS)
class TestOpen:
    def test_it_asks_for_nothing_and_ignores_nothing_that_is_wrong(
        self, call: Call, refused: Call, acts: Acts, bob: Session, anas: Session, verb: str
    ) -> None:
        log = Event.objects.count()
        for proof, code in wrong(bob, anas):
            assert refused(verb, **acts[verb], **named(verb, proof))["code"] == code
        alone = refused(verb, **acts[verb], session_secret=bob["session_secret"])
        assert alone["code"] == "VALIDATION_ERROR"
        assert Event.objects.count() == log

        call(verb, **acts[verb])


@pytest.mark.parametrize("verb", VERBS)
class TestStrict:
    def test_it_takes_the_right_credentials_and_no_others(
        self, call: Call, refused: Call, acts: Acts, bob: Session, anas: Session, configure: Call, verb: str
    ) -> None:
        configure(trust_mode="strict")
        for part in ({}, {"session_id": bob["session_id"]}, {"session_secret": bob["session_secret"]}):
            error = refused(verb, **acts[verb], **named(verb, part))
            assert (error["code"], "session_open" in error["message"]) == ("VALIDATION_ERROR", True)
        for proof, code in wrong(bob, anas):
            assert refused(verb, **acts[verb], **named(verb, proof))["code"] == code

        call(verb, **acts[verb], **named(verb, bob))


def test_it_looks_at_the_credentials_before_the_entity(call: Call, refused: Call, bob: Session, project: str) -> None:
    error = refused(
        "handoff_claim",
        project_root=project,
        handoff_id="hnd_x",
        agent_id="bob",
        session_id=bob["session_id"],
        session_secret="guess",
    )

    assert error["code"] == "NOT_OWNER"
