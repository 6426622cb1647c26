"""A team at work, made through the operations: what the pages are tested and pictured with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.acceptance.hub import START_SECONDS

TEAM = {
    "planner": ("planner", ["planning"]),
    "builder-1": ("worker", ["python", "tests"]),
    "builder-2": ("worker", ["python"]),
    "reviewer": ("reviewer", ["review"]),
    "archivist": ("observer", []),
}
REPORT = """The parser is split in two.

- `grammar.py` holds the rules
- `reader.py` walks the files

| file | lines |
|---|---|
| grammar.py | 120 |
| reader.py | 88 |

See [the notes](https://example.org/notes)."""


class Does(Protocol):
    """Calls an operation and gives its data."""

    def __call__(self, name: str, /, **arguments: Any) -> dict[str, Any]: ...


def play(do: Does, root: Path) -> dict[str, str]:
    """Register the team in a project, let it talk and work; the ids that tests want."""
    place = {"project_root": str(root)}
    workspace = do("workspace_resolve", **place, display_name="parser")["workspace_id"]
    for agent_id, (role, skills) in TEAM.items():
        do("agent_register", agent_id=agent_id, role=role, capabilities=skills)
        session = do("session_open", agent_id=agent_id, workspace_id=workspace)["session_id"]
        if agent_id == "archivist":
            do("session_close", session_id=session)
    channel = do("channel_create", **place, name="design")["channel"]["channel_id"]
    first = do(
        "message_create", **place, from_agent_id="planner", channel_id=channel,
        subject="Plan for the parser", body="We split **grammar** and reader. Questions to me.",
    )  # fmt: skip
    reply = do(
        "message_create", **place, from_agent_id="builder-1", target={"strategy": "direct", "agent_id": "planner"},
        subject="Re: Plan for the parser", body=REPORT, parent_message_id=first["message_id"], channel_id=channel,
    )  # fmt: skip
    do(
        "message_create", **place, from_agent_id="reviewer", target={"strategy": "role", "role": "translator"},
        subject="Is there a translator?", body="I need the German texts checked.",
    )  # fmt: skip
    do("message_create", **place, from_agent_id="planner", target={"strategy": "direct", "agent_id": "archivist"},
       subject="Keep the minutes", body="Please file what was decided.")  # fmt: skip
    do("inbox_pull", agent_id="builder-1")
    pulled = do("inbox_pull", agent_id="builder-2")
    do("inbox_ack", agent_id="builder-2", message_ids=[row["message_id"] for row in pulled["messages"]])
    offer = {**place, "from_agent_id": "planner", "visibility": "public"}
    python = {"strategy": "capability", "capability": "python"}
    opened = do("handoff_create", **offer, target=python, payload={"task": "write reader.py", "files": ["reader.py"]})
    claimed = do("handoff_create", **offer, target=python, payload="write grammar.py")
    done = do("handoff_create", **offer, target=python, payload="list the files")
    orphan = do("handoff_create", **offer, target={"strategy": "capability", "capability": "rust"}, payload="port it")
    for row, agent_id in ((claimed, "builder-1"), (done, "builder-2")):
        do("handoff_claim", **place, handoff_id=row["handoff_id"], agent_id=agent_id)
    do("handoff_complete", **place, handoff_id=done["handoff_id"], agent_id="builder-2", result="12 files")
    artifact = do(
        "artifact_put", **place, artifact_type="markdown", name="decisions.md", content="# Decisions\n\n1. Split"
    )
    do("artifact_put", **place, artifact_type="json", name="coverage.json", content='{"lines": 97}')
    return {
        "workspace": workspace,
        "message": first["message_id"],
        "reply": reply["message_id"],
        "open": opened["handoff_id"],
        "claimed": claimed["handoff_id"],
        "orphan": orphan["handoff_id"],
        "artifact": artifact["artifact_id"],
    }


def trouble(do: Does, root: Path) -> dict[str, str]:
    """Work of the team that is blocked, that waits for a person's word, and whose lease runs out; its ids."""
    place = {"project_root": str(root)}
    python = {"strategy": "capability", "capability": "python"}
    offer = {**place, "from_agent_id": "planner", "visibility": "public", "target": python}
    stuck = do("handoff_create", **offer, title="Read the oldest files", payload="all of 2019")["handoff_id"]
    checked = do("handoff_create", **offer, title="Measure the reader", verifier="operator")["handoff_id"]
    lapsing = do("handoff_create", **offer, title="Tidy the examples")["handoff_id"]
    for handoff_id, seconds in ((stuck, 3600), (checked, 3600), (lapsing, 10)):
        do("handoff_claim", **place, handoff_id=handoff_id, agent_id="builder-2", lease_seconds=seconds)
    do("handoff_block", **place, handoff_id=stuck, agent_id="builder-2", reason="Where is the archive?")
    do("handoff_complete", **place, handoff_id=checked, agent_id="builder-2", result="88 lines, 3 ms")
    return {"blocked": stuck, "submitted": checked}


def talk(do: Does) -> dict[str, str]:
    """A topic in which ann asks and bob answers, told by the operations of topics; its ids."""
    topic: str = do("topic_create", name="cache-key", metadata={"ticket": 7})["topic_id"]

    def say(name: str, text: str, **more: Any) -> str:
        message = {"content_markdown": text, **more}
        do("topic_join", topic_id=topic, agent_name=name, reclaim_token=tokens.get(name))
        do("sync", topic_id=topic, wait_seconds=0)
        sent = do("sync", topic_id=topic, wait_seconds=0, auto_advance=False, outbox=[message])["sent"]
        return str(sent[0]["message"]["message_id"])

    tokens = {name: do("topic_join", topic_id=topic, agent_name=name)["reclaim_token"] for name in ("ann", "bob")}
    asked = say(
        "ann", "Which **key** does the cache have? I see two:\n\n- the path\n- the digest", message_type="question"
    )
    said = say("bob", "The digest:\n\n```python\nkey = sha256(body)\n```", message_type="answer", reply_to=asked)
    say("ann", "Thanks, I change it.", reply_to=said)
    return {"topic": topic, "asked": asked, "said": said}


def plan(do: Does, root: Path) -> None:
    """A closed cycle, and a plan with a decision and six tasks, told by the operations of planning."""
    place = {"project_root": str(root)}
    do("plan_start", **place, topic="First steps", issues=["Which language?"], research_summary="")
    do("plan_decide", **place, issue_id=1, summary="Python, **as** everybody reads it.")
    do("task_add", **place, title="List the files", context="To know how many there are.")
    do("task_close", **place)
    found = "Three parsers were *compared*."
    do(
        "plan_start",
        **place,
        topic="A parser of its own",
        issues=["Which grammar?", "Which cache?"],
        research_summary=found,
    )
    do(
        "plan_decide", **place, issue_id=1, summary="**PEG**: it is short.\n\n- fewer rules\n- one pass",
        how_agents=["architect"], how_summary={"architect": "Errors name the place"},
    )  # fmt: skip
    for number in range(1, 7):
        before = sorted(
            {each for each in (number - 1, number // 2, number - 7) if 0 < each < number and number % 5 != 1}
        )
        title = f"{('Write', 'Review', 'Measure', 'Document')[number % 4]} part {number} of the parser, with its tests"
        do("task_add", **place, title=title, context="It is **needed**.", deps=before, owner=f"builder-{number % 3}")
    do("task_update", **place, id=1, status="completed")
    do("task_update", **place, id=2, status="in_progress")


def plan_places(plan: str, history: str) -> dict[str, str]:
    """The addresses of an issue, a task and a cycle, as the pages of plan and history link them."""
    parts = {"issue": ("plan/issues", plan), "task": ("planning/task", plan), "cycle": ("planning/cycle", history)}
    found = {name: re.search(rf"/admin/{part}/(\w+)/", page) for name, (part, page) in parts.items()}
    return {name: match[1] for name, match in found.items() if match}


def hold(do: Does, root: Path, handoff: str) -> str:
    """Files that two agents hold, one for a handoff, and some that were given up, told by the operations of files; the
    id of the first reservation."""
    place = {"project_root": str(root)}
    mine = {**place, "agent_id": "builder-1"}
    held = do(
        "files_reserve", **mine, paths=["src/grammar.py", "tests/**/test_grammar*.py"], handoff_id=handoff,
        reason="The rules move into a file of their own",
    )  # fmt: skip
    do("files_reserve", **place, agent_id="reviewer", paths=["docs/"], exclusive=False, seconds=3600)
    do("files_reserve", **mine, paths=["src/reader.py"])
    do("files_release", **mine, paths=["src/reader.py"])
    return str(held["reservations"][0]["reservation_id"])


def topics_over_rest(url: str) -> Does:
    """Operations of topics called over a hub's REST, as the operator of this machine; they answer bare objects."""

    def do(operation: str, /, **arguments: Any) -> dict[str, Any]:
        answer = httpx.post(f"{url}/api/v1/topics/operations/{operation}", json=arguments, timeout=START_SECONDS)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()
        return data

    return do


def over_rest(url: str, path: str = "operations", token: str = "") -> Does:
    """Operations called over a hub's REST, as the operator: of this machine, or by the token of the hub's run."""
    headers = {"x-api-key": token} if token else {}

    def do(operation: str, /, **arguments: Any) -> dict[str, Any]:
        answer = httpx.post(f"{url}/api/v1/{path}/{operation}", json=arguments, headers=headers, timeout=START_SECONDS)
        envelope = answer.json()
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    return do
