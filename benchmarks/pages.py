"""Server time of every page of the dashboard over a large store: `python -m benchmarks.pages [--scale 1.0]`.

Fills a throwaway store with 200 agents, 200,000 messages and 500,000 events (times `--scale`), then asks each page
several times in this process, without a network, and prints the median time, the worst, and the number of queries.
Exit code 1 when a page's median is over 300 ms.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from core.database import store

BUDGET_MS = 300
DAYS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nexus-pages-") as home:
        os.environ["NEXUS_HOME"] = home
        os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings"
        import django

        django.setup()

        store().prepare()
        started = time.perf_counter()
        known = fill(options.scale)
        print(f"filled in {time.perf_counter() - started:.0f} s: {known['counts']}")
        slow = measure(known, options.repeat)
    sys.exit(f"over {BUDGET_MS} ms: {', '.join(slow)}" if slow else 0)


def fill(scale: float) -> dict[str, Any]:
    """A month of a busy team, written in bulk; what the pages are asked for."""
    from django.db import transaction

    from coordination.ids import new_id
    from coordination.models import Agent, Artifact, Event, Session, Workspace
    from handoffs.models import Handoff
    from inbox.models import Delivery, Message

    rng = random.Random(7)  # the same store every time
    end = datetime.now(UTC)
    agents, messages, events, handoffs = 200, int(200_000 * scale), int(500_000 * scale), int(5_000 * scale)
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
                        read_at=moment if status == "read" else None,
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
                workspace=rng.choice(workspaces),
                from_agent_id=rng.choice(names),
                target={"strategy": "capability", "capability": rng.choice([*words, "none"])},
                visibility="public",
                status="OPEN" if i % 12 == 0 else "COMPLETED",
                payload="x" * 300,
                created_event_id=i + 1,
                created_at=at(i, handoffs),
                updated_at=at(i, handoffs),
            )
            for i in range(handoffs)
        )
    return {
        "counts": {model.__name__: model.objects.count() for model in (Agent, Message, Delivery, Event, Handoff)},
        "message": Message.objects.order_by("-message_id")[0].pk,
        "parked": Delivery.objects.filter(status="parked")[0].message_id,
        "handoff": Handoff.objects.first().pk,  # type: ignore[union-attr]
        "workspace": workspaces[0].pk,
        "artifact": Artifact.objects.first().pk,  # type: ignore[union-attr]
    }


def pages(known: dict[str, Any]) -> list[str]:
    """Every page, with the filters that cost most."""
    place = known["workspace"]
    return [
        "/admin/",
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
                "tail/?after=400000",
                "1000/",
            )
        ),
        *(f"/admin/find/?q={words}" for words in ("parser", "agent-007+lease", "nothing-has-this")),
        *(f"/admin/search/?extended=1&s={words}" for words in ("agent-007", "parser", "nothing-has-this")),
        *(f"/admin/{name}/" for name in ("speak", "settings", "retention", "help", "about")),
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
            )
        ),
        "/admin/coordination/event/?p=5000",
        "/admin/inbox/delivery/?q=agent-007",
        "/admin/inbox/delivery/?status__exact=parked",
        "/admin/handoffs/handoff/?status__exact=OPEN",
        f"/admin/coordination/artifact/{known['artifact']}/change/",
    ]


def measure(known: dict[str, Any], repeat: int) -> list[str]:
    """Ask every page; those over the budget."""
    from django.db import connection
    from django.test import Client

    browser = Client(headers={"host": "127.0.0.1:8420"})
    slow = []
    print(f"{'median ms':>10} {'worst ms':>9} {'queries':>8}  page")
    for page in pages(known):
        queries: list[tuple[float, str]] = []
        with connection.execute_wrapper(partial(_timed, queries)):
            answer = browser.get(page)
        assert answer.status_code == 200, (page, answer.status_code)
        times = []
        for _ in range(repeat):
            started = time.perf_counter()
            browser.get(page)
            times.append((time.perf_counter() - started) * 1000)
        median = statistics.median(times)
        print(f"{median:10.0f} {max(times):9.0f} {len(queries):8d}  {page[:100]}")
        if median > BUDGET_MS:
            slow.append(page)
    return slow


def _timed(queries: list[tuple[float, str]], execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    started = time.perf_counter()
    try:
        return execute(sql, params, many, context)
    finally:
        queries.append((time.perf_counter() - started, sql))


if __name__ == "__main__":
    main()
