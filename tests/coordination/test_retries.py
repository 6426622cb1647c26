"""A call that is sent again with its client_id makes nothing twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordination.models import Artifact, Event
from coordination.toolset import run
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.core.operations.caller import Caller
from tests.conftest import LOCAL, Call, at_once

pytestmark = pytest.mark.usefixtures("team")

TO_BOB = {"strategy": "direct", "agent_id": "bob"}
CREATING: dict[str, tuple[type[Any], str, dict[str, Any], dict[str, Any]]] = {  # model, key, what it says, another
    "message_create": (
        Message,
        "message_id",
        {"from_agent_id": "ana", "subject": "s", "body": "b", "target": TO_BOB},
        {"body": "other"},
    ),
    "handoff_create": (
        Handoff,
        "handoff_id",
        {"from_agent_id": "ana", "target": TO_BOB, "visibility": "public", "payload": {"task": "ocr", "n": [1.0, 2]}},
        {"payload": {"task": "ocr", "n": []}},
    ),
    "artifact_put": (
        Artifact,
        "artifact_id",
        {"artifact_type": "text", "content": "c", "metadata": {"pages": [1, {"two": 2.5}]}},
        {"metadata": None},
    ),
}

each = pytest.mark.parametrize("name", CREATING)


@each
def test_it_answers_the_first_result_again(call: Call, project: str, name: str) -> None:
    model, key, said, _ = CREATING[name]

    first = call(name, project_root=project, client_id="try-1", **said)
    events = Event.objects.count()
    again = call(name, project_root=project, client_id="try-1", **said)

    assert "duplicate" not in first and again["duplicate"] is True
    assert again[key] == first[key]
    assert model.objects.count() == 1
    assert Event.objects.count() == events, "a repeated call is no news"


@each
def test_it_makes_another_for_another_client_id_and_for_none(call: Call, project: str, name: str) -> None:
    model, key, said, _ = CREATING[name]

    made = [call(name, project_root=project, **said, **more)[key] for more in ({"client_id": "1"}, {"client_id": "2"})]
    made += [call(name, project_root=project, **said)[key] for _ in range(2)]

    assert len(set(made)) == 4 == model.objects.count()


@each
def test_it_refuses_other_content_under_a_client_id(call: Call, refused: Call, project: str, name: str) -> None:
    model, key, said, other = CREATING[name]
    first = call(name, project_root=project, client_id="try-1", **said)

    error = refused(name, project_root=project, client_id="try-1", **{**said, **other})

    assert error["code"] == "VALIDATION_ERROR"
    assert error["details"] == {"field": "client_id", "first": first[key]}
    assert model.objects.count() == 1


@each
def test_it_keeps_the_client_ids_of_agents_apart(project: str, name: str) -> None:
    model, _, said, _ = CREATING[name]

    for agent in ("ana", "bob"):
        mine = {"from_agent_id": agent} if "from_agent_id" in said else {}
        caller = Caller(transport="test", agent_id=agent)
        envelope = run(caller, name, {"project_root": project, "client_id": "1", **said, **mine})
        assert envelope["ok"] and "duplicate" not in envelope["data"], envelope

    assert model.objects.count() == 2


@each
@pytest.mark.usefixtures("committed")
def test_it_makes_one_of_many_calls_at_once(call: Call, project: str, name: str) -> None:
    model, key, said, _ = CREATING[name]
    call("workspace_resolve", project_root=project)

    for number in range(3):  # a race that is lost only sometimes is lost in one of these
        arguments = {"project_root": project, "client_id": f"try-{number}", **said}
        answers = at_once([partial(run, LOCAL, name, arguments)] * 8)

        assert all(answer["ok"] for answer in answers), answers
        assert len({answer["data"][key] for answer in answers}) == 1
        assert sum("duplicate" not in answer["data"] for answer in answers) == 1
        assert model.objects.count() == number + 1


def test_it_tells_a_repeated_message_whom_it_reached(call: Call, project: str) -> None:
    said = CREATING["message_create"][2]
    send = partial(call, "message_create", project_root=project, client_id="1", **said)
    first = send()
    call("inbox_ack", agent_id="bob", message_ids=first["message_id"])

    again = send()

    told = {"event_id", "recipients", "delivered_count", "created_at", "subject"}
    assert {name: again[name] for name in told} == {name: first[name] for name in told}
    assert Delivery.objects.count() == 1


def test_it_knows_a_handoff_that_was_reassigned_since(call: Call, refused: Call, project: str) -> None:
    _, key, said, _ = CREATING["handoff_create"]
    first = call("handoff_create", project_root=project, client_id="try-1", **said)
    operator = Caller(transport="test", operator="olga")
    assert run(operator, "handoff_reassign", {"handoff_id": first[key], "agent_id": "cleo"})["ok"]

    again = call("handoff_create", project_root=project, client_id="try-1", **said)

    assert (again[key], again["duplicate"]) == (first[key], True)
    other = said | {"target": {"strategy": "direct", "agent_id": "cleo"}}
    assert refused("handoff_create", project_root=project, client_id="try-1", **other)["details"]["first"] == first[key]


def test_it_tells_how_a_repeated_handoff_stands(call: Call, project: str) -> None:
    create = partial(call, "handoff_create", project_root=project, client_id="1", **CREATING["handoff_create"][2])
    handoff = create()["handoff_id"]
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")

    again = create()

    assert again["status"] == "CLAIMED"
    assert not {"notified", "eligible_count", "warning"} & again.keys(), "what was done with it was done once"


@pytest.mark.parametrize("client_id", ["", " ", "x" * 201, 7, "a\x00b"])
@each
def test_it_refuses_a_malformed_client_id(refused: Call, project: str, name: str, client_id: Any) -> None:
    error = refused(name, project_root=project, client_id=client_id, **CREATING[name][2])

    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "client_id")
