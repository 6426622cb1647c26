"""What must hold at the end: nothing answered is lost, nothing was won twice, the store is sound."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.acceptance.soak.agents import Ledger
from tests.acceptance.soak.servers import Servers


def violations(servers: Servers, ledger: Ledger, drained: dict[str, list[str]]) -> Iterator[str]:
    """Every promise that was broken, in a sentence."""
    yield from ledger.violations
    with servers.store() as store:
        yield from _lost(store, ledger, drained)
        yield from _won_twice(store, ledger)
        yield from _events(store, ledger)
        yield from _halves(store)
        if servers.database_url is None:  # a server looks after its files, and burns the ids of what is undone
            yield from _sound(store)
    yield from _unhealthy(servers)


def _lost(store: Any, ledger: Ledger, drained: dict[str, list[str]]) -> Iterator[str]:
    status = {
        (message_id, recipient): lane
        for message_id, recipient, lane in store.execute(
            "SELECT message_id, recipient_agent_id, status FROM message_deliveries"
        )
    }
    for message_id, recipients in ledger.sent.items():
        for recipient in recipients:
            lane = status.get((message_id, recipient))
            handed = message_id in ledger.received[recipient] or message_id in drained[recipient]
            if lane is None or not (handed or lane == "parked"):
                yield f"message {message_id} was sent and never reached {recipient} (it is {lane})"
    for agent_id, ids in ledger.acknowledged.items():
        again = [message_id for message_id in ids if status[message_id, agent_id] != "read"]
        if again or ids & set(drained[agent_id]):
            yield f"{agent_id} acknowledged messages that are not read: {again[:3]}"
    for agent_id, messages in drained.items():
        if len(messages) != len(set(messages)):
            yield f"{agent_id} was handed an acknowledged message again"
    missing = set(ledger.completed) - {row[0] for row in store.execute("SELECT handoff_id FROM handoffs")}
    if missing:
        yield f"completed handoffs are gone: {sorted(missing)[:3]}"


def _won_twice(store: Any, ledger: Ledger) -> Iterator[str]:
    """A handoff has one holder at a time, and one end."""
    steps = store.execute(
        "SELECT handoff_id, type, actor_agent_id FROM events WHERE stream = 'handoff'"
        " AND type <> 'handoff.remarked' ORDER BY event_id"  # a result that came too late is kept, and moves nothing
    ).fetchall()
    holder: dict[str, str | None] = {}
    ended: set[str] = set()
    claims = set()
    for handoff_id, type, actor in steps:
        step = type.removeprefix("handoff.")
        if handoff_id in ended or (step == "claimed" and holder.get(handoff_id)):
            yield f"handoff {handoff_id} was {step} by {actor} while {holder.get(handoff_id)} had it"
        if step == "claimed":
            holder[handoff_id] = actor
            claims.add((handoff_id, actor))
        elif step == "expired":
            holder[handoff_id] = None
        elif step == "completed":
            ended.add(handoff_id)
    for handoff_id, count in ledger.completed.items():
        if count != 1 or handoff_id not in ended:
            yield f"handoff {handoff_id} was completed {count} times; in the log: {handoff_id in ended}"
    if lost := set(ledger.won) - claims:
        yield f"claims that were answered are not in the log: {sorted(lost)[:3]}"


def _events(store: Any, ledger: Ledger) -> Iterator[str]:
    log = [row[0] for row in store.execute("SELECT event_id FROM events WHERE stream = 'handoff' ORDER BY event_id")]
    for agent_id, seen in ledger.followed.items():
        if seen != log[: len(seen)]:
            yield f"{agent_id} missed events or saw some twice while it followed the log"


def _sound(store: Any) -> Iterator[str]:
    for pragma, good in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
        if (found := store.execute(f"PRAGMA {pragma}").fetchall()) != good:
            yield f"PRAGMA {pragma}: {found[:3]}"
    count, first, last = store.execute("SELECT count(*), min(event_id), max(event_id) FROM events").fetchone()
    if (first, last) != (1, count):
        yield f"{count} events have the ids {first} to {last}"


def _halves(store: Any) -> Iterator[str]:
    halves = {
        "messages without their event": "SELECT (SELECT count(*) FROM messages) - count(*) FROM events "
        "WHERE type = 'message.created'",
        "handoffs without their event": "SELECT (SELECT count(*) FROM handoffs) - count(*) FROM events "
        "WHERE type = 'handoff.created'",
    }
    for what, query in halves.items():
        if (difference := store.execute(query).fetchone()[0]) != 0:
            yield f"{difference} {what}"


def _unhealthy(servers: Servers) -> Iterator[str]:
    command = [sys.executable, "-m", "nexus_site", "doctor", "--json"]
    ended = subprocess.run(command, env=servers.environ, capture_output=True, text=True)
    if ended.returncode:
        yield f"nexus doctor: {ended.stdout.strip() or ended.stderr.strip()}"
