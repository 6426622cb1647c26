"""An empty answer about an agent or a message that there is not says so beside the data."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.toolset import run
from nexus.core.operations.caller import Caller
from tests.conftest import Call

pytestmark = pytest.mark.django_db
MEANT = "No such agent: 'bilder'. Did you mean 'builder'?"


def answered(name: str, **arguments: Any) -> dict[str, Any]:
    return run(Caller(transport="test"), name, arguments)


@pytest.mark.parametrize("name", ["inbox_count", "inbox_peek", "inbox_pull"])
def test_an_unknown_agent_gets_its_empty_answer_and_a_hint(call: Call, name: str) -> None:
    call("agent_register", agent_id="builder")
    unknown, known = answered(name, agent_id="bilder"), answered(name, agent_id="builder")
    assert (unknown["ok"], unknown["hint"]) == (True, MEANT)
    assert unknown["data"] == known["data"] and "hint" not in known


def test_an_acknowledgement_of_strange_messages_names_them(call: Call, project: str) -> None:
    call("agent_register", agent_id="builder")
    sent = call("message_create", project_root=project, from_agent_id="ana", subject="s", body="b",
                target={"strategy": "direct", "agent_id": "builder"})  # fmt: skip
    message_id = sent["message_id"]
    strange = answered("inbox_ack", agent_id="builder", message_ids=[message_id, "msg_other"])
    assert strange["data"] == {"acknowledged": 1}
    assert strange["hint"] == "Not in the inbox of 'builder': 'msg_other'. inbox_peek has the ids."
    again = answered("inbox_ack", agent_id="builder", message_ids=message_id)
    assert (again["data"], "hint" in again) == ({"acknowledged": 0}, False)  # it was acknowledged before
    assert answered("inbox_ack", agent_id="bilder", message_ids=message_id)["hint"] == MEANT


def test_a_message_to_nobody_names_who_was_meant(call: Call, project: str) -> None:
    call("agent_register", agent_id="builder")
    sent = answered("message_create", project_root=project, from_agent_id="ana", subject="s", body="b",
                    target={"strategy": "direct", "agent_id": "bilder"})  # fmt: skip
    assert sent["error"]["message"] == MEANT


@pytest.mark.parametrize(
    ("target", "example"), [("builder", "builder"), ('{"strategy":"direct","agent_id":"builder"}', "…")]
)
def test_a_target_in_words_is_refused_with_the_object_for_it(
    call: Call, project: str, target: str, example: str
) -> None:
    meant = f'target must be an object such as {{"strategy": "direct", "agent_id": "{example}"}}.'
    who: dict[str, Any] = {"project_root": project, "from_agent_id": "ana", "target": target}
    assert answered("message_create", **who, subject="s", body="b")["error"]["message"] == meant
    assert answered("handoff_create", **who, visibility="public")["error"]["message"] == meant
