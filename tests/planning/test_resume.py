"""Whether an agent is resumed: the pure decision against a naive statement of it, and the tool."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.planning import edits, state
from nexus.planning.edits import Edit
from nexus.planning.resume import decide
from nexus.planning.toolset import PLANNING
from tests.planning.conftest import Project

NAMES = ["e1", "e2", "t1"]
PATHS = ["a.py", "b.py"]
TIMES = [f"2026-01-01T00:00:0{second}.000Z" for second in range(5)]
TIERS = st.sampled_from(["ephemeral", "bounded", "persistent", None, "strange"])
POLICIES = st.sampled_from([None, "fresh", "resume_if_same_artifact", "resume"])

sessions = st.lists(
    st.fixed_dictionaries(
        {
            "agent_type": st.sampled_from(["engineer", "tester"]),
            "agent_id": st.sampled_from(NAMES),
            "started_at": st.sampled_from(TIMES),
            "resume_count": st.just(0),
            "status": st.sampled_from(["running", "completed"]),
        },
        optional={
            "files_touched": st.lists(st.sampled_from(PATHS), unique=True),
            "last_resumed_at": st.sampled_from(TIMES),
        },
    ),
    max_size=3,
    unique_by=lambda entry: entry["agent_id"],
)
edited = st.dictionaries(
    st.sampled_from(PATHS),
    st.lists(st.builds(Edit, st.sampled_from([*NAMES, None]), st.sampled_from([*TIMES, None])), max_size=3),
)


def naive(
    tier: str | None, policy: str | None, agent: str, assigned: str | None, files: list[str], tracker: Any, known: Any
) -> set[str | None]:
    """The ids that may be resumed, {None} where a fresh agent is started: case by case, as the contract says it."""
    if policy == "fresh" or (policy is None and tier not in ("bounded", "persistent")):
        return {None}
    done = [entry for entry in tracker if entry["status"] == "completed"]
    those = [entry for entry in done if entry["agent_id"] == agent]
    those = those or [entry for entry in done if entry["agent_type"] == agent and entry["agent_id"] == assigned]
    those = those or [entry for entry in done if entry["agent_type"] == agent]
    if not those:
        return {None}
    began = {entry["agent_id"]: entry.get("last_resumed_at", entry["started_at"]) for entry in those}
    latest = [entry for entry in those if began[entry["agent_id"]] == max(began.values())]
    if policy == "resume" or (policy is None and tier == "persistent"):
        return {entry["agent_id"] for entry in latest}
    allowed: set[str | None] = set()
    for entry in latest:
        touched = entry.get("files_touched", [])
        mine = files or (touched if entry["agent_id"] == assigned else None)
        same = mine is not None and all(path in touched for path in mine)
        foreign = [
            edit
            for path in mine or ()
            for edit in known.get(path, ())
            if edit.agent_id != entry["agent_id"] and (edit.at is None or edit.at >= began[entry["agent_id"]])
        ]
        allowed.add(entry["agent_id"] if same and not foreign else None)
    return allowed


@given(
    tier=TIERS,
    policy=POLICIES,
    agent=st.sampled_from(["engineer", "tester", "writer", *NAMES]),
    assigned=st.sampled_from([None, *NAMES]),
    files=st.lists(st.sampled_from(PATHS), unique=True),
    tracker=sessions,
    known=edited,
)
def test_it_decides_as_the_naive_statement_does(
    tier: Any, policy: Any, agent: str, assigned: Any, files: list[str], tracker: Any, known: Any
) -> None:
    found = decide(tier=tier, policy=policy, agent=agent, assigned=assigned, files=files, tracker=tracker, edits=known)
    assert found.agent_id in naive(tier, policy, agent, assigned, files, tracker, known)
    assert found.decision == ("fresh" if found.agent_id is None else "resume")
    assert found.why


def session(agent_id: str = "e1", /, **more: Any) -> dict[str, Any]:
    began = {"agent_type": "engineer", "agent_id": agent_id, "started_at": TIMES[1], "resume_count": 0}
    return {**began, "status": "completed", "files_touched": ["a.py"], **more}


def bounded(policy: str | None, known: Any) -> Any:
    return decide(
        tier="bounded", policy=policy, agent="engineer", assigned="e1", files=["a.py"], tracker=[session()], edits=known
    )


def test_it_lets_the_tasks_policy_go_before_the_tier_of_a_bounded_agent_and_says_so() -> None:
    foreign = {"a.py": [Edit("w1", TIMES[3])]}
    assert bounded(None, foreign)[:2] == ("fresh", None)
    assert bounded("resume_if_same_artifact", foreign)[:2] == ("fresh", None)
    found = bounded("resume", foreign)
    assert found[:2] == ("resume", "e1")
    assert "policy goes before the tier" in found.why and "a.py was edited by w1" in found.why


def test_it_does_not_mind_the_agents_own_edits_nor_what_was_before_it() -> None:
    assert bounded(None, {"a.py": [Edit("w1", TIMES[0]), Edit("e1", TIMES[2])]})[:2] == ("resume", "e1")


def test_it_takes_an_edit_by_nobody_known_for_somebody_elses() -> None:
    assert "somebody else" in bounded(None, edits.history(b'{"a.py": 2}')).why


@pytest.mark.parametrize("moment", ["yesterday", "", None, 5, "9999-12-31T23:59:59-23:59"])
def test_it_never_raises_on_a_time_that_is_none(moment: Any) -> None:
    found = decide(
        tier="bounded",
        policy=None,
        agent="e1",
        assigned="e1",
        files=[],
        tracker=[session(started_at=moment)],
        edits={"a.py": [Edit("w1", TIMES[3])]},
    )
    assert found.decision == "fresh"


# The edit tracker


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(NAMES), st.sampled_from(TIMES))))
def test_it_reads_back_the_edits_that_it_wrote(noted: list[tuple[str, str, str]]) -> None:
    content: bytes | None = None
    for path, agent_id, at in noted:
        content = edits.added(content, [path], agent_id, at)
    found = edits.history(content)
    assert [(path, *edit) for path in PATHS for edit in found.get(path, ())] == sorted(
        noted, key=lambda each: PATHS.index(each[0])
    )
    assert edits.counts(content) == {path: len(those) for path, those in found.items()}


@pytest.mark.parametrize("foreign", [b'{"a.py": 3}', b'{"a.py": {"count": 3}}', b'{"edits": ["a.py", "a.py", "a.py"]}'])
def test_it_adds_to_what_other_consumers_counted(foreign: bytes) -> None:
    assert edits.counts(edits.added(foreign, ["a.py"], "e1", TIMES[0])) == {"a.py": 4}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_it_makes_something_of_every_edit_tracker(content: bytes) -> None:
    edits.history(edits.added(content, ["a.py"], "e1", TIMES[0]))["a.py"]


# The tool


def test_it_says_whom_to_resume_for_a_task(nexus: Project) -> None:
    nexus.task(owner="engineer", owner_agent_id="e1")
    assert nexus.call("resume_decide", id=1) == {"decision": "fresh", "why": "No ended session of e1 is recorded."}
    nexus.write("state/agent-tracker.json", [session("e1"), session("e2", started_at=TIMES[2])])
    assert nexus.call("resume_decide", id=1)["agent_id"] == "e1"
    nexus.write("state/edit-tracker.json", {"a.py": [{"agent_id": "e2", "at": TIMES[3]}]})
    assert "a.py was edited by e2" in nexus.call("resume_decide", id=1)["why"]
    nexus.task(owner="engineer", owner_reuse_policy="resume")
    assert nexus.call("resume_decide", id=2)["agent_id"] == "e2"
    asked = {"project_root": str(nexus.root), "id": 2, "agent": "tester"}
    assert dispatch.run(PLANNING, Caller("test"), "resume_decide", asked)["data"]["decision"] == "fresh"


def test_it_takes_the_files_that_a_task_names_for_its_own(nexus: Project) -> None:
    nexus.call("task_add", title="Mend a.py", context="It is `a.py`.", owner="engineer")
    nexus.call("task_add", title="Mend sub/a.py", context="Not the other.", owner="engineer")
    nexus.write("state/agent-tracker.json", [session()])
    assert nexus.call("resume_decide", id=1)["decision"] == "resume"
    assert nexus.call("resume_decide", id=2)["decision"] == "fresh"


def test_it_starts_an_agent_afresh_whose_role_has_no_tier(nexus: Project) -> None:
    nexus.task(owner="plumber")
    assert "No tier is known for plumber" in nexus.call("resume_decide", id=1)["why"]
    nexus.task()
    assert "no owner" in nexus.call("resume_decide", id=2)["why"]


def test_it_does_not_know_a_task_that_there_is_not(nexus: Project) -> None:
    assert nexus.refused("resume_decide", id=7) == ("NOT_FOUND", "Task id 7 not found")
    nexus.task()
    for strange in (0, -1, 7, 10**30):
        assert nexus.refused("resume_decide", id=strange) == ("NOT_FOUND", f"Task id {strange} not found")


def test_it_names_a_tracker_that_breaks_its_schema_and_leaves_it(nexus: Project) -> None:
    nexus.task(owner="engineer")
    nexus.write("state/agent-tracker.json", '[{"agent_type": 5}]')
    code, message = nexus.refused("resume_decide", id=1)
    assert code == "STATE_FILE_INVALID" and "agent-tracker.json" in message
    assert (nexus.state / "agent-tracker.json").read_text() == '[{"agent_type": 5}]'


def test_it_knows_the_tiers_of_the_nine_roles() -> None:
    resumed = {
        role: state.resume_decision(
            state.Task(1, "", "pending"), role, [{**session(role), "agent_type": role, "files_touched": []}], {}
        ).decision
        for role in ("tester", "reviewer", "architect", "designer", "postdoc", "strategist", "researcher")
    }
    assert [role for role, what in resumed.items() if what == "fresh"] == ["tester", "reviewer"]
