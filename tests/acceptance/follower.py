"""Nothing unseen, nothing twice: a follower of all workspaces at a hub on PostgreSQL, while eight processes write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.hub import ROOT, Hub, serving

KINDS = {"sender": 6, "updater": 2}
WORKSPACES = 3
CALLS = 40  # that each writer makes at least, however slow the machine
TIME_LIMIT_SECONDS = 60  # for the follower to reach the end of the log


def follow(scratch: Path, database_url: str, seconds: float) -> dict[str, Any]:
    """Numbers of events in the log and of those that the follower did not see, saw twice or out of order."""
    import psycopg

    for number in range(WORKSPACES):
        (scratch / f"project-{number}").mkdir()
    environ = {**os.environ, "NEXUS_HOME": str(scratch / "writers"), "NEXUS_DATABASE_URL": database_url}
    environ |= {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
    seen: list[int] = []
    with serving(scratch / "home", database=database_url) as hub:
        threading.Thread(target=_read, args=(hub, seen), daemon=True).start()
        command = [sys.executable, "-m", "tests.acceptance.follower", str(seconds)]
        writers = [
            subprocess.Popen([*command, kind], cwd=scratch, env=environ)
            for kind, count in KINDS.items()
            for _ in range(count)
        ]
        codes = [writer.wait() for writer in writers]
        assert not any(codes), "a call was refused"
        with psycopg.connect(database_url) as store:
            log = [row[0] for row in store.execute("SELECT event_id FROM events ORDER BY event_id")]
        deadline = time.monotonic() + TIME_LIMIT_SECONDS
        while (not seen or seen[-1] < log[-1]) and time.monotonic() < deadline:
            time.sleep(0.05)
        got = list(seen)
    return {
        "events": len(log),
        "unseen": len(set(log) - set(got)),
        "twice": len(got) - len(set(got)),
        "disorder": sum(after < before for before, after in pairwise(got)),
    }


def write_as(kind: str, seconds: float) -> None:
    """Send, or change what is there, in one workspace after the other."""
    import django

    django.setup()
    from coordination.toolset import run
    from nexus.core.database.store import store
    from nexus.core.operations.caller import Caller

    store().prepare()
    name = f"{kind}-{os.getpid()}"
    calls = 0

    def call(operation: str, **arguments: Any) -> Any:
        nonlocal calls
        envelope = run(Caller("benchmark"), operation, arguments)
        assert envelope["ok"], envelope
        calls += 1
        return envelope["data"]

    call("agent_register", agent_id=name)
    end, turn = time.monotonic() + seconds, 0
    while calls < CALLS or time.monotonic() < end:
        turn += 1
        root = str(Path(f"project-{turn % WORKSPACES}").resolve())
        if kind == "sender":
            target = {"strategy": "direct", "agent_id": name}
            call("message_create", project_root=root, from_agent_id=name, subject="s", body="b", target=target)
            continue
        offer = {"project_root": root, "from_agent_id": name, "target": {"strategy": "direct", "agent_id": name}}
        handoff_id = call("handoff_create", **offer, visibility="public")["handoff_id"]
        call("handoff_claim", project_root=root, handoff_id=handoff_id, agent_id=name)
        call("handoff_complete", project_root=root, handoff_id=handoff_id, agent_id=name)


def _read(hub: Hub, seen: list[int]) -> None:
    """Note the id of every event, all workspaces', until the hub is gone."""
    try:
        with httpx.stream("GET", f"{hub.url}/api/v1/stream?cursor=0", timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: "))["event_id"])
    except httpx.TransportError:
        return


if __name__ == "__main__":
    write_as(sys.argv[2], float(sys.argv[1]))
