"""How soon mail wakes an agent: from the moment its sender's call began to write it to the start of the turn.

    python -m benchmarks.wake

Budget: 60 ms, over a hub and its worker as processes; an agent is free, and the machine idle.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.hub import start

MAILS = 60
WARM_UP = 5
BUDGET_MS = 60
MILLISECOND = timedelta(milliseconds=1)
MOMENTS = """
SELECT m.created_at, t.started_at FROM pool_wakes w JOIN pool_turns t USING (turn_id)
JOIN messages m ON m.message_id = w.item ORDER BY m.created_at
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as place:
        project = Path(place, "project")
        project.mkdir()
        flags = ("--control", "--pool-wakes-a-minute", "100000")
        hub = start(Path(place, "home"), *flags)
        try:
            with httpx.Client(base_url=f"{hub.url}/api/v1", timeout=60) as client:
                woken(client, str(project))
            took = measured(Path(place, "home", "nexus.db"))
        finally:
            hub.stop()
    print(f"{len(took)} mails, each to an agent that is free; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    middle, slow = statistics.median(took), took[int(len(took) * 0.95)]
    print(f"fastest {took[0]:.1f} ms, median {middle:.1f} ms, 95% {slow:.1f} ms (budget {BUDGET_MS} ms)")


def woken(client: httpx.Client, project: str) -> None:
    """Send mails, one at a time, each once the turn before is over."""

    def call(path: str, **arguments: Any) -> Any:
        body = client.post(path, json=arguments).json()
        assert body["ok"], body
        return body["data"]

    control = "/control/operations"
    call(f"{control}/pool_create_agent", agent_id="woken", cwd=project, wake_on=["mail"], model="rehearsal")
    call("/operations/agent_register", agent_id="ann")
    target = {"strategy": "direct", "agent_id": "woken"}
    for number in range(MAILS + WARM_UP):
        mail = {"from_agent_id": "ann", "subject": "Look", "body": f"Number {number}.", "target": target}
        call("/operations/message_create", project_root=project, **mail)
        while call(f"{control}/pool_get_context", agent_id="woken")["message_count"] < 2 * (number + 1):
            time.sleep(0.02)


def measured(database: Path) -> list[float]:
    """Milliseconds from each mail to the start of the turn that it began, sorted."""
    with closing(sqlite3.connect(database)) as store:
        rows = store.execute(MOMENTS).fetchall()[WARM_UP:]
    return sorted((datetime.fromisoformat(began) - datetime.fromisoformat(sent)) / MILLISECOND for sent, began in rows)


if __name__ == "__main__":
    main()
