"""What `benchmarks.pages` asks for: every page of the dashboard, with the filters that cost most."""

from __future__ import annotations

from typing import Any

from benchmarks.plan_pages import plan_pages
from benchmarks.pool_pages import pool_pages


def topic_page(topic_id: str) -> str:
    return f"/admin/topics/{topic_id}/"


def pages(known: dict[str, Any]) -> list[str]:
    """The addresses, by what a store was filled with."""
    place = known["workspace"]
    long = topic_page(known["topics"]["long"])
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
                f"{known['event']}/",
            )
        ),
        *(f"/admin/topics/{query}" for query in ("", "?status=open", "?q=cache", "?q=nothing-has-this", "+new/")),
        *(topic_page(topic) for topic in known["topics"].values()),
        *(f"{long}{tail}" for tail in ("?at=100", "?before=100000", "?q=cache+part", "tail/?after=1000", "delete/")),
        f"/admin/topics/+message/{known['topic_message']}/delete/",
        *plan_pages(known["plan"]),
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
