"""One call to receive: acknowledge what was handled, wait for mail, take it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordination.toolset import arun
from inbox.models import Delivery
from nexus.core.waiting import waiter
from tests.conftest import LOCAL, Call

pytestmark = pytest.mark.usefixtures("committed", "team")

LONG = 30  # seconds nobody here waits for


def receive(agent: str = "bob", **arguments: Any) -> asyncio.Task[dict[str, Any]]:
    """A pull on its way that waits for mail."""
    return asyncio.create_task(arun(LOCAL, "inbox_pull", {"agent_id": agent, "wait_seconds": LONG, **arguments}))


async def act(name: str, **arguments: Any) -> dict[str, Any]:
    """The data of an operation."""
    envelope = await arun(LOCAL, name, arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


async def post(project: str, subject: str, target: str | None = "bob") -> str:
    """Send a message as ana; its id."""
    given = {"target": {"strategy": "direct", "agent_id": target}} if target else {}
    sent = await act("message_create", project_root=project, from_agent_id="ana", subject=subject, body="…", **given)
    return str(sent["message_id"])


async def parked(count: int = 1) -> None:
    """Return once so many waits are parked."""
    while len(waiter().parked) < count:
        await asyncio.sleep(0.001)


async def received(pull: asyncio.Task[dict[str, Any]]) -> list[str]:
    """The subjects that a pull got."""
    envelope = await asyncio.wait_for(pull, LONG / 2)
    assert envelope["ok"], envelope
    return [message["subject"] for message in envelope["data"]["messages"]]


async def statuses() -> dict[str, str]:
    """Where bob's mail stands, by subject."""
    rows = Delivery.objects.filter(recipient="bob").values_list("message__subject", "status")
    return {subject: status async for subject, status in rows}


async def test_it_takes_mail_that_is_there_without_a_wait(project: str) -> None:
    await post(project, "one")

    assert await received(receive()) == ["one"]


@pytest.mark.parametrize("target", ["bob", None])
async def test_it_wakes_for_mail_to_its_agent_alone(project: str, target: str | None) -> None:
    await act("join", project_root=project, agent_id="bob")
    pull = receive()
    await parked()
    await post(project, "to another", "cleo")
    await asyncio.sleep(0)
    assert not pull.done()
    await post(project, "one", target)

    assert await received(pull) == ["one"]
    assert (await statuses())["one"] == "delivered"


async def test_one_call_acknowledges_waits_and_takes_the_next(project: str) -> None:
    first = await post(project, "one")
    await received(receive())
    pull = receive(ack_message_ids=[first])
    await parked()
    assert await statuses() == {"one": "read"}
    await post(project, "two")

    assert await received(pull) == ["two"]
    assert pull.result()["data"]["acknowledged"] == 1


async def test_what_it_acknowledged_stands_if_the_client_goes_away(project: str) -> None:
    first = await post(project, "one")
    await received(receive())
    pull = receive(ack_message_ids=[first])
    await parked()
    pull.cancel()
    await asyncio.wait([pull])
    await post(project, "two")

    assert await statuses() == {"one": "read", "two": "unread"}
    assert await received(receive(ack_message_ids=[first])) == ["two"], "a retry with the same ids is harmless"


async def test_one_of_two_pulls_gets_the_mail_and_the_other_waits_on(project: str) -> None:
    pulls = [receive(), receive()]
    await parked(2)
    await post(project, "one")
    done, waits = await asyncio.wait(pulls, timeout=LONG / 2, return_when=asyncio.FIRST_COMPLETED)
    assert [await received(pull) for pull in done] == [["one"]]
    await post(project, "two")

    assert [await received(pull) for pull in waits] == [["two"]]


async def test_without_mail_it_answers_with_none_when_the_time_is_over(project: str) -> None:
    pull = receive(wait_seconds=1, ack_message_ids=["msg_unknown"])
    envelope = await asyncio.wait_for(pull, LONG / 2)

    assert envelope["data"] == {"messages": [], "count": 0, "acknowledged": 0}
    assert "msg_unknown" in envelope["hint"]


class TestWithoutAWait:
    def test_a_message_that_it_acknowledges_does_not_come_again(self, call: Call, project: str) -> None:
        sent = call("message_create", project_root=project, from_agent_id="ana", subject="one", body="…",
                    target={"strategy": "direct", "agent_id": "bob"})  # fmt: skip

        assert call("inbox_pull", agent_id="bob", ack_message_ids=[sent["message_id"]]) == {
            "messages": [], "count": 0, "acknowledged": 1
        }  # fmt: skip

    @pytest.mark.parametrize(
        "wrong", [{"wait_seconds": -1}, {"wait_seconds": True}, {"ack_message_ids": "m"}, {"ack_message_ids": [""]}]
    )
    def test_a_wrong_argument_is_refused(self, refused: Call, wrong: dict[str, Any]) -> None:
        error = refused("inbox_pull", agent_id="bob", **wrong)

        assert error["code"] == "VALIDATION_ERROR"
