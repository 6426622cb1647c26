"""Calls that write side by side on PostgreSQL: what one reads before it writes, no other changes meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.db import connection

from coordination.models import Agent, Artifact, Event, Session, Workspace
from coordination.services import sessions
from coordination.toolset import run
from handoffs.models import SETTLED, Dependency, Handoff, Remark
from nexus.core.database.store import in_one_transaction, store, write
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Toolset
from nexus.planning import directory, mirror
from nexus.planning.models import Task
from nexus.planning.toolset import PLANNING
from nexus.reservations import services as reservations
from nexus.reservations.models import Reservation
from nexus.reservations.toolset import FILES
from nexus.topics.connections import joined_peer
from nexus.topics.models import Topic, TopicMessage
from nexus.topics.toolset import TOPICS
from nexus_site.serving import health
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL, OPERATOR, at_once
from tests.postgres import SERVER
from tests.reservations.git import Repo
from tests.topics.conftest import Client

pytestmark = [
    pytest.mark.skipif(not SERVER, reason="on PostgreSQL alone"),
    pytest.mark.django_db(transaction=True),
]

Answer = dict[str, Any]
Call = Callable[[], Answer]
PYTHON = {"strategy": "capability", "capability": "python"}
WAITING = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = %s"


def call(name: str, /, **arguments: Any) -> Answer:
    """The envelope of a call, which may be a refusal, but never a failure of the store or of the hub."""
    answer = run(LOCAL, name, arguments)
    assert answer["ok"] or answer["error"]["code"] not in ("DB_ERROR", "INTERNAL_ERROR"), answer
    return answer


def call_of(toolset: Toolset, agent_id: str, name: str, /, **arguments: Any) -> Answer:
    """As `call`, of another toolset, as an agent."""
    answer = dispatch.run(toolset, Caller("test", agent_id=agent_id, connection="test"), name, arguments)
    assert answer["ok"] or answer["error"]["code"] not in ("DB_ERROR", "INTERNAL_ERROR"), answer
    return answer


def data(name: str, /, **arguments: Any) -> Any:
    answer = call(name, **arguments)
    assert answer["ok"], answer
    return answer["data"]


def waits() -> bool:
    """Whether a connection to this database waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING, [connection.settings_dict["NAME"]])
        return bool(cursor.fetchone()[0])


def beside(first: Callable[[], Answer], second: Callable[[], Answer]) -> tuple[Answer, Answer]:
    """The answers of two calls, the first of which commits once the second waits for it, or is done without that."""
    done = threading.Event()

    def go() -> Answer:
        try:
            return second()
        finally:
            done.set()
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with in_one_transaction():
            one = first()
            assert connection.in_atomic_block, "it wrote"
            connection.cursor().close()  # what it has yet to send takes its locks before the second does
            two = pool.submit(go)
            deadline = time.monotonic() + START_SECONDS
            while not (done.is_set() or waits()):
                assert time.monotonic() < deadline
                time.sleep(0.005)
        return one, two.result()


def twice(name: str, /, *different: dict[str, Any], **arguments: Any) -> tuple[Answer, Answer]:
    """The answers of a call that is made twice, the second time before the first one commits."""
    one, two = different or ({}, {})
    return beside(lambda: call(name, **arguments, **one), lambda: call(name, **arguments, **two))


@pytest.fixture
def team() -> None:
    for name in ("ann", "bob", "cleo"):
        data("agent_register", agent_id=name, capabilities=["python"])


def opened(agent_id: str, project: str) -> str:
    workspace_id = data("workspace_resolve", project_root=project)["workspace_id"]
    session_id: str = data("session_open", agent_id=agent_id, workspace_id=workspace_id)["session_id"]
    return session_id


def count(type: str) -> int:
    return Event.objects.filter(type=type).count()


@pytest.mark.usefixtures("team")
class TestSessions:
    def test_it_is_closed_once(self, project: str) -> None:
        session_id = opened("ann", project)
        assert all(answer["ok"] for answer in twice("session_close", session_id=session_id))
        assert count("session.closed") == 1

    def test_an_agent_that_leaves_is_not_noted_as_connected(self, project: str) -> None:
        session_id = opened("ann", project)

        def keep() -> Answer:
            sessions.keep_present({"ann"}, {session_id})
            return {}

        closed, _ = beside(lambda: call("session_close", session_id=session_id), keep)
        assert closed["ok"]
        assert Agent.objects.get(pk="ann").connected_at is None

    def test_one_that_is_closed_has_no_heartbeat(self, project: str) -> None:
        session_id = opened("ann", project)
        beside(
            lambda: call("session_close", session_id=session_id),
            lambda: call("session_heartbeat", session_id=session_id),
        )
        assert count("session.heartbeat") == 0
        assert Session.objects.get().status == "closed"

    def test_a_dead_one_is_closed_once_though_two_others_notice(self, project: str) -> None:
        with time_machine.travel(datetime.now(UTC) - timedelta(days=30)):
            opened("ann", project)
        sessions = [opened(name, project) for name in ("bob", "cleo")]
        Session.objects.filter(agent_id="ann").update(status="active", closed_at=None)
        closed = count("session.closed")
        twice("session_heartbeat", *({"session_id": session_id} for session_id in sessions))
        assert count("session.closed") == closed + 1

    def test_a_dead_one_is_closed_once_though_two_others_come(self, project: str) -> None:
        with time_machine.travel(datetime.now(UTC) - timedelta(days=30)):
            opened("ann", project)
        workspace_id = Workspace.objects.get().workspace_id
        twice("session_open", {"agent_id": "bob"}, {"agent_id": "cleo"}, workspace_id=workspace_id)
        assert count("session.closed") == 1


@pytest.mark.usefixtures("team")
class TestWorkspaces:
    def test_it_is_made_once(self, project: str) -> None:
        one, two = twice("join", {"agent_id": "ann"}, {"agent_id": "bob"}, project_root=project)
        assert one["data"]["workspace_id"] == two["data"]["workspace_id"] == Workspace.objects.get().workspace_id

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("workspace_resolve", {}),
            ("channel_create", {"name": "news"}),
            ("artifact_put", {"artifact_type": "text", "content": "c"}),
        ],
    )
    def test_nor_do_calls_make_it_twice_that_need_it(self, name: str, arguments: Answer, project: str) -> None:
        assert all(answer["ok"] for answer in twice(name, project_root=project, **arguments))
        assert Workspace.objects.count() == 1

    def test_an_artifact_is_made_once_for_its_client_id(self, project: str) -> None:
        data("workspace_resolve", project_root=project)
        arguments = {"artifact_type": "text", "content": "c", "client_id": "once"}
        one, two = twice("artifact_put", project_root=project, **arguments)
        assert one["data"]["artifact_id"] == two["data"]["artifact_id"] == Artifact.objects.get().artifact_id


def test_an_agent_that_joins_over_a_relay_has_its_topics_back(project: str) -> None:
    """Its call is one transaction, which takes the topics' names late."""
    before, again = (Caller("test", agent_id="ann", connection=f"test of joining {number}") for number in (1, 2))
    data("agent_register", agent_id="ann")
    topic = {"topic_id": dispatch.run(TOPICS, before, "topic_create", {"name": "t"})["topic_id"]}
    dispatch.run(TOPICS, before, "topic_join", {**topic, "agent_name": "ann"})
    with in_one_transaction():
        answer = run(again, "join", {"agent_id": "ann", "project_root": project})
        assert connection.in_atomic_block
    assert answer["ok"] and joined_peer(again, topic["topic_id"]), answer


def offered(project: str, **more: Any) -> str:
    arguments = {"project_root": project, "from_agent_id": "ann", "target": PYTHON, "visibility": "public"}
    handoff_id: str = data("handoff_create", **arguments | more)["handoff_id"]
    return handoff_id


def taken(project: str, agent_id: str, **more: Any) -> Answer:
    """The arguments of a holder's step on a new handoff."""
    step = {"project_root": project, "handoff_id": offered(project, **more), "agent_id": agent_id}
    data("handoff_claim", **step)
    return step


def codes(answers: tuple[Answer, Answer]) -> list[str]:
    return ["done" if answer["ok"] else answer["error"]["code"] for answer in answers]


@pytest.mark.usefixtures("team")
class TestHandoffs:
    def test_one_agent_claims_it(self, project: str) -> None:
        step = {"project_root": project, "handoff_id": offered(project)}
        answers = twice("handoff_claim", {"agent_id": "bob"}, {"agent_id": "cleo"}, **step)
        assert codes(answers) == ["done", "HANDOFF_ALREADY_CLAIMED"]

    def test_it_ends_once(self, project: str) -> None:
        step = taken(project, "bob")
        answers = beside(lambda: call("handoff_complete", **step), lambda: call("handoff_reject", **step))
        assert codes(answers) == ["done", "INVALID_TRANSITION"]

    def test_an_agent_has_no_more_open_than_it_may(self, project: str, tmp_path: Path) -> None:
        limits = {"agent_id": "ann", "limits": {"open_handoffs": 1}}
        assert run(OPERATOR, "limits_update", limits)["ok"]
        (tmp_path / "other").mkdir()
        each = ({"project_root": str(root)} for root in (project, tmp_path / "other"))
        answers = twice("handoff_create", *each, from_agent_id="ann", target=PYTHON, visibility="public")
        assert codes(answers) == ["done", "QUOTA_EXCEEDED"]

    def test_it_is_made_once_for_its_client_id(self, project: str, tmp_path: Path) -> None:
        data("workspace_resolve", project_root=project)
        arguments = {"from_agent_id": "ann", "target": PYTHON, "visibility": "public", "client_id": "once"}
        one, two = twice("handoff_create", project_root=project, **arguments)
        assert one["data"]["handoff_id"] == two["data"]["handoff_id"] == Handoff.objects.get().handoff_id

    def test_two_agents_make_its_workspace_once(self, project: str) -> None:
        each = ({"from_agent_id": name} for name in ("ann", "bob"))
        assert codes(twice("handoff_create", *each, project_root=project, target=PYTHON, visibility="public")) == [
            "done",
            "done",
        ]

    def test_it_is_offered_once_all_that_it_waits_for_is_completed(self, project: str) -> None:
        steps = [taken(project, name) for name in ("bob", "cleo")]
        handoff_id = offered(project, depends_on=[step["handoff_id"] for step in steps])
        twice("handoff_complete", *steps)
        assert Event.objects.filter(handoff_id=handoff_id, type="handoff.unblocked").count() == 1

    @pytest.mark.parametrize(("end", "code"), [("complete", "done"), ("reject", "VALIDATION_ERROR")])
    def test_it_waits_for_nothing_that_ends_meanwhile(self, end: str, code: str, project: str) -> None:
        step = taken(project, "bob")
        arguments = {"project_root": project, "from_agent_id": "ann", "target": PYTHON, "visibility": "public"}
        answers = beside(
            lambda: call(f"handoff_{end}", **step),
            lambda: call("handoff_create", **arguments, depends_on=[step["handoff_id"]]),
        )
        assert codes(answers) == ["done", code]
        assert not Dependency.objects.filter(done=False).exists()

    def test_a_late_result_is_kept_once(self, project: str) -> None:
        with time_machine.travel(datetime.now(UTC) - timedelta(days=1)):
            step = taken(project, "bob")
        data("handoff_claim", **step | {"agent_id": "cleo"})
        assert codes(twice("handoff_complete", **step, result="late")) == ["NOT_OWNER", "NOT_OWNER"]
        assert Remark.objects.count() == 1


@pytest.mark.usefixtures("team")
class TestReservations:
    @staticmethod
    def reserves(agent_id: str, project: str, *paths: str, **more: Any) -> Call:
        asked = {"project_root": project, "agent_id": agent_id, "paths": list(paths), **more}
        return partial(call_of, FILES, agent_id, "files_reserve", **asked)

    def test_one_agent_has_a_path(self, project: str) -> None:
        each = (self.reserves(name, project, "src/app.py") for name in ("ann", "bob"))
        assert codes(beside(*each)) == ["done", "FILES_RESERVED"]

    @pytest.mark.usefixtures("runs_git")
    def test_nor_have_two_of_them_it_in_two_work_trees(self, tmp_path: Path) -> None:
        repo = Repo.make(tmp_path / "repo")
        repo.ok("worktree", "add", "-q", str(tmp_path / "tree"))
        one = self.reserves("ann", str(tmp_path / "repo"), "a.py")
        other = self.reserves("bob", str(tmp_path / "tree"), "a.py")
        assert codes(beside(one, other)) == ["done", "FILES_RESERVED"]

    def test_one_whose_holder_acts_elsewhere_at_its_last_moment_goes_on(
        self, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "other").mkdir()
        session_id = opened("ann", str(tmp_path / "other"))
        with time_machine.travel(datetime.now(UTC), tick=False) as clock:
            assert self.reserves("ann", project, "a.py", seconds=60)()["ok"]
            clock.shift(60)
            # Nothing has lapsed when a call looks for that, and a second is over when its transaction begins.
            monkeypatch.setattr(reservations, "_record_ends_first", lambda: clock.shift(1))
            renewal = partial(call, "session_heartbeat", session_id=session_id)
            wish = self.reserves("bob", project, "a.py", ask=True)
            assert codes(beside(renewal, wish)) == ["done", "FILES_RESERVED"]

    def test_an_agent_has_no_more_than_it_may(self, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reservations, "MOST_HELD", 1)
        each = (self.reserves("ann", project, path) for path in ("a.py", "b.py"))
        assert codes(beside(*each)) == ["done", "VALIDATION_ERROR"]

    def test_its_client_id_is_that_of_one_wish(self, project: str, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        roots = (project, str(tmp_path / "other"))
        each = (self.reserves("ann", root, "a.py", client_id="once") for root in roots)
        assert codes(beside(*each)) == ["done", "VALIDATION_ERROR"]

    def test_it_is_released_once(self, project: str) -> None:
        self.reserves("ann", project, "a.py")()
        releases = partial(call_of, FILES, "ann", "files_release", project_root=project, agent_id="ann")
        assert codes(beside(releases, releases)) == ["done", "done"]
        assert count("file.released") == 1

    def test_all_who_asked_for_it_are_kept(self, project: str) -> None:
        self.reserves("ann", project, "a.py")()
        beside(*(self.reserves(name, project, "a.py", ask=True) for name in ("bob", "cleo")))
        assert Reservation.objects.get().asked_by == ["bob", "cleo"]


@pytest.mark.usefixtures("team")
class TestPlanning:
    @pytest.fixture
    def machines(self, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A project of two machines: the second of two calls at once is made on the other one, in its directory."""
        here = threading.current_thread()
        roots = {"here": project, "there": str(tmp_path / "there")}
        (tmp_path / "there").mkdir()
        monkeypatch.setattr(directory, "machine", lambda: "here" if threading.current_thread() is here else "there")
        monkeypatch.setattr(mirror, "Directory", lambda root: directory.Directory(roots[directory.machine()]))
        return project

    @staticmethod
    def add(agent_id: str, project: str) -> Answer:
        return call_of(PLANNING, agent_id, "task_add", project_root=project, title="t", context="c")

    @staticmethod
    def update(agent_id: str, project: str, status: str = "in_progress", **more: Any) -> Answer:
        return call_of(PLANNING, agent_id, "task_update", project_root=project, id=1, status=status, **more)

    def test_tasks_have_numbers_of_their_own(self, machines: str) -> None:
        assert codes(beside(partial(self.add, "ann", machines), partial(self.add, "bob", machines))) == ["done", "done"]
        assert list(Task.objects.order_by("number").values_list("number", "position")) == [(1, 1), (2, 2)]

    def test_one_is_begun_once(self, machines: str) -> None:
        self.add("ann", machines)
        begins = (partial(self.update, name, machines) for name in ("ann", "bob"))
        assert codes(beside(*begins)) == ["done", "done"]
        assert (Task.objects.get().claim_epoch, count("task.updated")) == (1, 1)

    def test_who_holds_an_earlier_claim_changes_nothing(self, machines: str) -> None:
        self.add("ann", machines)
        epoch = self.update("ann", machines)["data"]["claim_epoch"]
        self.update("ann", machines, "pending")
        answers = beside(
            partial(self.update, "bob", machines), partial(self.update, "ann", machines, "completed", claim_epoch=epoch)
        )
        assert codes(answers) == ["done", "STALE_CLAIM"]

    def test_one_whose_handoff_is_claimed_is_not_begun_again(self, project: str) -> None:
        self.add("ann", project)
        claim = {"project_root": project, "handoff_id": offered(project, task_id=1), "agent_id": "bob"}
        answers = beside(partial(call, "handoff_claim", **claim), partial(self.update, "cleo", project))
        assert codes(answers) == ["done", "done"]
        assert (Task.objects.get().claim_epoch, count("task.updated")) == (1, 1)

    def test_a_cycle_is_closed_once(self, machines: str) -> None:
        self.add("ann", machines)
        closes = (partial(call_of, PLANNING, name, "task_close", project_root=machines) for name in ("ann", "bob"))
        beside(*closes)
        closed = Event.objects.filter(type="cycle.closed").order_by("pk")
        assert [event.payload["tasks"] for event in closed] == [1, 0]


@pytest.mark.usefixtures("team")
def test_calls_wait_for_nobody_in_another_workspace(project: str, tmp_path: Path) -> None:
    session_id = opened("ann", project)
    at_once([lambda: data("session_heartbeat", session_id=session_id)])  # what is done once is done
    handoff = {"project_root": project, "handoff_id": offered(project), "agent_id": "bob"}
    calls: dict[str, Answer] = {
        "agent_register": {"agent_id": "ann"},
        "workspace_resolve": {"project_root": project},
        "session_heartbeat": {"session_id": session_id},
        "artifact_put": {"project_root": project, "artifact_type": "text", "content": "c"},
        "channel_create": {"project_root": project, "name": "news"},
        "join": {"project_root": project, "agent_id": "ann"},
        "session_close": {"session_id": session_id},
        "handoff_create": {
            "project_root": project,
            "from_agent_id": "ann",
            "target": {"strategy": "direct", "agent_id": "bob"},
            "visibility": "public",
        },
        "handoff_claim": handoff,
        "handoff_start": handoff,
        "handoff_extend": handoff,
        "handoff_block": {**handoff, "reason": "r"},
        "handoff_complete": handoff,
    }

    files = {"project_root": project, "agent_id": "ann"}
    others: list[tuple[Toolset, str, Answer]] = [
        (FILES, "files_reserve", {**files, "paths": ["a.py"]}),
        (FILES, "files_extend", files),
        (FILES, "files_release", files),
        (PLANNING, "plan_start", {"project_root": project, "topic": "t", "issues": ["i"], "research_summary": "r"}),
        (PLANNING, "plan_decide", {"project_root": project, "issue_id": 1, "summary": "s"}),
        (PLANNING, "task_add", {"project_root": project, "title": "t", "context": "c"}),
        (PLANNING, "task_update", {"project_root": project, "id": 1, "status": "completed"}),
        (PLANNING, "artifact_write", {"project_root": project, "filename": "f", "content": "c"}),
        (PLANNING, "task_close", {"project_root": project}),
    ]

    def go() -> None:
        with store().without_waiting():
            for name, arguments in calls.items():
                data(name, **arguments)
            for toolset, name, arguments in others:
                answer = call_of(toolset, "ann", name, **arguments)
                assert answer["ok"], answer
            sessions.keep_present({"bob"}, set())
            assert Agent.objects.get(pk="bob").connected_at is not None
            assert health._writable()

    with write("another workspace", "another agent"):
        at_once([go])


class TestTopics:
    @pytest.fixture
    def topic(self) -> str:
        topic_id: str = Client().call("topic_create", name="t")["topic_id"]
        return topic_id

    @staticmethod
    def beside(*calls: tuple[Client, str, Answer]) -> list[str]:
        """How two calls ended, the second of which was made before the first one committed."""
        first, second = (partial(dispatch.run, TOPICS, client.caller, name, more) for client, name, more in calls)
        return [body["error"]["code"] if "error" in body else "done" for body in beside(first, second)]

    def test_a_name_leads_to_one(self) -> None:
        create = (Client(), "topic_create", {"name": "n", "mode": "reuse"})
        assert self.beside(create, create) == ["done", "done"]
        assert Topic.objects.count() == 1

    def test_one_peer_has_a_name(self, topic: str) -> None:
        join = {"topic_id": topic, "agent_name": "ann"}
        assert self.beside((Client(), "topic_join", join), (Client(), "topic_join", join)) == [
            "done",
            "AGENT_NAME_IN_USE",
        ]

    def test_messages_have_numbers_of_their_own_and_each_is_sent_once(self, topic: str) -> None:
        client, other = Client(), Client()
        client.join(topic, "ann")
        other.join(topic, "bob")
        said: Answer = {"topic_id": topic, "wait_seconds": 0}
        said["outbox"] = [{"content_markdown": "m", "client_message_id": "once"}]
        again = (client, "sync", said)
        assert self.beside(again, again) == ["done", "done"]
        assert self.beside((client, "sync", said | {"outbox": [{"content_markdown": "m"}]}), (other, "sync", said)) == [
            "done",
            "done",
        ]
        assert list(TopicMessage.objects.order_by("seq").values_list("seq", flat=True)) == [1, 2, 3]

    def test_one_that_is_closed_takes_nothing(self, topic: str) -> None:
        client = Client()
        client.join(topic, "ann")
        said = {"topic_id": topic, "outbox": [{"content_markdown": "m"}], "wait_seconds": 0}
        assert self.beside((Client(), "topic_close", {"topic_id": topic}), (client, "sync", said)) == [
            "done",
            "TOPIC_CLOSED",
        ]


AGENTS = ("ann", "bob", "cleo", "dan")
CALLS = 40  # of each thread


class Crowd:
    """Agents that do anything at all in several workspaces, at once; what they make is known to all."""

    def __init__(self, roots: list[str]) -> None:
        self.roots = roots
        self.sessions = [opened(name, root) for name in AGENTS for root in roots]
        self.handoffs: list[tuple[str, str]] = []  # with the project of each

    def act(self, chance: random.Random) -> None:
        """One call, of whatever kind; a refusal is as good as a success."""
        agent, root = chance.choice(AGENTS), chance.choice(self.roots)
        acts = [self.step] * 4 + [self.hand_over, self.plan, self.reserve] * 2 + [self.send, self.read, self.beat]
        chance.choice(acts)(chance, agent, root)

    def hand_over(self, chance: random.Random, agent: str, root: str) -> None:
        target = chance.choice([PYTHON, {"strategy": "direct", "agent_id": chance.choice(AGENTS)}])
        here = [handoff_id for handoff_id, project in self.handoffs[-8:] if project == root]
        arguments = {"project_root": root, "from_agent_id": agent, "target": target, "visibility": "public"}
        made = call("handoff_create", **arguments, depends_on=chance.sample(here, min(len(here), 2)))
        if made["ok"]:
            self.handoffs.append((made["data"]["handoff_id"], root))

    def step(self, chance: random.Random, agent: str, root: str) -> None:
        if not self.handoffs:
            return
        handoff_id, root = chance.choice(self.handoffs[-12:])
        verb = chance.choice(["claim", "claim", "start", "block", "extend", "complete", "complete", "reject", "cancel"])
        more = {"reason": "r"} if verb == "block" else {}
        call(f"handoff_{verb}", project_root=root, handoff_id=handoff_id, agent_id=agent, **more)

    def send(self, chance: random.Random, agent: str, root: str) -> None:
        target = chance.choice([{"strategy": "broadcast"}, {"strategy": "direct", "agent_id": chance.choice(AGENTS)}])
        call("message_create", project_root=root, from_agent_id=agent, subject="s", body="b", target=target)

    def read(self, chance: random.Random, agent: str, root: str) -> None:
        pulled = data("inbox_pull", agent_id=agent)["messages"]
        data("inbox_ack", agent_id=agent, message_ids=[message["message_id"] for message in pulled])

    def beat(self, chance: random.Random, agent: str, root: str) -> None:
        call("session_heartbeat", session_id=chance.choice(self.sessions))

    def plan(self, chance: random.Random, agent: str, root: str) -> None:
        if chance.random() < 0.3:
            call_of(PLANNING, agent, "task_add", project_root=root, title="t", context="c", deps=[1])
            return
        status = chance.choice(["pending", "in_progress", "completed"])
        call_of(PLANNING, agent, "task_update", project_root=root, id=chance.randint(1, 3), status=status)

    def reserve(self, chance: random.Random, agent: str, root: str) -> None:
        verb, paths = chance.choice(["reserve", "reserve", "release", "extend"]), chance.sample(PATHS, 2)
        call_of(FILES, agent, f"files_{verb}", project_root=root, agent_id=agent, paths=paths)


PATHS = ["a.py", "b.py", "src/c.py", "docs/"]


def check_tasks() -> None:
    """That each has a number of its own, and was begun as often as its epoch says."""
    told = Counter(
        (event.workspace_id, event.payload["task_id"])
        for event in Event.objects.filter(type="task.updated")
        if event.payload.get("status") == "in_progress"
    )
    tasks = list(Task.objects.all())
    assert len({(task.workspace_id, task.number) for task in tasks}) == len(tasks)
    assert {(task.workspace_id, task.number): task.claim_epoch for task in tasks if task.claim_epoch} == told


def check_reservations() -> None:
    """That at no time two agents had one path."""
    holders: dict[tuple[str | None, str], str] = {}
    for event in Event.objects.filter(stream="file").order_by("pk"):
        agent = event.payload.get("holder") or event.actor_agent_id
        for path in ((event.workspace_id, pattern) for pattern in event.payload["patterns"]):
            if event.type == "file.released":
                assert holders.pop(path) == agent
            else:
                assert holders.setdefault(path, str(agent)) == agent, event.type
    held = Reservation.objects.unended().values_list("workspace_id", "pattern", "agent_id")
    assert {(workspace_id, pattern): agent for workspace_id, pattern, agent in held} == holders


def check_handoffs() -> None:
    """That each was claimed as often as its epoch says, has one end, and waits for nothing that is completed."""
    for handoff in Handoff.objects.all():
        told = Counter(Event.objects.filter(handoff_id=handoff.pk, stream="handoff").values_list("type", flat=True))
        ends = sum(told[f"handoff.{end}"] for end in ("completed", "rejected", "cancelled"))
        assert (told["handoff.created"], told["handoff.claimed"]) == (1, handoff.claim_epoch), told
        assert ends == (handoff.status in SETTLED), (handoff.status, told)
        waits_for = list(handoff.dependencies.select_related("depends_on"))
        assert all(each.done is (each.depends_on.status == "COMPLETED") for each in waits_for)
        became_free = bool(waits_for) and all(each.done for each in waits_for)
        assert told["handoff.unblocked"] <= became_free, told
    open_ones = Counter(Handoff.objects.filter(status="OPEN").values_list("from_agent_id", flat=True))
    assert max(open_ones.values(), default=0) <= MOST_OPEN


MOST_OPEN = 2


@pytest.mark.usefixtures("team")
def test_a_crowd_leaves_a_store_in_order_and_a_follower_misses_nothing(tmp_path: Path) -> None:
    data("agent_register", agent_id="dan", capabilities=["python"])
    assert run(OPERATOR, "limits_update", {"role": "maker", "limits": {"open_handoffs": MOST_OPEN}})["ok"]
    for name in AGENTS:
        data("agent_register", agent_id=name, role="maker")
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root in roots:
        root.mkdir()
    crowd = Crowd([str(root) for root in roots])
    over = threading.Event()
    seen: list[int] = []

    def go(number: int) -> None:
        chance = random.Random(number)
        for _ in range(CALLS):
            crowd.act(chance)

    def follow() -> None:
        last = False
        while not last:
            last = over.is_set()
            seen.extend(
                Event.objects.filter(pk__gt=seen[-1] if seen else 0).order_by("pk").values_list("pk", flat=True)
            )

    following = threading.Thread(target=follow)
    following.start()
    try:
        at_once([partial(go, number) for number in range(8)])
    finally:
        over.set()
        following.join()
    assert seen == list(Event.objects.order_by("pk").values_list("pk", flat=True))
    check_handoffs()
    check_tasks()
    check_reservations()
