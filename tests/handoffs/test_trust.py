"""Who proves to be who, on every sensitive verb of mail and work."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.models import Event
from tests.conftest import Call
from tests.coordination.test_trust import SENSITIVE

VERBS = sorted(SENSITIVE)
SESSION_OF = {"message_create": "from_session_id"}


@pytest.fixture
def bob(call: Call, team: None, project: str) -> dict[str, Any]:
    """Bob's open session."""
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    session: dict[str, Any] = call("session_open", agent_id="bob", workspace_id=workspace)
    return session


@pytest.fixture
def acts(call: Call, bob: dict[str, Any], project: str) -> dict[str, dict[str, Any]]:
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
    @pytest.mark.parametrize("proves", [False, True])
    def test_it_asks_for_nothing_and_takes_what_is_right(
        self, call: Call, acts: dict[str, dict[str, Any]], bob: dict[str, Any], verb: str, proves: bool
    ) -> None:
        proof = {SESSION_OF.get(verb, "session_id"): bob["session_id"], "session_secret": bob["session_secret"]}

        call(verb, **acts[verb], **(proof if proves else {}))

    def test_it_ignores_no_wrong_credential(
        self, refused: Call, call: Call, acts: dict[str, dict[str, Any]], bob: dict[str, Any], verb: str
    ) -> None:
        session = SESSION_OF.get(verb, "session_id")
        anas = call("session_open", agent_id="ana", workspace_id=bob["workspace_id"])
        log = Event.objects.count()

        def code(**proof: str) -> str:
            found: str = refused(verb, **acts[verb], **proof)["code"]
            return found

        assert code(**{session: bob["session_id"], "session_secret": "guess"}) == "NOT_OWNER"
        assert code(**{session: anas["session_id"], "session_secret": anas["session_secret"]}) == "NOT_OWNER"
        assert code(**{session: "ses_x", "session_secret": "guess"}) == "NOT_FOUND"
        assert code(session_secret=bob["session_secret"]) == "VALIDATION_ERROR"
        assert Event.objects.count() == log


@pytest.mark.parametrize("verb", VERBS)
class TestStrict:
    def test_it_asks_for_session_and_secret(
        self, refused: Call, acts: dict[str, dict[str, Any]], bob: dict[str, Any], configure: Call, verb: str
    ) -> None:
        session = SESSION_OF.get(verb, "session_id")
        configure(trust_mode="strict")

        for proof in ({}, {session: bob["session_id"]}, {"session_secret": bob["session_secret"]}):
            error = refused(verb, **acts[verb], **proof)
            assert error["code"] == "VALIDATION_ERROR"
            assert "session_open" in error["message"]

    def test_it_takes_the_right_ones_and_no_others(
        self,
        call: Call,
        refused: Call,
        acts: dict[str, dict[str, Any]],
        bob: dict[str, Any],
        configure: Call,
        verb: str,
    ) -> None:
        session = SESSION_OF.get(verb, "session_id")
        configure(trust_mode="strict")

        wrong = {session: bob["session_id"], "session_secret": "guess"}
        assert refused(verb, **acts[verb], **wrong)["code"] == "NOT_OWNER"
        call(verb, **acts[verb], **{session: bob["session_id"], "session_secret": bob["session_secret"]})

    def test_it_takes_no_session_that_is_closed(
        self,
        call: Call,
        refused: Call,
        acts: dict[str, dict[str, Any]],
        bob: dict[str, Any],
        configure: Call,
        verb: str,
    ) -> None:
        call("session_close", session_id=bob["session_id"])
        configure(trust_mode="strict")

        proof = {SESSION_OF.get(verb, "session_id"): bob["session_id"], "session_secret": bob["session_secret"]}
        assert refused(verb, **acts[verb], **proof)["code"] == "NOT_OWNER"


def test_it_asks_for_no_credentials_where_nothing_sensitive_is_done(
    call: Call, team: None, project: str, configure: Call
) -> None:
    made = call(
        "handoff_create",
        project_root=project,
        from_agent_id="ana",
        target={"strategy": "direct", "agent_id": "bob"},
        visibility="public",
    )
    configure(trust_mode="strict")

    call("inbox_count", agent_id="bob")
    call("handoff_list_available", project_root=project, agent_id="bob")
    call("handoff_get", project_root=project, handoff_id=made["handoff_id"], agent_id="bob")


def test_it_looks_at_the_credentials_before_the_entity(
    call: Call, refused: Call, bob: dict[str, Any], project: str
) -> None:
    error = refused(
        "handoff_claim",
        project_root=project,
        handoff_id="hnd_x",
        agent_id="bob",
        session_id=bob["session_id"],
        session_secret="guess",
    )

    assert error["code"] == "NOT_OWNER"
