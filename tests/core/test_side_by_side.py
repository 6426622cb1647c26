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

from coordination.models import Artifact, Event, Session, Workspace
from coordination.toolset import run
from handoffs.models import SETTLED, Dependency, Handoff, Remark
from nexus.core.database.store import in_one_transaction, store, write
from nexus.core.operations import runner
from nexus.core.operations.caller import Caller
from nexus.topics.connections import joined_peer
from nexus.topics.models import Topic, TopicMessage
from nexus.topics.toolset import TOPICS
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL, OPERATOR, at_once
from tests.postgres import SERVER
from tests.topics.conftest import Client

pytestmark = [
    pytest.mark.skipif(not SERVER, reason="on PostgreSQL alone"),
    pytest.mark.django_db(transaction=True),
]

Answer = dict[str, Any]
PYTHON = {"strategy": "capability", "capability": "python"}
WAITING = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = %s"


def call(name: str, /, **arguments: Any) -> Answer:
    """The envelope of a call, which may be a refusal, but never a failure of the store or of the hub."""
    answer = run(LOCAL, name, arguments)
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
    topic = {"topic_id": runner.run(TOPICS, before, "topic_create", {"name": "t"})["topic_id"]}
    runner.run(TOPICS, before, "topic_join", {**topic, "agent_name": "ann"})
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

    def go() -> None:
        with store().without_waiting():
            for name, arguments in calls.items():
                data(name, **arguments)

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
        first, second = (partial(runner.run, TOPICS, client.caller, name, more) for client, name, more in calls)
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
        said = {"topic_id": topic, "outbox": [{"content_markdown": "m", "client_message_id": "once"}]}
        again = (client, "sync", {**said, "wait_seconds": 0})
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
        acts = [self.step] * 4 + [self.hand_over] * 2 + [self.send, self.read, self.beat]
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
