"""What an operator or a script gets from the commands: tables, JSON, exit codes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import time_machine
from django.core.management import call_command
from django.test import Client

from coordination.models import AgentKey, Event
from coordination.services import keys
from coordination.toolset import run
from nexus.core.apps import nexus_apps
from nexus.core.cli import ago, columns, one_line, table
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.registry import TOOLSETS
from nexus.maintenance import retention
from nexus_site import reference, reference_pages
from tests.conftest import Call
from tests.keys import agent_of_key

pytestmark = pytest.mark.usefixtures("team")


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.out)
        return data

    @property
    def rows(self) -> list[list[str]]:
        """The table below its headings."""
        return [line.split() for line in self.out.splitlines()[1:]]


def nexus(command: str, *arguments: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as exit:
        call_command(command, *arguments, stdout=out, stderr=err)
    return Ran(int(exit.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def mail(call: Call, project: str) -> str:
    """A message from ana to bob; its id."""
    letter = {"project_root": project, "from_agent_id": "ana", "subject": "the plan\x1b[31m"}
    target = {"strategy": "direct", "agent_id": "bob"}
    return str(call("message_create", **letter, body="first line\n\nlast\rline", target=target)["message_id"])


@pytest.fixture
def offered(call: Call, project: str) -> Callable[..., str]:
    """Offer a handoff: `offered(role="coder")`; its id."""

    def offer(**target: Any) -> str:
        work = {"project_root": project, "from_agent_id": "ana", "visibility": "public", "title": "Scan"}
        return str(call("handoff_create", **work, target={"strategy": next(iter(target)), **target})["handoff_id"])

    return offer


# agents


def test_it_lists_agents_with_presence_and_mail(call: Call, project: str, mail: str) -> None:
    workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
    call("session_open", agent_id="bob", workspace_id=workspace_id)
    ran = nexus("agents")
    assert ran.code == 0
    assert [row[:5] for row in ran.rows] == [
        ["ana", "present", "0", "0", "0"],
        ["bob", "present", "1", "0", "0"],
        ["cleo", "present", "0", "0", "0"],
    ]
    bob = nexus("agents", "--json").json["agents"][1]
    assert (bob["presence"], bob["unread"], bob["capabilities"]) == ("present", 1, ["ocr", "python"])


def test_it_tells_who_is_present_in_one_project(call: Call, project: str, tmp_path: Any) -> None:
    workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
    call("session_open", agent_id="bob", workspace_id=workspace_id)
    assert nexus("agents", "--project", project).rows[1][1] == "present"
    assert nexus("agents", "--project", str(tmp_path)).rows[1][1] == "offline"
    assert "WORKSPACE_UNRESOLVED" in nexus("agents", "--project", "/nowhere").err


def created(*arguments: str) -> dict[str, Any]:
    return nexus("agents", "create", *arguments, "--json").json


def test_it_makes_shows_changes_and_deletes_an_agent(call: Call) -> None:
    made = created("dora", "--role", "coder", "--capability", "python", "--capability", "go", "--metadata", '{"a": 1}')
    assert (made["role"], made["capabilities"], made["metadata"]) == ("coder", ["python", "go"], {"a": 1})
    assert agent_of_key(made["api_key"]) == "dora"
    nexus("agents", "update", "dora", "--role", "reviewer")
    shown = nexus("agents", "show", "dora", "--json").json
    assert (shown["role"], shown["capabilities"]) == ("reviewer", ["python", "go"])
    assert (shown["presence"], shown["reached_by_broadcasts"], shown["key"]) == ("offline", False, "active")
    assert "python, go" in nexus("agents", "show", "dora").out
    assert nexus("agents", "delete", "dora", "--yes").code == 0
    assert "dora" not in [agent["agent_id"] for agent in call("agent_list")["agents"]]


def test_it_gives_new_keys_and_takes_keys_out_of_service() -> None:
    first = created("dora")["api_key"]
    second = nexus("agents", "key", "dora", "--json").json["api_key"]
    assert (agent_of_key(first), agent_of_key(second)) == (None, "dora")
    assert nexus("agents", "key", "dora", "--deactivate").code == 0
    assert agent_of_key(second) is None
    assert nexus("agents", "key", "dora", "--activate").code == 0
    assert agent_of_key(second) == "dora"


def test_it_deletes_nothing_when_nobody_can_be_asked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "Pass --yes" in nexus("agents", "delete", "ana").err
    assert call("agent_get", agent_id="ana")


def test_it_names_the_way_in_the_words_of_a_terminal() -> None:
    said = nexus("agents", "create", "ana").err
    assert "`nexus agents update` changes it, `nexus agents key` gives it a key." in said
    assert "agent_" not in said
    assert "`nexus settings` names them all" in nexus("settings", "set", "bogus", "1").err


def test_every_command_that_errors_may_name_is_one() -> None:
    block = {name: reference_pages.command_block(name, parser) for name, parser in reference.parsers().items()}
    operations = {name: each for toolset in TOOLSETS.values() for name, each in toolset.operations.items()}
    known = {*operations, *(name for each in operations.values() for name in each.params.model_fields)}
    for config in nexus_apps():
        for named, line in config.commands.items():
            assert named in known
            _, name, *words = line.split()
            assert all(re.search(rf"\s{word}\b", block[name]) for word in words), line


# workspaces, artifacts


def test_it_lists_projects_and_tells_their_ids(call: Call, project: str) -> None:
    ran = nexus("workspaces", "show", project)
    assert (ran.code, "NOT_FOUND" in ran.err) == (1, True)
    assert nexus("workspaces").code == 3, "to ask for one makes none"
    workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
    assert nexus("workspaces").rows[0][0] == workspace_id[:12]
    for place in (project, workspace_id, workspace_id[:12]):
        assert nexus("workspaces", "show", place, "--json").json["workspace_id"] == workspace_id


def test_it_lists_artifacts_and_shows_one(call: Call, project: str, tmp_path: Any) -> None:
    call("artifact_put", project_root=project, artifact_type="file", path="notes/plan.md")
    made = call("artifact_put", project_root=project, artifact_type="text", name="notes", content="a\nb")
    artifact_id = made["artifact_id"]
    assert next(row[0] for row in nexus("artifacts").rows) == artifact_id
    assert nexus("artifacts", "--limit", "1", "--json").json["artifacts"][0]["project_root"] == project
    assert nexus("artifacts", "--project", str(tmp_path)).code == 3
    assert nexus("artifacts", "show", artifact_id, "--content").out == "a\nb"
    assert "content\n  a\n  b\n" in nexus("artifacts", "show", artifact_id).out
    assert "NOT_FOUND" in nexus("artifacts", "show", "art_x").err


# settings


def test_it_stores_a_setting_and_takes_it_back(django_capture_on_commit_callbacks: Any) -> None:
    def holding(*arguments: str) -> tuple[Any, str]:
        with django_capture_on_commit_callbacks(execute=True):
            assert nexus("settings", *arguments).code == 0
        listed = {row["name"]: row for row in nexus("settings", "list", "--json").json["settings"]}
        return listed["max_event_limit"]["value"], listed["max_event_limit"]["source"]

    before = holding()
    assert holding("set", "max_event_limit", "7") == (7, "stored")
    assert holding("unset", "max-event-limit") == before


@pytest.mark.parametrize(("name", "value"), [("max_event_limit", "many"), ("max_event_limit", "0"), ("bogus", "1")])
def test_it_refuses_what_a_setting_cannot_be(name: str, value: str) -> None:
    ran = nexus("settings", "set", name, value)
    assert (ran.code, ran.err.startswith("[nexus] VALIDATION_ERROR")) == (1, True)


# operators


def test_it_makes_operators_and_lets_them_in_again(client: Client) -> None:
    assert nexus("operators").code == 3
    made = nexus("operators", "create", "maria", "--json").json
    assert client.login(username="maria", password=made["password"])
    anew = nexus("operators", "reset-password", "maria", "--json").json["password"]
    assert not client.login(username="maria", password=made["password"])
    assert client.login(username="maria", password=anew)
    assert nexus("operators").rows[0][:2] == ["maria", "yes"]
    events = Event.objects.filter(type__startswith="operator.").values_list("type", flat=True)
    assert list(events) == ["operator.created", "operator.password_reset"]
    assert made["password"] not in str(Event.objects.values())


def test_it_refuses_accounts_that_cannot_be() -> None:
    nexus("operators", "create", "maria")
    assert "`nexus operators reset-password` lets one in again" in nexus("operators", "create", "maria").err
    assert "VALIDATION_ERROR" in nexus("operators", "create", "a b").err
    assert "NOT_FOUND" in nexus("operators", "reset-password", "nobody").err


@pytest.mark.parametrize("name", ["operator_list", "operator_create", "operator_password_reset"])
def test_it_makes_no_accounts_from_afar(db: None, name: str) -> None:
    arguments = {} if name == "operator_list" else {"operator": "eve"}
    answer = run(Caller(transport="rest", operator="ops"), name, arguments)
    assert answer["error"]["code"] == "NOT_OWNER"


# issue-keys


def test_it_issues_keys_to_those_who_have_none_and_only_once() -> None:
    first = nexus("agents", "issue-keys", "--json").json["keys"]
    assert [(key["agent_id"], agent_of_key(key["api_key"])) for key in first] == [
        ("ana", "ana"),
        ("bob", "bob"),
        ("cleo", "cleo"),
    ]
    assert nexus("agents", "issue-keys", "--json").json == {"keys": []}
    assert agent_of_key(first[0]["api_key"]) == "ana"  # as it was
    assert Event.objects.filter(type="agent.key_issued").count() == 3


def test_it_issues_keys_to_the_agents_named() -> None:
    assert "nxs_" in nexus("agents", "issue-keys", "bob").out
    assert AgentKey.objects.get().agent_id == "bob"
    assert nexus("agents", "issue-keys", "bob") == (0, "Nobody needed a key.\n", "")


def test_it_issues_no_key_that_it_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    issue = keys.issue

    def fail_at_bob(*, agent_id: str, operator: str) -> str:
        if agent_id == "bob":
            raise NexusError(Code.DB_ERROR, "The store is busy.")
        return issue(agent_id=agent_id, operator=operator)

    monkeypatch.setattr(keys, "issue", fail_at_bob)
    ran = nexus("agents", "issue-keys")
    assert (ran.code, ran.out) == (1, "")
    ran = nexus("agents", "issue-keys", "ana", "nobody")
    assert ran.code == 1 and ran.err.startswith("[nexus] NOT_FOUND")
    assert not AgentKey.objects.exists()


# send


def tagged(**teams: str) -> None:
    """Give agents the tag `team` of a catalog that has it."""
    for words in ([], *(["--value", team] for team in teams.values())):
        assert nexus("tags", "create", "team", *words).code == 0
    for agent, team in teams.items():
        assert nexus("agents", "update", agent, "--tags", json.dumps({"team": [team]})).code == 0


@pytest.mark.parametrize("tag", ["team", "=core", "team=", "team=unknown"])
def test_a_tag_that_is_none_is_refused(call: Call, project: str, tag: str) -> None:
    tagged(cleo="core")
    for words in (["send", "--body", "b"], ["handoffs", "create", "--work", "w"]):
        ran = nexus(*words, "--tag", tag, "--project", project)
        assert ran.code == 1 and ran.err.startswith("[nexus] VALIDATION_ERROR")


def test_it_offers_work_to_a_tag(call: Call, project: str) -> None:
    tagged(bob="web", cleo="core")
    ran = nexus("handoffs", "create", "--project", project, "--tag", "team=core", "--work", "Mend it", "--json")
    assert ran.json["eligible_count"] == 1
    (row,) = call("handoff_list_available", project_root=project, agent_id="cleo")["handoffs"]
    assert row["target"] == {"strategy": "tag", "selector": {"team": ["core"]}}


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (["--to", "cleo"], ["cleo"]),
        (["--role", "reviewer"], ["bob"]),
        (["--capability", "python"], ["bob", "cleo"]),
        (["--tag", "team=core"], ["cleo"]),
        (["--tag", "team=core", "--tag", "team=web"], ["bob", "cleo"]),
        (["--everybody"], ["ana"]),
    ],
)
def test_it_sends_to_whom_it_is_told(call: Call, project: str, target: list[str], reached: list[str]) -> None:
    tagged(bob="web", cleo="core")
    workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
    call("session_open", agent_id="ana", workspace_id=workspace_id)
    ran = nexus("send", *target, "--project", project, "--subject", "s", "--body", "b", "--json")
    assert (ran.code, ran.json["recipients"], ran.json["from_agent_id"]) == (0, reached, "operator")


@pytest.mark.parametrize(
    "words",
    [
        ["bob", "CI is red: see job 4711."],
        ["bob", "CI", "is", "red: see job 4711."],
        ["--to", "bob", "--body", "CI is red: see job 4711."],
        ["bob", "--subject", "CI is red: see job 4711.", "CI is red: see job 4711."],
        ["--role", "reviewer", "CI is red: see job 4711."],
    ],
)
def test_it_takes_a_message_as_people_type_it(call: Call, project: str, words: list[str]) -> None:
    ran = nexus("send", *words, "--project", project)
    assert ran.code == 0, ran.err
    message = call("inbox_peek", agent_id="bob")["messages"][0]
    assert message["subject"] == message["body"] == "CI is red: see job 4711."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Say who gets it"),
        (["bob"], "Give the text once"),
        (["bob", "text", "--body", "text"], "Give the text once"),
        (["--everybody"], "Give the text once"),
    ],
)
def test_it_says_what_a_message_lacks(project: str, words: list[str], told: str) -> None:
    ran = nexus("send", *words, "--project", project)
    assert ran.code == 1 and told in ran.err and ran.err.startswith("[nexus] CONFIG_ERROR")


def test_it_can_be_answered_and_answers(call: Call, project: str, mail: str) -> None:
    ran = nexus("send", "--to", "ana", "--project", project, "--subject", "s", "--body", "b", "--reply-to", mail)
    assert ran.code == 0
    assert call("inbox_peek", agent_id="ana")["messages"][0]["parent_message_id"] == mail
    target = {"strategy": "direct", "agent_id": "operator"}
    call("message_create", project_root=project, from_agent_id="ana", subject="ok", body="b", target=target)
    assert "ok" in nexus("inbox").out


def test_it_reads_a_body_from_standard_input(call: Call, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("piped\n"))
    nexus("send", "--to", "bob", "--project", project, "--subject", "s", "--body", "-", "--sender", "ana")
    message = call("inbox_peek", agent_id="bob")["messages"][0]
    assert (message["body"], message["from_agent_id"]) == ("piped\n", "ana")


def test_it_says_that_a_sender_is_unknown_that_nobody_is_reached_and_that_there_are_two_targets(
    call: Call, project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ["--project", project, "--subject", "s", "--body", "b"]
    unknown = nexus("send", "--to", "bob", *text, "--sender", "typo")
    assert unknown == (1, "", "[nexus] NOT_FOUND: No such agent: 'typo'.\n")
    assert call("inbox_count", agent_id="bob")["unread"] == 0
    ran = nexus("send", "--role", "pilot", *text)
    assert ran.code == 3 and "nobody" in ran.out and "matched no agent" in ran.err
    assert nexus("send", "--to", "a", "--role", "r", *text).code == 1
    assert "[nexus] CONFIG_ERROR" in capsys.readouterr().err


# inbox


def test_it_shows_mail_without_taking_it(call: Call, mail: str) -> None:
    ran = nexus("inbox", "--agent", "bob")
    assert ran.code == 0
    assert ran.rows[0][:2] == [mail, "ana"]
    assert "\x1b" not in ran.out
    assert nexus("inbox", "--agent", "bob", "--json").json == call("inbox_peek", agent_id="bob")
    assert call("inbox_count", agent_id="bob") == {"unread": 1, "in_flight": 0, "read": 0}


def test_it_shows_bodies_line_by_line(mail: str) -> None:
    shown = nexus("inbox", "--agent", "bob", "--full").out
    assert "  first line\n  \n  last\n  line\n" in shown


def test_it_takes_and_settles_mail_for_a_script(call: Call, mail: str) -> None:
    pulled = nexus("inbox", "pull", "--agent", "bob", "--json").json["messages"]
    assert [message["status"] for message in pulled] == ["delivered"]
    assert nexus("inbox", "ack", mail, "--agent", "bob") == (0, "1 acknowledged.\n", "")
    assert nexus("inbox", "ack", mail, "--agent", "bob").code == 3
    assert nexus("inbox", "history", "--agent", "bob").rows[0][0] == mail


def test_it_has_an_exit_code_for_an_empty_inbox(mail: str) -> None:
    assert nexus("inbox", "--agent", "cleo") == (3, "none\n", "")
    assert nexus("inbox", "--agent", "cleo", "--json").json == {"messages": [], "count": 0}
    assert nexus("inbox", "--agent", "bob", "--limit", "0").code == 1


def test_it_says_that_an_inbox_or_a_message_is_unknown(call: Call, mail: str) -> None:
    for arguments in (
        ["--agent", "typo"],
        ["history", "--agent", "typo"],
        ["ack", "nonsense", "--agent", "bob"],
        ["ack", mail, "nonsense", "--agent", "bob"],
    ):
        ran = nexus("inbox", *arguments)
        assert (ran.code, ran.out) == (1, "") and ran.err.startswith("[nexus] NOT_FOUND: No such ")
    assert call("inbox_count", agent_id="bob")["unread"] == 1  # all are known, or none is settled
    assert nexus("inbox").code == 3  # the operator's own, before its first message


def test_it_says_that_an_agent_is_unknown_also_where_there_is_nothing_of_it(mail: str) -> None:
    options = [[command, "--agent"] for command in ("dead_letters", "questions")]
    for words in (*options, *(["agents", verb] for verb in ("show", "key", "delete", "update"))):
        assert nexus(*words, "typo") == (1, "", "[nexus] NOT_FOUND: No such agent: 'typo'.\n")
    assert all("none" in nexus(*words, "cleo").out for words in options)


# handoffs


def test_it_lists_what_is_offered_and_who_has_it(
    call: Call, project: str, tmp_path: Any, offered: Callable[..., str]
) -> None:
    claimed, open_one = offered(role="reviewer"), offered(role="coder")
    call("handoff_claim", project_root=project, handoff_id=claimed, agent_id="bob")
    ran = nexus("handoffs")
    assert [row[:6] for row in ran.rows] == [
        ["Scan", claimed, "CLAIMED", "ana", "role", "reviewer"],
        ["Scan", open_one, "OPEN", "ana", "role", "coder"],
    ]
    assert nexus("handoffs", "--json").json["handoffs"][0]["claimed_by"] == "bob"
    for status in ("open", "Open", "OPEN"):
        assert nexus("handoffs", "--status", status, "--json").json["handoffs"][0]["handoff_id"] == open_one
    assert nexus("handoffs", "--limit", "1").rows == ran.rows[:1]
    assert nexus("handoffs", "--project", project).rows == ran.rows
    assert nexus("handoffs", "--project", str(tmp_path)).code == 3


def test_it_counts_a_lapsed_claim_as_open(call: Call, project: str, offered: Callable[..., str]) -> None:
    handoff_id = offered(role="reviewer")
    call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="bob")
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=1)):
        row = nexus("handoffs", "--json").json["handoffs"][0]
        assert (row["status"], row["claimed_by"], row["lease_expires_at"]) == ("OPEN", None, None)
        assert nexus("handoffs", "--status", "CLAIMED").code == 3
        counted = nexus("status", "--json").json["handoffs"]
        assert (counted["open"], counted["claimed"]) == (1, 0)


def test_it_lists_what_an_agent_may_claim(project: str, offered: Callable[..., str]) -> None:
    handoff_id = offered(role="coder")
    assert nexus("handoffs", "--project", project, "--agent", "cleo").rows[0][1] == handoff_id
    assert nexus("handoffs", "--project", project, "--agent", "bob").code == 3


def test_it_offers_work_and_shows_it(call: Call, project: str) -> None:
    ran = nexus("handoffs", "create", "--project", project, "--role", "coder", "--work", "Mend\nit", "--json")
    assert ran.json["eligible_count"] == 1
    handoff_id = ran.json["handoff_id"]
    assert nexus("handoffs").rows[0][:2] == ["Mend", handoff_id]
    assert "work\n  Mend\n  it\n" in nexus("handoffs", "show", handoff_id).out
    call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="cleo")
    call("handoff_complete", project_root=project, handoff_id=handoff_id, agent_id="cleo", result="done")
    outcome = nexus("handoffs", "show", handoff_id, "--json").json["outcome"]
    assert (outcome["by"], outcome["result"]) == ("cleo", "done")
    assert "completed result" in nexus("handoffs", "show", handoff_id).out
    assert nexus("inbox").code == 0


def test_it_tells_what_became_of_a_cancelled_handoff(offered: Callable[..., str]) -> None:
    handoff_id = offered(role="coder")
    assert nexus("handoffs", "cancel", handoff_id, "--reason", "no longer needed").code == 0
    outcome = nexus("handoffs", "show", handoff_id, "--json").json["outcome"]
    assert (outcome["by"], outcome["reason"]) == (LOCAL_OPERATOR, "no longer needed")
    assert "cancelled reason" in nexus("handoffs", "show", handoff_id).out
    assert "INVALID_TRANSITION" in nexus("handoffs", "cancel", handoff_id).err


def test_it_warns_of_work_that_nobody_may_take(project: str) -> None:
    ran = nexus("handoffs", "create", "--project", project, "--role", "pilot", "--work", "fly")
    assert "`nexus handoffs cancel` retracts it" in ran.err


def test_it_says_that_a_handoff_or_an_agent_is_unknown(project: str) -> None:
    assert "NOT_FOUND" in nexus("handoffs", "show", "hnd_x").err
    assert "NOT_FOUND" in nexus("handoffs", "--agent", "nobody", "--project", project).err


# status


def test_it_tells_the_state_of_the_hub(call: Call, project: str, mail: str, offered: Callable[..., str]) -> None:
    offered(role="coder")
    call("inbox_pull", agent_id="bob")
    ran = nexus("status", "--json")
    assert ran.code == 0
    data = ran.json
    assert data["agents"] == {"present": 3, "stale": 0, "offline": 0}
    assert data["mail"] == {"unread": 0, "in_flight": 1, "parked": 0}
    assert data["handoffs"] == {"open": 1, "claimed": 0, "in_progress": 0, "blocked": 0, "submitted": 0}
    assert data["newest_event_id"] == Event.objects.latest("event_id").event_id
    assert (data["server"], data["attention"]) == (None, [])
    assert "0 unread, 1 being handled, 0 dead letters" in nexus("status").out


def test_it_exits_differently_when_something_needs_a_person(call: Call, mail: str, offered: Callable[..., str]) -> None:
    offered(role="pilot")
    moment = datetime.now(UTC)
    for attempt in range(6):  # five hand-outs without an ack; the next claim parks it
        with time_machine.travel(moment + timedelta(hours=attempt)):
            call("inbox_pull", agent_id="bob")
    ran = nexus("status", "--json")
    assert ran.code == 4
    letters, orphans = ran.json["attention"]
    assert letters.startswith("Dead letters: Dead letter of bob: ") and letters.endswith(": nexus dead-letters")
    assert orphans.startswith("Nobody may take it: ")
    assert orphans.endswith("nobody has the role pilot: nexus handoffs")


# prune


def test_it_prunes_with_progress_and_a_report(project: str, mail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 5)
    with time_machine.travel(datetime.now(UTC) + timedelta(days=60)):
        dry = nexus("prune", "--dry-run", "--json").json
        assert dry["lanes"]["events"]["found"] == Event.objects.count() > 0
        first = Event.objects.earliest("event_id")
        Event.objects.bulk_create(
            Event(workspace_id=first.workspace_id, stream="workspace", type="t", created_at=first.created_at)
            for _ in range(101)
        )
        found = Event.objects.count()
        ran = nexus("prune", "--json", "--project", project)
    assert ran.code == 0
    assert "deleted 100, " in ran.err  # one call deletes 20 batches
    pruned = {"keep_days": 30, "before": "", "found": found, "deleted": found}
    assert ran.json["lanes"]["events"] | {"before": ""} == pruned


def test_it_asks_at_a_terminal_before_it_prunes(mail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    answers = iter(["n", "y"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    with time_machine.travel(datetime.now(UTC) + timedelta(days=60)):
        old = Event.objects.filter(event_id__lte=Event.objects.latest("event_id").event_id)
        ran = nexus("prune")
        assert (ran.code, old.exists()) == (0, True) and "would delete" in ran.out
        assert "Nothing was changed." in ran.out
        assert "deleted" in nexus("prune").out and not old.exists()


def test_it_prunes_with_windows_of_the_run(mail: str) -> None:
    with time_machine.travel(datetime.now(UTC) + timedelta(days=3)):
        assert nexus("prune", "--dry-run").rows[0][-1] == "0"
        assert int(nexus("prune", "--dry-run", "--events-keep-days", "2").rows[0][-1]) > 0
    assert nexus("prune", "--events-keep-days", "-1").code == 1


# what they share


def test_it_aligns_columns_whatever_stands_in_them() -> None:
    lines = table(["name", "n"], [["漢字", 1], ["e\u0301", 22], ["a\nb\x1b[2J", None], ["x" * 100, ""]])
    assert len({columns(line[: line.rindex("  ")]) for line in lines[:2]}) == 1
    assert lines[3].startswith("a b⟨U+001B⟩[2J ")
    assert "…  -" in lines[4]
    assert all(line.isprintable() for line in lines)
    assert [one_line(text, widest=3) for text in ("abc", "abcd")] == ["abc", "ab…"]


def test_it_tells_times_as_spans() -> None:
    spans = {0: "0 s ago", 59: "59 s ago", 61: "1 min ago", 7200: "2 h ago", -90_000: "in 1 d"}
    with time_machine.travel(datetime(2026, 1, 1, tzinfo=UTC), tick=False):
        assert {seconds: ago(datetime.now(UTC) - timedelta(seconds=seconds)) for seconds in spans} == spans
