"""Server time of every page of the dashboard over a large store: `python -m benchmarks.pages [--scale 1.0]`.

Fills a store with 200 agents, 200,000 messages, 630,000 events, 20,000 handoffs, 5,000 reservations held and 20,000
that ended, and a topic of 200,000 messages (times `--scale`), a plan of 60 tasks after 200 cycles of 50, and a pool
of 100 agents (`benchmarks.pool_pages`); then asks each page several times in this process, without a network, and
prints the median time of its CPU and by the clock, the worst, and the number of queries; at last what a long topic's
page costs beside an empty one's and a short one's, and which pages nobody asked for.
The store is thrown away, unless `--home DIR` says where it is kept: what is filled already is measured as it is.
`--only timeline` asks only pages with that in their address, and NEXUS_DATABASE_URL says which PostgreSQL to fill.
Exit code 1 when a page's median is over 300 ms (by the CPU; on PostgreSQL, whose own work that leaves out, by the
clock), or the long topic's over 1.5 times the empty one's, or a page is not asked for.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.pool_pages import fill_pool, pool_pages
from core.database import store

BUDGET_MS = 300
GROWTH = 1.5  # of a topic's page, from no message to 200,000
DAYS = 30
COURSE = ("claimed", "started", "blocked", "started", "submitted", "accepted")  # of a handoff, one every two minutes
HELD = 200  # handoffs that are in progress
NO_PAGES = frozenset(  # they only take a form, lead elsewhere, or are an export that is answered as it is read
    {"act", "message", "mark_read", "reset", "topic_join", "topic_close", "topic_rename", "topic_message",
     "topic_export", "event_export", "handoff_cancel", "agent_limits", "agent_key", "agent_delete",
     "agent_close_session", "plan_issue_new", "plan_issue_change", "task_status", "pool_cancel", "pool_compact",
     "limits_back", "pool_turn", "pool_end", "pool_merge", "pool_keep", "pool_discard"}
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--home", type=Path, help="where the store is kept")
    parser.add_argument("--only", default="", help="part of the pages' addresses")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nexus-pages-") as thrown_away:
        home = options.home or Path(thrown_away)
        known = prepare(home, options.scale)
        medians = measure([page for page in pages(known) if options.only in page], options.repeat)
        growth = 0.0 if options.only else compare(known["topics"], 4 * options.repeat)
        unasked = not_asked(pages(known))
    faults = [f"{page} is over {BUDGET_MS} ms" for page, median in medians.items() if median > BUDGET_MS]
    faults += [f"a long topic's page costs over {GROWTH} times an empty one's"] if growth > GROWTH else []
    faults += [f"nobody asked for {', '.join(unasked)}"] if unasked else []
    sys.exit("; ".join(faults) or 0)


def prepare(home: Path, scale: float) -> dict[str, Any]:
    """Fill the store of a home, unless that was done before; what the pages are asked for."""
    os.environ |= {"NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings", "NEXUS_CONTROL": "true"}
    import django

    django.setup()

    from coordination.models import Workspace

    store().prepare()
    filled = home / "filled.json"
    known: dict[str, Any] = json.loads(filled.read_text()) if filled.exists() else {}
    if not known and Workspace.objects.exists():
        sys.exit(f"{home} was filled by halves, or by something else: name another --home")
    parts: dict[str, Callable[[], Mapping[str, Any]]] = {
        "counts": partial(fill, scale),
        "plan": lambda: {"plan": fill_plan(home)},
        "pool": lambda: {"pool": fill_pool(home, datetime.now(UTC))},
    }
    for part in (
        part for part in parts if part not in known
    ):  # all, or what the benchmark did not have yet when the home was filled
        started = time.perf_counter()
        known |= parts[part]()
        print(f"filled in {time.perf_counter() - started:.0f} s, with {part}: {known['counts']}")
        filled.write_text(json.dumps(known))
    return known


def fill(scale: float) -> dict[str, Any]:
    """A month of a busy team, written in bulk; what the pages are asked for."""
    from django.db import transaction

    from coordination.ids import new_id
    from coordination.models import Agent, Artifact, Event, Session, Workspace
    from handoffs.models import Handoff
    from inbox.models import Delivery, Message
    from topics.models import TopicMessage

    rng = random.Random(7)  # the same store every time
    end = datetime.now(UTC)
    agents, messages, events, handoffs = 200, int(200_000 * scale), int(500_000 * scale), int(20_000 * scale)
    names = [f"agent-{i:03d}" for i in range(agents)]
    workspaces = [
        Workspace(
            workspace_id=f"{i:064x}",
            display_name=f"project {i}",
            root_realpath=f"/srv/project-{i}",
            created_at=end - timedelta(days=DAYS),
            last_seen_at=end,
        )
        for i in range(5)
    ]
    words = "parser index cache socket review branch merge test build deploy queue lease inbox worker plan".split()

    def at(i: int, of: int) -> datetime:
        return end - timedelta(days=DAYS) * (1 - (i + 1) / of)

    def timed_id(prefix: str, moment: datetime, i: int) -> str:
        return f"{prefix}_{int(moment.timestamp() * 1000):012x}{i:020x}"

    with transaction.atomic():
        Workspace.objects.bulk_create(workspaces)
        Agent.objects.bulk_create(
            Agent(
                agent_id=name,
                role=rng.choice(["worker", "reviewer"]),
                capabilities=[rng.choice(words)],
                created_at=end,
                updated_at=end,
                last_seen_at=end,
            )
            for name in names
        )
        Session.objects.bulk_create(
            Session(
                session_id=new_id("ses"),
                agent_id=name,
                workspace=rng.choice(workspaces),
                secret_hash="-",
                started_at=end,
                last_heartbeat_at=end - timedelta(seconds=rng.choice([5, 300, 90_000])),
            )
            for name in names
            for _ in range(5)
        )
        Artifact.objects.bulk_create(
            Artifact(
                artifact_id=new_id("art"),
                workspace=rng.choice(workspaces),
                artifact_type="text",
                content="x" * 500,
                size_bytes=500,
                content_type="text/plain",
                created_at=end,
            )
            for _ in range(2000)
        )
    every, created = messages // handoffs, dict[int, Event]()  # messages to a handoff; by handoff, its first event

    def step(number: int, what: str, moment: datetime) -> Event:
        return Event(
            workspace=workspaces[number % 5],
            stream="handoff",
            type=f"handoff.{what}",
            actor_agent_id=names[(number if what == "created" else number * 7 + 3) % agents],
            payload={"handoff_id": timed_id("hnd", at(number, handoffs), number)},
            handoff_id=timed_id("hnd", at(number, handoffs), number),
            created_at=moment,
        )

    def standing(number: int) -> dict[str, Any]:
        """What became of a handoff: one of twelve is open, of the newest some are held, every third lease ran out."""
        if number % 12 == 0:
            return {"status": "OPEN"}
        held = {"claimed_by": names[(number * 7 + 3) % agents], "claimed_at": at(number, handoffs)}
        if number < handoffs - HELD:
            return {**held, "status": "COMPLETED", "result": "done"}
        until = end + timedelta(hours=-1 if number % 3 == 0 else 24)
        return {**held, "status": "IN_PROGRESS", "lease_seconds": 3600, "lease_expires_at": until}

    for start in range(0, messages, 5000):
        sent, delivered, logged = [], [], []
        for i in range(start, min(start + 5000, messages)):
            moment, sender, place = at(i, messages), rng.choice(names), rng.choice(workspaces)
            recipient = rng.choice(names)
            nobody = i % 500 == 0
            status = "read" if i < messages * 0.97 else rng.choice(["unread", "unread", "delivered", "read"])
            status = "parked" if i % 9973 == 0 else status
            message = Message(
                message_id=timed_id("msg", moment, i),
                workspace=place,
                from_agent_id=sender,
                target={"strategy": "direct", "agent_id": recipient},
                subject=" ".join(rng.sample(words, 3)),
                body=" ".join(rng.choices(words, k=25)),
                created_at=moment,
                recipients_count=0 if nobody else 1,
            )
            sent.append(message)
            if not nobody:
                delivered.append(
                    Delivery(
                        delivery_id=timed_id("dlv", moment, i),
                        message=message,
                        recipient_id=recipient,
                        status=status,
                        attempts=1,
                        delivered_at=moment,
                        read_at=moment + timedelta(seconds=rng.expovariate(0.02)) if status == "read" else None,
                        lease_expires_at=moment + timedelta(seconds=300) if status == "delivered" else None,
                        created_at=moment,
                    )
                )
            logged.append(
                Event(
                    workspace=place,
                    stream="workspace",
                    type="message.created",
                    actor_agent_id=sender,
                    payload={"message_id": message.message_id, "subject": message.subject},
                    created_at=moment,
                )
            )
            if i % every == 0:
                number = i // every
                steps = [
                    (number, "created"),
                    *((number - after, what) for after, what in enumerate(COURSE, 1)),
                ]
                for handoff, what in steps:
                    goes_on = handoff % 12 and (handoff < handoffs - HELD or what not in ("submitted", "accepted"))
                    if handoff >= 0 and (what == "created" or goes_on):
                        logged.append(step(handoff, what, moment))
                        if what == "created":
                            created[handoff] = logged[-1]
            extra = int((i + 1) * (events - messages) / messages) - int(i * (events - messages) / messages)
            logged += [
                Event(
                    workspace=place,
                    stream="workspace",
                    type=rng.choice(["session.heartbeat", "artifact.created"]),
                    actor_agent_id=sender,
                    payload={"agent_id": sender, "note": rng.choice(words)},
                    created_at=moment,
                )
                for _ in range(extra)
            ]
        with transaction.atomic():
            Message.objects.bulk_create(sent)
            Delivery.objects.bulk_create(delivered)
            Event.objects.bulk_create(logged)
    with transaction.atomic():
        Handoff.objects.bulk_create(
            Handoff(
                handoff_id=timed_id("hnd", at(i, handoffs), i),
                workspace=workspaces[i % 5],
                from_agent_id=rng.choice(names),
                title=" ".join(rng.sample(words, 3)),
                target={"strategy": "capability", "capability": rng.choice([*words, "none"])},
                visibility="public",
                **standing(i),
                payload="x" * 300,
                created_event_id=created[i].pk,
                created_at=at(i, handoffs),
                updated_at=at(i, handoffs),
            )
            for i in range(handoffs)
        )
    topics = fill_topics(int(200_000 * scale), end)
    fill_files(workspaces[0].pk, int(5_000 * scale), end)
    return {
        "counts": {
            model.__name__: model.objects.count() for model in (Agent, Message, Delivery, Event, Handoff, TopicMessage)
        },
        "topics": topics,
        "message": Message.objects.order_by("-message_id")[0].pk,
        "parked": Delivery.objects.filter(status="parked")[0].message_id,
        "handoff": Handoff.objects.first().pk,  # type: ignore[union-attr]
        "workspace": workspaces[0].pk,
        "artifact": Artifact.objects.first().pk,  # type: ignore[union-attr]
        "step": created[0].pk,
        "topic_message": f"tms_long_{int(100_000 * scale):07d}",
        "webhook": fill_webhook(end),
    }


def fill_topics(messages: int, end: datetime) -> dict[str, str]:
    """An empty topic, a short one and one of so many messages, of which every third is an answer: the ids by name."""
    from django.db import transaction

    from topics.models import Peer, Topic, TopicMessage

    sizes = {"empty": 0, "short": 50, "long": messages}
    with transaction.atomic():
        for name, size in sizes.items():
            Topic.objects.create(
                topic_id=f"tpc_{name}", name=name, created_at=end - timedelta(days=DAYS), last_seq=size,
                last_message_at=end if size else None,
            )  # fmt: skip
            Peer.objects.bulk_create(
                Peer(topic_id=f"tpc_{name}", agent_name=f"peer-{number}", created_at=end, last_seq=size)
                for number in range(3)
            )
            TopicMessage.objects.bulk_create(
                (
                    TopicMessage(
                        message_id=f"tms_{name}_{seq:07d}",
                        topic_id=f"tpc_{name}",
                        seq=seq,
                        sender=f"peer-{seq % 3}",
                        message_type="message" if seq % 3 else "answer",
                        reply_to=None if seq % 3 else f"tms_{name}_{seq - 2:07d}",
                        content_markdown=f"The **cache** of part {seq} is `warm`:\n\n- read twice\n- written once",
                        created_at=end - timedelta(seconds=size - seq),
                    )
                    for seq in range(1, size + 1)
                ),
                batch_size=5000,
            )
    return {name: f"tpc_{name}" for name in sizes}


def fill_files(workspace_id: str, held: int, end: datetime) -> None:
    """So many reservations of files that are held, and four times as many that ended."""
    from files.models import Reservation
    from files.patterns import extension, place

    def reserved(number: int) -> Reservation:
        pattern = f"src/area_{number % 50}/part_{number % 7}/module_{number}.py"
        over = number >= held
        at = end - timedelta(seconds=number)
        return Reservation(
            reservation_id=f"rsv_{number:07d}", workspace_id=workspace_id, agent_id=f"agent-{number % 200:03d}",
            pattern=pattern, place=place(pattern), extension=extension(pattern), exclusive=True, item=0,
            reason="The parser of this part moves into a file of its own", seconds=86_400, created_at=at,
            expires_at=end + timedelta(days=1), released_at=at if over else None, outcome="released" if over else None,
        )  # fmt: skip

    Reservation.objects.bulk_create(map(reserved, range(5 * held)), batch_size=2000)


def fill_webhook(end: datetime) -> str:
    """A webhook, of which only its page is asked for."""
    from hooks.models import Webhook

    return Webhook.objects.create(
        webhook_id="whk_1", url="https://example.org/", secret="-", types=["handoff.created"], cursor=0, created_at=end
    ).pk


def fill_plan(home: Path) -> dict[str, str]:
    """A plan of 60 tasks after 200 closed cycles of 50 tasks, in a project of its own; where its pages are."""
    from coordination.services import workspaces
    from core.clock import iso_milliseconds, now
    from planning import mirror
    from planning.documents import cycle_row
    from planning.models import Cycle, Issue, Task
    from planning.services import plans, tasks
    from planning.services.changes import Actor
    from planning.services.tasks import NewTask

    root = home / "planned"
    root.mkdir(exist_ok=True)
    nobody, project = Actor(), str(root)
    place = workspaces.locate(project)

    def task(number: int) -> NewTask:
        deps = sorted({each for each in (number - 1, number // 2, number - 7) if 0 < each < number and number % 5 != 1})
        context = f"Part {number} is slow, and its cache is read twice. " * 10
        return NewTask(f"Rewrite part {number} of the parser", context, deps, *[None] * 7)

    issues = [f"Which parser does part {number} have?" for number in range(10)]
    plans.start(project_root=project, topic="Parser", issues=issues, research_summary="Read.", by=nobody)
    for number in range(1, 61):
        tasks.add(project_root=project, new=task(number), goal=None, decisions=None, by=nobody)
    for number in range(1, 6):
        plans.decide(
            project_root=project, issue_id=number, summary="The **short** one.", how_agents=None, how_summary=None,
            how_agent_ids=None, by=nobody,
        )  # fmt: skip
    with mirror.changing(place) as change:
        entries = [{**task(n)._asdict(), "id": n, "status": "completed"} for n in range(1, 51)]
        done = [{name: value for name, value in entry.items() if value is not None} for entry in entries]
        plan = {"id": 1, "topic": "Lexer", "issues": [], "created_at": iso_milliseconds(now())}
        for position in range(1, 201):
            cycle: Any = {"completed_at": iso_milliseconds(now()), "branch": "main", "plan": plan, "tasks": done}
            cycle_row(place.workspace_id, cycle, position).save()
        change.archived = True
    return {
        "place": place.workspace_id,
        "task": Task.objects.current(place.workspace_id)[30].pk,
        "cycle": str(Cycle.objects.all()[0].pk),
        "issue": str(Issue.objects.all()[0].pk),
    }


def _plan_pages(plan: Mapping[str, str]) -> list[str]:
    place = plan["place"]
    return [
        "/admin/plan/",
        f"/admin/plan/?workspace={place}",
        f"/admin/plan/tasks/{plan['task']}/",
        f"/admin/plan/cycles/{plan['cycle']}/",
        f"/admin/plan/issues/{plan['issue']}/",
        *(
            f"/admin/plan/history/?workspace={place}{more}"
            for more in ("", "&q=cache", "&q=nothing-has-this", "&page=4")
        ),
        *(f"/admin/plan/{place}/{act}/" for act in ("start", "close", "task")),
        "/admin/planning/task/",
        "/admin/planning/cycle/",
    ]


def _topic_page(topic_id: str) -> str:
    return f"/admin/topics/{topic_id}/"


def pages(known: dict[str, Any]) -> list[str]:
    """Every page, with the filters that cost most."""
    place = known["workspace"]
    long = _topic_page(known["topics"]["long"])
    span = f"{known['handoff']}.{known['step']}"
    return [
        "/admin/",
        "/admin/?q=agent-00",
        "/admin/attention/",
        "/admin/bell/",
        *(
            f"/admin/graph/{query}"
            for query in (
                "",
                "?hours=168",
                f"?hours=168&workspace={place}",
                "?agent=agent-007",
                "?from=agent-001&to=agent-002",
            )
        ),
        *(f"/admin/board/{tail}" for tail in ("", f"?workspace={place}", f"{known['handoff']}/")),
        "/admin/limits/",
        *(f"/admin/figures/{query}" for query in ("", "?hours=720", "?hours=720&agent=agent-007")),
        *(
            f"/admin/timeline/?{query}"
            for query in (
                "",
                "window=1d",
                "window=7d",
                "window=30d",
                f"window=30d&workspace={place}",
                f"window=30d&span={span}",
            )
        ),
        *(
            f"/admin/mail/?{query}"
            for query in (
                "",
                f"m={known['message']}",
                "agent=agent-007",
                "lane=unread",
                "lane=read",
                "lane=parked",
                "lane=delivered",
                "lane=nobody",
                "q=parser+lease",
                "q=nothing-has-this",
                f"workspace={place}",
                f"workspace={place}&lane=parked",
                "agent=agent-007&lane=nobody",
                f"before={known['parked']}",
            )
        ),
        *(
            f"/admin/agents/{tail}"
            for tail in (
                "",
                "agent-007/",
                "agent-007/mail/",
                "agent-007/mail/?tab=nobody",
                "agent-007/try/?since=1",
                "+new/",
            )
        ),
        *(
            f"/admin/events/{query}"
            for query in (
                "",
                f"?workspace={place}",
                "?type=artifact.created",
                "?type=never.happened",
                "?agent=agent-007",
                f"?agent=nobody&workspace={place}",
                "?stream=handoff",
                "?q=parser",
                "?before=1000",
                "?type=handoff.*",
                "?alive=on",
                "1000/",
            )
        ),
        *(f"/admin/topics/{query}" for query in ("", "?status=open", "?q=cache", "?q=nothing-has-this", "+new/")),
        *(_topic_page(topic) for topic in known["topics"].values()),
        *(f"{long}{tail}" for tail in ("?at=100", "?before=100000", "?q=cache+part", "tail/?after=1000", "delete/")),
        f"/admin/topics/+message/{known['topic_message']}/delete/",
        *_plan_pages(known["plan"]),
        *pool_pages(known["pool"]),
        *(f"/admin/files/{query}" for query in ("", "?page=9", "?state=ended", "?q=module_42", "?q=nothing-has-this")),
        "/admin/files/rsv_0000001/",
        *(f"/admin/find/?q={words}" for words in ("parser", "agent-007+lease", "nothing-has-this")),
        *(f"/admin/search/?extended=1&s={words}" for words in ("agent-007", "parser", "nothing-has-this")),
        *(f"/admin/{name}/" for name in ("speak", "settings", "retention", "help", "about")),
        *(f"/admin/{name}/" for name in ("webhooks", f"webhooks/{known['webhook']}")),
        *(
            f"/admin/{name}/"
            for name in (
                "coordination/workspace",
                "coordination/session",
                "coordination/channel",
                "coordination/artifact",
                "coordination/event",
                "inbox/message",
                "inbox/delivery",
                "handoffs/handoff",
                "auth/user",
            )
        ),
        "/admin/coordination/event/?p=5000",
        "/admin/inbox/delivery/?q=agent-007",
        "/admin/inbox/delivery/?status__exact=parked",
        "/admin/handoffs/handoff/?status__exact=OPEN",
        f"/admin/coordination/artifact/{known['artifact']}/change/",
    ]


def not_asked(asked: list[str]) -> list[str]:
    """The names of the pages that these addresses do not lead to; what NO_PAGES names is none."""
    from django.urls import resolve

    from core.apps import nexus_apps

    names = {resolve(page.partition("?")[0]).url_name for page in asked}
    return sorted({page.name for app in nexus_apps() for page in app.pages()} - names - NO_PAGES)


def measure(asked: list[str], repeat: int) -> dict[str, float]:
    """Ask every page; by page the median time in ms that counts."""
    from django.db import connection

    medians = {}
    print(f"{'CPU ms':>7} {'clock ms':>9} {'worst ms':>9} {'queries':>8}  page")
    for page in asked:
        queries: list[tuple[float, str]] = []
        with connection.execute_wrapper(partial(_timed, queries)):
            _asked(page)
        taken = [_asked(page) for _ in range(repeat)]
        cpu, clock = (statistics.median(times) for times in zip(*taken, strict=True))
        medians[page] = cpu if connection.vendor == "sqlite" else clock
        worst = max(by_clock for _, by_clock in taken)
        print(f"{cpu:7.0f} {clock:9.0f} {worst:9.0f} {len(queries):8d}  {page[:100]}", flush=True)
    return medians


def compare(topics: Mapping[str, str], repeat: int) -> float:
    """Tell what a long topic's page costs beside others'; how many times an empty one's.

    They are asked in turns: what else the machine does slows them alike.
    """
    rounds = [{name: _asked(_topic_page(topic))[0] for name, topic in topics.items()} for _ in range(repeat)]
    medians = {name: statistics.median(each[name] for each in rounds) for name in topics}
    growth = {name: medians["long"] / median for name, median in medians.items()}
    print(f"a long topic's page costs {growth['empty']:.2f} of an empty one's, {growth['short']:.2f} of a short one's")
    return growth["empty"]


@cache
def _browser() -> Any:
    """One for all pages: its server reads its settings and the list of static files once, as any server does."""
    from django.test import Client

    gc.freeze()  # as the hub does once it serves
    return Client(headers={"host": "127.0.0.1:8420"})


def _asked(page: str) -> tuple[float, float]:
    """How many ms of CPU a page takes, and by the clock."""
    browser = _browser()
    cpu, clock = time.process_time(), time.perf_counter()
    answer = browser.get(page)
    if answer.streaming:
        for _ in answer:  # an export is answered as it is read
            pass
    took = (time.process_time() - cpu) * 1000, (time.perf_counter() - clock) * 1000
    assert answer.status_code == 200, (page, answer.status_code)
    return took


def _timed(queries: list[tuple[float, str]], execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    started = time.perf_counter()
    try:
        return execute(sql, params, many, context)
    finally:
        queries.append((time.perf_counter() - started, sql))


if __name__ == "__main__":
    main()
