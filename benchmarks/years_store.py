"""One of the two stores of `benchmarks.years`: fills it, and calls what it is asked to, a line of JSON each."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness import seconds, set_up
from benchmarks.pages import fill_plan, fill_pool, pages

TASKS, OF_A_CYCLE = 5_000, 50
EXPERTS = 3  # agents of a role and a capability of their own, and with a session in a project of their own
BUSY, QUIET = "agent-000", "expert-0"

Call = Callable[[], Any]


def main() -> None:
    home, scale, open_tasks = Path(sys.argv[1]).resolve(), float(sys.argv[2]), int(sys.argv[3])
    os.environ["NEXUS_CONTROL"] = "true"
    answers = sys.stdout
    with redirect_stdout(sys.stderr):
        set_up(home, "nexus_site.settings")
        known = filled(home, scale, open_tasks)

        @cache
        def calls() -> list[tuple[str, Call]]:
            return list(Calls(home, known).by_name().items())

        answer: dict[str, Callable[[Any], Any]] = {
            "calls": lambda _: [name for name, _ in calls()],
            "call": lambda number: taken(*calls()[number]),
            "upkeep": lambda copied: upkeep(home, Path(copied)),
            "prune": lambda days: prune(days),
        }
        print(json.dumps(known["counts"]), file=answers, flush=True)
        for line in sys.stdin:
            [(asked, of)] = json.loads(line).items()
            print(json.dumps(answer[asked](of)), file=answers, flush=True)


def taken(name: str, call: Call) -> float | None:
    """The ms of CPU that a call takes; None, and why on stderr, where it fails."""
    before = time.process_time()
    try:
        call()
    except Exception as error:
        print(f"{name}: {error!r}"[:500])
        return None
    return (time.process_time() - before) * 1000


def filled(home: Path, scale: float, open_tasks: int) -> dict[str, Any]:
    """Fill the store, unless it is a copy of one: what it was filled with."""
    noted = home / "filled.json"
    if noted.exists():
        return dict(json.loads(noted.read_text()))
    from benchmarks.fill import YEARS, fill_store

    end, began = datetime.now(UTC), time.monotonic()
    sizes = YEARS.scaled(scale)._replace(agents=max(int(YEARS.agents * scale), 10))
    for name in ("filled", "few"):
        (home / name).mkdir()
    known = fill_store(sizes, end, home / "filled")
    known["plan"] = fill_plan(home, max(int(TASKS * scale) // OF_A_CYCLE, 1), open_tasks)
    known["pool"] = fill_pool(home, end)
    fill_experts(home, end)
    known["counts"]["seconds"] = round(time.monotonic() - began)
    noted.write_text(json.dumps(known))
    return known


def fill_experts(home: Path, end: datetime) -> None:
    """A few agents beside the many, in a project of their own."""
    from coordination.models import Agent, Session, Workspace
    from coordination.services.workspaces import locate

    place = locate(str(home / "few"))
    workspace = Workspace.objects.create(
        workspace_id=place.workspace_id, root_realpath=str(place.root), created_at=end, last_seen_at=end
    )
    names = [f"expert-{number}" for number in range(EXPERTS)]
    Agent.objects.bulk_create(
        Agent(agent_id=name, role="expert", capabilities=["rust"], created_at=end, updated_at=end) for name in names
    )
    Session.objects.bulk_create(
        Session(
            session_id=f"ses_{name}", agent_id=name, workspace=workspace, secret_hash="-", started_at=end,
            last_heartbeat_at=end + timedelta(days=1),
        )
        for name in names
    )  # fmt: skip


def upkeep(home: Path, copied: Path) -> dict[str, float]:
    """The seconds that looking at the whole store takes; the backup becomes the store of another home, `copied`."""
    from nexus.core.config import CoreSettings
    from nexus.maintenance import backup, doctor

    config = CoreSettings.current()
    shutil.copytree(home, copied, ignore=shutil.ignore_patterns("nexus.db*"))
    copied.chmod(0o700)
    return {
        "doctor": seconds(lambda: doctor.examine(config)),
        "backup": seconds(lambda: backup.back_up(config.database, copied / "nexus.db")),
    }


def prune(days: int) -> dict[str, float]:
    """Delete so many days at the beginning, as `nexus prune` does: rows, seconds, ms of the longest transaction."""
    from coordination.models import Event
    from nexus.maintenance import retention
    from nexus.maintenance.management.commands.prune import BATCHES_A_CALL

    first = Event.objects.order_by("event_id")[0].created_at
    keep_days = dict.fromkeys(("events", "read_deliveries"), (datetime.now(UTC) - first).days - days)
    rows, began = 0, time.monotonic()
    while gone := sum(
        rule.deleted for rule in retention.prune(keep_days=keep_days, max_batches=BATCHES_A_CALL).values()
    ):
        rows += gone
    longest = max(pace.longest for pace in retention.paces.values())
    return {"rows": rows, "seconds": time.monotonic() - began, "longest transaction, ms": 1000 * longest}


class Calls:
    """What is called, by name. A call that writes leaves a store as large as it was, but for a row or two."""

    def __init__(self, home: Path, known: dict[str, Any]) -> None:
        from django.test import Client

        from nexus.core.operations.caller import Caller

        self.known = known
        self.filled, self.project, self.planned = (str(home / name) for name in ("filled", "few", "planned"))
        self.browser = Client(headers={"host": "127.0.0.1:8420"})
        self.caller = Caller(transport="years", connection="years")
        self.operator = Caller(transport="years", operator="olga")
        self.numbers = itertools.count(time.time_ns())

    def by_name(self) -> dict[str, Call]:
        lists = {f"GET {path}": lambda path=path: self.get(f"/api/v1/{path}") for path in self.lists()}
        shown = {f"GET {path}": lambda path=path: self.get(path) for path in pages(self.known)}
        return {**self.operations(), **lists, **shown, **self.upkeep()}

    def get(self, address: str) -> Any:
        from coordination.switcher import COOKIE

        self.browser.cookies.pop(COOKIE, None)  # the workspace of the page before
        answer = self.browser.get(address)
        if answer.streaming:
            for _ in answer:
                pass
        assert answer.status_code == 200, (address, answer.status_code, answer.content[:300])
        return answer

    def do(self, name: str, toolset: str = "coordination", /, **arguments: Any) -> Any:
        """What an operation answers an agent."""
        return self.called(self.caller, name, toolset, arguments)

    def lead(self, name: str, toolset: str = "coordination", /, **arguments: Any) -> Any:
        """What it answers an operator."""
        return self.called(self.operator, name, toolset, arguments)

    def called(self, caller: Any, name: str, toolset: str, arguments: dict[str, Any]) -> Any:
        from nexus.core.operations import dispatch
        from nexus.core.operations.registry import TOOLSETS

        answer = dict(dispatch.perform(TOOLSETS[toolset], caller, name, arguments).result())
        assert answer.get("ok", True), answer
        return answer.get("data", answer)

    def send(self, sender: str = "expert-1", **target: Any) -> Any:
        letter = {"from_agent_id": sender, "subject": "A part", "body": "It is done.", "target": target or None}
        return self.do("message_create", project_root=self.project, **letter)

    def take(self, agent: str) -> None:
        mail = self.do("inbox_pull", agent_id=agent, limit=1)["messages"]
        self.do("inbox_ack", agent_id=agent, message_ids=[each["message_id"] for each in mail] or ["msg_none"])

    def hand_over(self, verifier: Any = None, **target: Any) -> str:
        made = self.do(
            "handoff_create", project_root=self.project, from_agent_id="expert-1", target=target, visibility="public",
            title="A part", verifier=verifier,
        )  # fmt: skip
        return str(made["handoff_id"])

    def settle(self, verifier: Any = None) -> None:
        made = self.hand_over(verifier, strategy="direct", agent_id=QUIET)
        of = {"project_root": self.project, "agent_id": QUIET, "handoff_id": made}
        self.do("handoff_claim", **of)
        self.do("handoff_complete", **of, result="done")

    def reserve(self, *paths: str) -> None:
        where = {"project_root": self.filled, "agent_id": QUIET}
        self.do("files_reserve", "files", **where, paths=list(paths))
        self.do("files_release", "files", **where, paths=list(paths))

    def sync(self) -> None:
        room = {"topic_id": self.known["topics"]["long"]}
        self.do("topic_join", "topics", **room, agent_name=f"peer-{next(self.numbers)}")
        self.do("cursor_reset", "topics", **room, last_seq=1)
        self.do("sync", "topics", **room, wait_seconds=0, max_items=5, outbox=[{"content_markdown": "Good morning."}])

    def operations(self) -> dict[str, Call]:
        from coordination.log.selectors import newest_event_id

        do, lead, here, planned = self.do, self.lead, {"project_root": self.project}, {"project_root": self.planned}
        filled = {"project_root": self.filled}
        log = {**filled, "agent_id": "agent-007", "stream": "workspace"}
        head, few = newest_event_id(), do("workspace_resolve", **here)["workspace_id"]
        task = {"title": "A part", "context": "It is slow."}
        return {
            "agent_list, a page": lambda: do("agent_list", limit=50),
            "agent_get": lambda: do("agent_get", agent_id=QUIET),
            "agent_register": lambda: do("agent_register", agent_id=QUIET, role="expert", capabilities=["rust"]),
            "capability_list": lambda: do("capability_list"),
            "workspace_list": lambda: do("workspace_list"),
            "channel_list": lambda: do("channel_list", **filled),
            "artifact_list": lambda: lead("artifact_list", **filled),
            "session_open, session_close": lambda: do(
                "session_close", session_id=do("session_open", agent_id=QUIET, workspace_id=few)["session_id"]
            ),
            "event_cursor": lambda: do("event_cursor", **log),
            "event_get": lambda: do("event_get", **log, cursor=head - 50),
            "event_get of a handoff": lambda: do(
                "event_get", **{**log, "stream": "handoff"}, cursor=0, filters={"handoff_id": self.known["handoff"]}
            ),
            "event_get of a rare type": lambda: do("event_get", **log, cursor=0, filters={"type": "artifact.removed"}),
            "shared_md_render": lambda: do("shared_md_render", workspace_id=self.known["workspace"]),
            "message_create to one": lambda: self.send(strategy="direct", agent_id=QUIET),
            "message_create to a role": lambda: self.send(strategy="role", role="expert"),
            "message_create to a capability": lambda: self.send(strategy="capability", capability="rust"),
            "message_create to all present": lambda: self.send(),
            "inbox_pull, inbox_ack": lambda: self.take(QUIET),
            "inbox_pull, inbox_ack of a busy agent": lambda: self.take(BUSY),
            "inbox_peek of a busy agent": lambda: do("inbox_peek", agent_id=BUSY),
            "inbox_count": lambda: do("inbox_count", agent_id=QUIET),
            "inbox_count of a busy agent": lambda: do("inbox_count", agent_id=BUSY),
            "inbox_history of a busy agent": lambda: do("inbox_history", agent_id=BUSY),
            "message_status": lambda: do("message_status", message_id=self.known["message"]),
            "handoff_create to one": lambda: self.hand_over(strategy="direct", agent_id=QUIET),
            "handoff_create to a role": lambda: self.hand_over(strategy="role", role="expert"),
            "handoff_create to a capability": lambda: self.hand_over(strategy="capability", capability="rust"),
            "handoff_create to everyone": lambda: self.hand_over(strategy="broadcast"),
            "handoff_create, claim, complete": self.settle,
            "handoff_create, claim, submit to a role": lambda: self.settle(verifier={"role": "expert"}),
            "handoff_list_available": lambda: do("handoff_list_available", **filled, agent_id="agent-007"),
            "handoff_list_available, nothing there": lambda: do(
                "handoff_list_available", **filled, agent_id=QUIET, cursor=0
            ),
            "handoff_mine": lambda: do("handoff_mine", agent_id="agent-007"),
            "handoff_list": lambda: lead("handoff_list"),
            "handoff_list of a project": lambda: lead("handoff_list", **filled, status="COMPLETED"),
            "handoff_read": lambda: lead("handoff_read", handoff_id=self.known["handoff"]),
            "dead_letter_list": lambda: lead("dead_letter_list"),
            "dead_letter_list of an agent": lambda: lead("dead_letter_list", agent_id="agent-007"),
            "topic_list, a page": lambda: do("topic_list", "topics", limit=50),
            "topic_overview": lambda: lead("topic_overview", "topics"),
            "topic_read": lambda: lead("topic_read", "topics", topic_id="tpc_long"),
            "topic_presence": lambda: do("topic_presence", "topics", topic_id="tpc_long"),
            "topic_join, cursor_reset, sync": self.sync,
            "messages_search of a common word": lambda: self.search("cache"),
            "messages_search of a common word in a small topic": lambda: self.search("cache", topic_id="tpc_short"),
            "messages_search of a common beginning in a small topic": lambda: self.search("wri", topic_id="tpc_short"),
            "messages_search of a rare word": lambda: self.search("zebra"),
            "task_list": lambda: do("task_list", "planning", **planned),
            "task_add, task_update": lambda: do(
                "task_update", "planning", **planned, id=do("task_add", "planning", **planned, **task)["task"]["id"],
                status="completed",
            ),
            "plan_status": lambda: do("plan_status", "planning", **planned),
            "context": lambda: do("context", "planning", **planned),
            "history_search": lambda: do("history_search", "planning", **planned, query="never was"),
            "files_reserve of a file": lambda: self.reserve("src/area_3/new.py"),
            "files_reserve of a directory's glob": lambda: self.reserve("docs/*.md"),
            "files_reserve of a glob anywhere": lambda: self.reserve("**/generated_*/x"),
            "files_who": lambda: do("files_who", "files", **filled, path="src/area_3/part_1/module_3.py"),
            "files_list": lambda: lead("files_list", "files"),
            "limits_list": lambda: lead("limits_list"),
            "nexus_info": lambda: do("nexus_info"),
            "workspace_resolve": lambda: do("workspace_resolve", **here),
        }  # fmt: skip

    def search(self, query: str, **more: Any) -> None:
        self.do("messages_search", "topics", query=query, mode="fts", **more)

    def lists(self) -> list[str]:
        """The REST lists that `python -m benchmarks.years` asks for."""
        place, day = self.known["workspace"], f"{datetime.now(UTC) - timedelta(days=300):%Y-%m-%d}T00:00:00Z"
        return [
            "workspaces", "agents", "agents?role=expert", "capabilities", "sessions", f"sessions?workspace={place}",
            "sessions?agent=agent-007", "sessions?status=closed", "channels", "artifacts",
            f"artifacts?workspace={place}", f"artifacts?workspace={place}&artifact_type=file", "artifacts?name=no",
            "events", f"events?workspace={place}", "events?type=artifact.removed", "events?type=handoff.claimed",
            "events?actor_agent_id=agent-007", "events?actor_agent_id=nobody", "events?stream=handoff",
            f"events?workspace={place}&stream=planning", "events?stream=planning",
            f"events?handoff_id={self.known['handoff']}", "events?task_id=7", f"events?created_at__lt={day}",
            f"events?created_at__gte={day}&ordering=event_id",
            "messages", "messages?recipient=agent-000", "messages?recipient=agent-007", "messages?recipient=nobody",
            f"messages?workspace={place}", f"messages?workspace={place}&recipient=agent-007",
            "messages?from_agent_id=agent-007", "messages?from_agent_id=nobody", "messages?channel=none",
            "messages?parent_message_id=none", f"messages?created_at__lt={day}",
            f"messages?created_at__gte={day}&ordering=message_id", "messages?ordering=from_agent_id",
            "deliveries", "deliveries?recipient=agent-000", "deliveries?recipient=agent-007",
            "deliveries?recipient=nobody", f"deliveries?workspace={place}", "deliveries?workspace=none",
            "deliveries?from_agent_id=agent-007", "deliveries?from_agent_id=nobody", "deliveries?status=parked",
            "deliveries?status=unread", "deliveries?status=read", "deliveries?status=delivered",
            "deliveries?recipient=agent-000&status=read", f"deliveries?created_at__lt={day}",
            "handoffs", "handoffs?status=OPEN", f"handoffs?workspace={place}", "handoffs?from_agent_id=agent-007",
        ]  # fmt: skip

    def upkeep(self) -> dict[str, Call]:
        from nexus.maintenance.retention import prune_a_batch, rules

        return {f"a batch of retention: {name}": lambda name=name: prune_a_batch(name) for name in rules()}  # type: ignore[misc]


if __name__ == "__main__":
    main()
