"""A hub that is killed under load: what it answered is there, and its clients go on where they were."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.hub import Hub, start

CLIENTS = 8
BEFORE = 200  # answered messages before the hub is killed


def send(hub: Hub, project: str, number: int, answered: list[str]) -> None:
    """Send messages until the hub is gone; what was answered is noted."""
    target = {"strategy": "direct", "agent_id": "reader"}
    with httpx.Client(base_url=hub.url) as client:
        while True:
            subject = f"{number}/{len(answered)}"
            message = {"project_root": project, "from_agent_id": f"a{number}", "subject": subject, "body": "b"}
            try:
                answer = client.post("/api/v1/operations/message_create", json={**message, "target": target}).json()
            except (httpx.TransportError, ValueError):
                return
            assert answer["ok"], answer
            answered.append(answer["data"]["message_id"])


def follow(hub: Hub, cursor: int, seen: list[tuple[int, str]], until: int | None = None) -> None:
    """Note (event id, message id) of every message from `cursor` on, until the hub is gone or `until` is reached."""
    try:
        with httpx.stream("GET", f"{hub.url}/api/v1/stream?type=message.created&cursor={cursor}") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    event: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    seen.append((event["event_id"], event["payload"]["message_id"]))
                if until is not None and len(seen) >= until:
                    return
    except httpx.TransportError:
        return


def test_every_answered_write_survives_sigkill_and_listeners_resume(home: Path, project: str) -> None:
    hub = start(home)
    second = None
    try:
        hub.call("agent_register", agent_id="reader")
        answered: list[list[str]] = [[] for _ in range(CLIENTS)]
        seen: list[tuple[int, str]] = []
        threads = [
            threading.Thread(target=send, args=(hub, project, number, notes)) for number, notes in enumerate(answered)
        ]
        threads.append(threading.Thread(target=follow, args=(hub, 0, seen)))
        for thread in threads:
            thread.start()
        while sum(map(len, answered)) < BEFORE:
            time.sleep(0.01)
        hub.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()

        second = start(home)
        pulled: list[str] = []
        while mail := second.call("inbox_pull", agent_id="reader", limit=100)["messages"]:
            pulled += [message["message_id"] for message in mail]
        assert len(set(pulled)) == len(pulled), "a message is there twice"
        assert {message for notes in answered for message in notes} <= set(pulled), "an answered write is lost"
        follow(second, seen[-1][0] if seen else 0, seen, until=len(pulled))
        assert sorted(message for _, message in seen) == sorted(pulled)
        assert [event for event, _ in seen] == sorted({event for event, _ in seen})
    finally:
        hub.process.kill()
        if second is not None:
            second.process.kill()
