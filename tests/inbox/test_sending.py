"""What message_create stores and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordination.models import Event, Workspace
from inbox.models import Delivery, Message
from tests.conftest import Call
from tests.store import broken

pytestmark = pytest.mark.usefixtures("team")

TO_BOB = {"strategy": "direct", "agent_id": "bob"}


@pytest.fixture
def letter(project: str) -> dict[str, Any]:
    """The arguments of a message that is sent as it is."""
    return {"project_root": project, "from_agent_id": "ana", "subject": "Hello", "body": "World", "target": TO_BOB}


def test_it_answers_the_message_without_its_body(call: Call, letter: dict[str, Any]) -> None:
    sent = call("message_create", **letter, artifacts=["art_1", "art_2"])

    assert sent["message_id"].startswith("msg")
    assert sent["from_agent_id"] == "ana"
    assert (sent["subject"], sent["target"]) == ("Hello", TO_BOB)
    assert "body" not in sent
    assert sent["artifacts"] == ["art_1", "art_2"]
    assert (sent["channel_id"], sent["parent_message_id"], sent["from_session_id"]) == (None, None, None)
    assert sent["event_id"] == Event.objects.get(type="message.created").event_id


@pytest.mark.parametrize(
    ("target", "visibility"), [(TO_BOB, "eligible"), (None, "public"), ({"strategy": "broadcast"}, "eligible")]
)
def test_it_records_the_message_on_the_workspace_stream(
    call: Call, letter: dict[str, Any], target: Any, visibility: str
) -> None:
    sent = call("message_create", **letter | {"target": target})

    event = Event.objects.get(event_id=sent["event_id"])
    assert (event.stream, event.type, event.actor_agent_id) == ("workspace", "message.created", "ana")
    assert (event.visibility, event.target) == (visibility, target)
    assert event.payload["message_id"] == sent["message_id"]
    assert event.payload["recipients"] == sent["recipients"]


@pytest.mark.parametrize("field", ["subject", "body"])
def test_it_measures_content_in_bytes_inclusively(
    call: Call, refused: Call, letter: dict[str, Any], field: str
) -> None:
    fits = "é" * 32_768

    call("message_create", **letter | {field: fits})
    assert call("inbox_peek", agent_id="bob")["messages"][0][field] == fits
    error = refused("message_create", **letter | {field: fits + "x"})

    assert error["code"] == "CONTENT_TOO_LARGE"
    assert error["details"] == {"field": field, "size": 65_537, "limit": 65_536}
    assert "artifact_put" in error["message"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"subject": " "}, "VALIDATION_ERROR"),
        ({"body": ""}, "VALIDATION_ERROR"),
        ({"body": None}, "VALIDATION_ERROR"),
        ({"body": 7}, "VALIDATION_ERROR"),
        ({"from_agent_id": ""}, "VALIDATION_ERROR"),
        ({"artifacts": "art_1"}, "VALIDATION_ERROR"),
        ({"artifacts": [{"content": "inline"}]}, "VALIDATION_ERROR"),
        ({"urgent": True}, "VALIDATION_ERROR"),
        ({"project_root": None}, "WORKSPACE_REQUIRED"),
        ({"project_root": ""}, "WORKSPACE_REQUIRED"),
        ({"project_root": "/no/such/place"}, "WORKSPACE_UNRESOLVED"),
        ({"channel_id": "chn_x"}, "NOT_FOUND"),
        ({"parent_message_id": "msg_x"}, "NOT_FOUND"),
    ],
)
def test_it_refuses_what_cannot_be_sent_and_keeps_nothing_of_it(
    refused: Call, letter: dict[str, Any], changes: dict[str, Any], code: str
) -> None:
    assert refused("message_create", **letter | changes)["code"] == code
    assert [model.objects.count() for model in (Message, Delivery, Event, Workspace)] == [0, 0, 0, 0]


def test_it_names_the_fault_that_comes_first(refused: Call, letter: dict[str, Any]) -> None:
    wrong = {
        "subject": "x" * 65_537,
        "body": " ",
        "channel_id": "chn_x",
        "project_root": "/no/such/place",
    }
    mended = [{"body": "b"}, {"project_root": letter["project_root"]}, {"subject": "s"}]

    codes = [refused("message_create", **letter | wrong)["code"]]
    for repair in mended:
        wrong |= repair
        codes.append(refused("message_create", **letter | wrong)["code"])

    assert codes == ["VALIDATION_ERROR", "WORKSPACE_UNRESOLVED", "CONTENT_TOO_LARGE", "NOT_FOUND"]


TO_ANA = {"strategy": "direct", "agent_id": "ana"}


class TestChannelsAndParents:
    """A channel files a message; a parent threads it."""

    def test_it_files_a_message_without_changing_who_receives_it(self, call: Call, letter: dict[str, Any]) -> None:
        channel = call("channel_create", project_root=letter["project_root"], name="news")["channel"]["channel_id"]

        sent = call("message_create", **letter, channel_id=channel)

        assert (sent["channel_id"], sent["recipients"]) == (channel, ["bob"])
        assert call("inbox_pull", agent_id="bob")["messages"][0]["channel_id"] == channel

    def test_it_does_not_find_the_channel_of_another_workspace(
        self, call: Call, refused: Call, letter: dict[str, Any], tmp_path: Path
    ) -> None:
        channel = call("channel_create", project_root=str(tmp_path), name="news")["channel"]["channel_id"]

        assert refused("message_create", **letter, channel_id=channel)["code"] == "NOT_FOUND"

    def test_it_threads_an_answer_below_its_parent(self, call: Call, letter: dict[str, Any]) -> None:
        parent = call("message_create", **letter)["message_id"]

        answer = call("message_create", **letter, parent_message_id=parent)

        assert answer["parent_message_id"] == parent
        assert call("inbox_pull", agent_id="bob")["messages"][1]["parent_message_id"] == parent

    def test_it_does_not_find_a_parent_of_another_workspace(
        self, call: Call, refused: Call, letter: dict[str, Any], tmp_path: Path
    ) -> None:
        parent = call("message_create", **letter | {"project_root": str(tmp_path)})["message_id"]

        assert refused("message_create", **letter, parent_message_id=parent)["code"] == "NOT_FOUND"

    @pytest.mark.parametrize("where", ["my own project", "nowhere"])
    def test_it_answers_mail_of_another_project_there(
        self, call: Call, letter: dict[str, Any], tmp_path: Path, where: str
    ) -> None:
        """Inboxes are global: bob, at home in another project, answers without knowing where ana's is."""
        sent = call("message_create", **letter)
        (mail,) = call("inbox_pull", agent_id="bob")["messages"]
        assert (mail["workspace_id"], mail["workspace_name"]) == (
            sent["workspace_id"],
            Path(letter["project_root"]).name,
        )
        to_ana = {"from_agent_id": "bob", "subject": "s", "body": "b", "target": TO_ANA}
        own = {"project_root": str(tmp_path)} if where == "my own project" else {}

        answer = call("message_create", **to_ana, **own, parent_message_id=mail["message_id"])

        assert (answer["workspace_id"], answer["parent_message_id"]) == (sent["workspace_id"], sent["message_id"])
        assert "workspace_created" not in answer and Workspace.objects.count() == 1
        (back,) = call("inbox_pull", agent_id="ana")["messages"]
        again = call("message_create", **letter | {"project_root": None}, parent_message_id=back["message_id"])
        follow_up = call("message_create", **letter | {"project_root": None}, parent_message_id=again["message_id"])
        assert again["workspace_id"] == follow_up["workspace_id"] == sent["workspace_id"]

    def test_it_answers_nowhere_what_one_neither_received_nor_wrote(
        self, call: Call, refused: Call, letter: dict[str, Any], tmp_path: Path
    ) -> None:
        parent = call("message_create", **letter)["message_id"]
        eve = {"from_agent_id": "eve", "subject": "s", "body": "b", "parent_message_id": parent}
        assert refused("message_create", **eve)["code"] == "NOT_FOUND"
        assert refused("message_create", **eve, project_root=str(tmp_path))["code"] == "NOT_FOUND"

    def test_it_finds_the_channel_of_an_answer_where_the_answer_goes(
        self, call: Call, refused: Call, letter: dict[str, Any], tmp_path: Path
    ) -> None:
        here, there = (
            call("channel_create", project_root=root, name="news")["channel"]["channel_id"]
            for root in (letter["project_root"], str(tmp_path))
        )
        parent = call("message_create", **letter, channel_id=here)["message_id"]
        answer = {"from_agent_id": "bob", "subject": "s", "body": "b", "target": TO_ANA, "parent_message_id": parent}
        at_home = {"project_root": str(tmp_path)}
        assert call("message_create", **answer, **at_home, channel_id=here)["channel_id"] == here
        assert refused("message_create", **answer, **at_home, channel_id=there)["code"] == "NOT_FOUND"

    def test_it_asks_for_the_parents_channel_only_when_a_channel_is_set(
        self, call: Call, refused: Call, letter: dict[str, Any]
    ) -> None:
        news, talk = (
            call("channel_create", project_root=letter["project_root"], name=name)["channel"]["channel_id"]
            for name in ("news", "talk")
        )
        parent = call("message_create", **letter, channel_id=news)["message_id"]

        assert call("message_create", **letter, parent_message_id=parent)["channel_id"] is None
        assert call("message_create", **letter, parent_message_id=parent, channel_id=news)["channel_id"] == news
        error = refused("message_create", **letter, parent_message_id=parent, channel_id=talk)
        assert error["code"] == "NOT_FOUND"


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("table", ["message_deliveries", "events", "agents"])
def test_it_keeps_nothing_of_a_send_that_fails_halfway(refused: Call, letter: dict[str, Any], table: str) -> None:
    verb = "UPDATE" if table == "agents" else "INSERT"
    with broken(table, verb):
        error = refused("message_create", **letter)

    assert error["code"] == "DB_ERROR"
    assert "broken" not in error["message"]
    assert [model.objects.count() for model in (Message, Delivery, Event, Workspace)] == [0, 0, 0, 0]


def test_it_takes_a_message_from_an_unregistered_sender(call: Call, letter: dict[str, Any]) -> None:
    assert call("message_create", **letter | {"from_agent_id": "ghost"})["recipients"] == ["bob"]
