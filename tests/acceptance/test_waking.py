"""Agents of a real pool answer their mail by themselves, also when the hub is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import Hub
from tests.acceptance.pool import Pool, until

SCRIPT = """
[runners.answers]
kind = "rehearsal"

[[runners.answers.script]]
wait = {seconds}
say = "Answered {{from}}."

[[runners.answers.script.call]]
operation = "coordination.message_create"

[runners.answers.script.call.arguments]
from_agent_id = "{{agent_id}}"
parent_message_id = "{{item}}"
client_id = "{{item}}"
subject = "On it"
body = "On it, {{from}}."
target = {{ strategy = "direct", agent_id = "{{from}}" }}
"""


@pytest.fixture
def pools(home: Path) -> Iterator[list[Pool]]:
    """The hubs that a test starts over its home, one after the other; none is left at its end."""
    started: list[Pool] = []
    yield started
    for pool in started:
        pool.close()
    until(lambda: not any(pool.left() for pool in started))


def started(pools: list[Pool], home: Path, *, seconds: float) -> Pool:
    """A hub whose agents answer their mail, and think about it for so long."""
    pools.append(Pool(home, runners=SCRIPT.format(seconds=seconds)))
    return pools[-1]


def write_to_ann(hub: Hub, project: Path) -> str:
    """A message from an agent that nobody runs; its id."""
    target = {"strategy": "direct", "agent_id": "ann"}
    sent = hub.call(
        "message_create", project_root=str(project), from_agent_id="bob", subject="Look", body="Please.", target=target
    )
    return str(sent["message_id"])


def outcomes(pool: Pool) -> list[str]:
    """What became of the newest runs of ann."""
    return [run["outcome"] for run in pool.operate("pool_list_runs", agent_id="ann", limit=2)["runs"]]


def delivery(hub: Hub, message_id: str) -> tuple[str, int]:
    """What became of it, and how often it was handed out."""
    (row,) = hub.call("message_status", message_id=message_id)["deliveries"]
    return row["status"], row["attempts"]


def answers(hub: Hub) -> list[dict[str, Any]]:
    """What lies in the writer's inbox."""
    found: list[dict[str, Any]] = hub.call("inbox_peek", agent_id="bob")["messages"]
    return found


def test_it_answers_its_mail_by_itself_again_when_the_hub_is_killed_in_the_midst(
    pools: list[Pool], home: Path, tmp_path: Path
) -> None:
    pool = started(pools, home, seconds=3600)
    pool.hub.call("agent_register", agent_id="bob")
    pool.create("ann", model="answers", cwd=str(tmp_path), wake_on=["mail"])
    sent = write_to_ann(pool.hub, tmp_path)
    until(lambda: answers(pool.hub))  # its turn goes on
    assert delivery(pool.hub, sent) == ("delivered", 1)
    pool.kill()
    again = started(pools, home, seconds=0)
    until(lambda: "queued" in outcomes(again) or "done" in outcomes(again))  # until then it trusts a token alone
    until(lambda: delivery(again.hub, sent)[0] == "read")
    assert delivery(again.hub, sent) == ("read", 2)
    assert len(answers(again.hub)) == 1, "the script names its answer, so that a second try is none"

    later = write_to_ann(again.hub, tmp_path)
    until(lambda: delivery(again.hub, later)[0] == "read")
    assert delivery(again.hub, later) == ("read", 1)
    [answer] = [each for each in answers(again.hub) if each["parent_message_id"] == later]
    assert answer["from_agent_id"] == "ann"
    (receipt,) = again.hub.call("message_receipts", message_id=later)["receipts"]
    turn = receipt["stages"][2]["evidence"][0]
    assert turn.startswith("turn_")
    assert [stage["evidence"] for stage in receipt["stages"][1:]] == [
        [f"wake-up {turn}"],
        [turn],
        [turn],
        [f"reply {answer['message_id']}"],
    ]
    [*_, woken, said] = [row for row in again.messages("ann") if row["role"] != "tool" and row["content"]]
    assert "> Please." in woken["content"] and woken["meta"]["woken_by"][0]["item"] == later
    assert said["content"] == "[rehearsal: no model answers] Answered bob."
    again.worker()
    assert again.hub.stop() == 0
    assert not again.left()
