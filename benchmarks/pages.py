"""Server time of every page of the dashboard over a large store: `python -m benchmarks.pages [--scale 1.0]`.

Fills a store with 200 agents, 200,000 messages, 630,000 events, 20,000 handoffs, 5,000 reservations held and 20,000
that ended, and a topic of 200,000 messages (`benchmarks.month`, times `--scale`), a plan of 60 tasks after 200 closed
cycles of 50 (`benchmarks.plan_pages`), and a pool of 100 agents (`benchmarks.pool_pages`); then asks each page
(`benchmarks.addresses`) several times in this process, without a network, and prints the median time of its CPU and by
the clock, the worst, and the number of queries; at last what a long topic's page costs beside an empty one's and a
short one's, and which pages nobody asked for.
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
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.addresses import pages, topic_page
from benchmarks.plan_pages import fill_plan
from benchmarks.pool_pages import fill_pool
from nexus.core.database import store

BUDGET_MS = 300
GROWTH = 1.5  # of a topic's page, from no message to 200,000
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

    from benchmarks.month import MONTH, fill_store
    from coordination.models import Workspace

    store().prepare()
    filled = home / "filled.json"
    known: dict[str, Any] = json.loads(filled.read_text()) if filled.exists() else {}
    if not known and Workspace.objects.exists():
        sys.exit(f"{home} was filled by halves, or by something else: name another --home")
    parts: dict[str, Callable[[], Mapping[str, Any]]] = {
        "counts": lambda: fill_store(MONTH.scaled(scale), datetime.now(UTC)),
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


def not_asked(asked: list[str]) -> list[str]:
    """The names of the pages that these addresses do not lead to; what NO_PAGES names is none."""
    from django.urls import resolve

    from nexus.core.apps import nexus_apps

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
    rounds = [{name: _asked(topic_page(topic))[0] for name, topic in topics.items()} for _ in range(repeat)]
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
