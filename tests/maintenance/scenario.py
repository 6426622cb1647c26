"""A store with something of everything, written by the services: `python -m tests.maintenance.scenario HOME`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from nexus.core.database.store import store, write

MESSAGES = 40


def main(home: Path) -> None:
    os.environ.update(NEXUS_HOME=str(home), DJANGO_SETTINGS_MODULE="nexus_site.settings")
    os.environ.pop("NEXUS_DATABASE_URL", None)  # a file, whatever the suite runs on
    import django

    django.setup()
    from coordination.toolset import run
    from handoffs.models import CheckRun, CheckState
    from nexus.core.clock import now
    from nexus.core.operations import dispatch
    from nexus.core.operations.caller import Caller
    from nexus.planning.models import PlanComment, Task, TaskCheckRun
    from nexus.planning.toolset import PLANNING
    from nexus.reservations.toolset import FILES
    from nexus.topics.toolset import TOPICS

    def call(name: str, /, **arguments: Any) -> dict[str, Any]:
        envelope = run(Caller(transport="test"), name, arguments)
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    def in_topics(name: str, /, **arguments: Any) -> dict[str, Any]:
        body = dispatch.run(TOPICS, Caller(transport="test"), name, arguments)
        assert "error" not in body, body
        return body

    store().prepare()
    project, other = f"{home}-project", f"{home}-other"
    for root in (project, other):
        Path(root).mkdir()
    for agent_id in ("ana", "bob", "cleo", "stranger"):
        call("agent_register", agent_id=agent_id, capabilities=["ocr"], metadata={"é": [1, 2.5, None]})
    workspace_id = call("workspace_resolve", project_root=project, display_name="Zoë's")["workspace_id"]
    other_id = call("workspace_resolve", project_root=other)["workspace_id"]
    sessions = [call("session_open", agent_id=agent_id, workspace_id=workspace_id) for agent_id in ("ana", "bob")]
    call("session_open", agent_id="stranger", workspace_id=other_id)
    call("session_close", session_id=sessions[1]["session_id"])
    channel_id = call("channel_list", project_root=project)["channels"][0]["channel_id"]
    parent = None
    for number in range(MESSAGES):
        message = call(
            "message_create",
            project_root=project,
            from_agent_id="ana",
            subject=f"Message {number}",
            body="¶ line\u2028separator\n" + "text " * 100,
            channel_id=channel_id,
            target={"strategy": "direct", "agent_id": ("bob", "cleo")[number % 2]},
            **({"parent_message_id": parent} if parent else {}),
        )
        parent = message["message_id"]
        if number % 4 == 0:  # ids of this workspace's events have gaps then
            call("message_create", project_root=other, from_agent_id="stranger", subject="Elsewhere", body="Hello.")
    pulled = call("inbox_pull", agent_id="bob", limit=10)["messages"]
    call("inbox_ack", agent_id="bob", message_ids=[message["message_id"] for message in pulled[:4]])
    planned = {"project_root": project}
    for name, given in (
        ("plan_start", {"topic": "Reading", "issues": ["How?"], "research_summary": ""}),
        ("task_add", {"title": "Read it", "context": "All of it.", "owner": "ana"}),
        ("task_close", {}),
        ("plan_start", {"topic": "Writing", "issues": ["What?"], "research_summary": ""}),
        ("plan_decide", {"issue_id": 1, "summary": "A letter."}),
        ("task_add", {"title": "Write it", "context": "Once.", "goal": "A letter"}),
    ):
        assert dispatch.run(PLANNING, Caller(transport="test"), name, {**planned, **given})["ok"], name
    made: list[str] = []
    for outcome in ("open", "claimed", "completed", "rejected", "cancelled", "returned"):
        handoff_id = call(
            "handoff_create",
            project_root=project,
            from_agent_id="ana",
            target={"strategy": "direct", "agent_id": "bob"},
            visibility="public",
            payload={"then": outcome},
            task_id=1 if outcome == "open" else None,
            verifier="creator" if outcome == "returned" else None,
            depends_on=made[:1] if outcome == "cancelled" else None,
        )["handoff_id"]
        made.append(handoff_id)
        given = {"project_root": project, "handoff_id": handoff_id}
        if outcome in ("claimed", "completed", "returned"):
            call("handoff_claim", **given, agent_id="bob")
        if outcome in ("completed", "returned"):
            call("handoff_complete", **given, agent_id="bob", result="done")
        if outcome == "rejected":
            call("handoff_reject", **given, agent_id="bob", reason="no")
        if outcome == "returned":
            call("handoff_return", **given, agent_id="ana", reasons="no tests")
        if outcome == "cancelled":
            call("handoff_cancel", **given, agent_id="ana")
    with write():
        passed = {"state": CheckState.PASSED, "due_at": now(), "created_at": now(), "ended_at": now()}
        CheckRun.objects.create(handoff_id=made[2], claim_epoch=1, **passed)
        PlanComment.objects.create(
            comment_id="comment_1", workspace_id=Task.objects.latest("pk").workspace_id, plan_number=1, text="Why?",
            author="olga", written_at=now(), sent_at=now(), recipient="ana",
        )  # fmt: skip
        TaskCheckRun.objects.create(task=Task.objects.latest("pk"), claim_epoch=1, **passed)
    for name in ("open", "closed"):
        topic_id = in_topics("topic_create", name=name)["topic_id"]
        in_topics("topic_join", topic_id=topic_id, agent_name="ana")
        outbox = [{"content_markdown": f"Word {number}"} for number in range(2)]
        in_topics("sync", topic_id=topic_id, outbox=outbox, wait_seconds=0)
    in_topics("topic_close", topic_id=topic_id)
    for paths in (["src/", "*.lock"], ["docs/"]):
        reserved = {"project_root": project, "agent_id": "ana", "paths": paths, "reason": "Reading"}
        assert dispatch.run(FILES, Caller(transport="test"), "files_reserve", reserved)["ok"]
    dispatch.run(FILES, Caller(transport="test"), "files_release", {**planned, "agent_id": "ana", "paths": ["docs/"]})
    call("artifact_put", project_root=project, artifact_type="json", content='{"a": 1}', name="inline")
    call("artifact_put", project_root=project, artifact_type="file", path="notes.md", metadata={"by": "ana"})
    _fill_the_pool(project)


def _fill_the_pool(project: str) -> None:
    """An agent with a child; of its turns one is done and one is being taken, and the child's waits."""
    from nexus.control.agents import pool, turns
    from nexus.control.models import TurnStatus
    from nexus.control.permissions.members import Actor

    ops = Actor("ops")
    for agent_id, parent in (("planner", None), ("helper", "planner")):
        order = pool.Order(
            agent_id=agent_id,
            preset="trusted",
            cwd=project,
            write_paths=None,
            disabled_tools=["run"],
            runner="rehearsal",
            parent_agent_id=parent,
        )
        pool.create(ops, order)
    done, taken, _ = (
        turns.send(ops, agent_id, content="Go on.", request_id=None, source="rpc")
        for agent_id in ("planner", "planner", "helper")
    )
    turns.claim(done.pk)
    turns.settle_turn(done, turns.Ended(TurnStatus.DONE, "I did.", iterations=1))
    turns.claim(taken.pk)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
