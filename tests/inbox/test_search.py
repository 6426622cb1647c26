"""Full-text search over messages and events."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.models import Event, RetentionPass
from inbox.models import Message
from inbox.search import search
from tests.conftest import Call, examples


@pytest.fixture
def letters(call: Call, team: None, project: str) -> dict[str, str]:
    """Two messages: their ids by subject."""
    sent = {}
    for subject, body in (("Café opening", "The quick brown fox"), ("Build", "broken on the 2nd socket-timeout")):
        data = call("message_create", project_root=project, from_agent_id="ana", subject=subject, body=body)
        sent[subject] = data["message_id"]
    return sent


def found(text: str) -> list[str]:
    return [hit.identifier for hit in search(text) if hit.kind == "message"]


@pytest.mark.parametrize("words", ["quick", "QUICK fox", "brow", "cafe", "café open", "ana quick"])
def test_it_finds_a_message_by_words_of_subject_body_or_sender(letters: dict[str, str], words: str) -> None:
    assert found(words) == [letters["Café opening"]]


@pytest.mark.parametrize(
    ("words", "bodies"),
    [("a", ["été à la"]), ("ap", []), ("app", ["an apple"]), ("an", ["an apple"]), ("an ap", []), ("x-a", []),
     ("é", []), ("la", ["été à la"]), ("日", ["日本語"])],
)  # fmt: skip
def test_it_finds_one_and_two_letters_as_a_whole_word_alone(
    call: Call, team: None, project: str, words: str, bodies: list[str]
) -> None:
    for body in ("an apple", "été à la", "日本語"):
        call("message_create", project_root=project, from_agent_id="ana", subject="-", body=body)
    assert [Message.objects.get(pk=message_id).body for message_id in found(words)] == bodies


def test_it_wants_every_word(letters: dict[str, str]) -> None:
    assert found("quick socket") == []


def test_it_finds_the_newest_first_and_pages_on(letters: dict[str, str]) -> None:
    newest, older = search("ana")[:2]
    assert [hit.identifier for hit in search("ana", before=newest.document, limit=1)] == [older.identifier]


def test_it_finds_events_by_type_and_payload(call: Call, letters: dict[str, str], project: str) -> None:
    call("artifact_put", project_root=project, artifact_type="text", name="ledger", content="x")
    assert [hit.title for hit in search("ledger")] == ["artifact.created"]
    assert [hit.title for hit in search("artifact.created")] == ["artifact.created"]


def test_it_forgets_pruned_events_and_keeps_their_messages(call: Call, letters: dict[str, str], project: str) -> None:
    call("artifact_put", project_root=project, artifact_type="text", name="ledger", content="x")
    with transaction.atomic():
        RetentionPass.objects.create()
        Event.objects.all().delete()
        RetentionPass.objects.all().delete()
    assert search("ledger") == []
    assert found("quick") == [letters["Café opening"]]


def test_it_forgets_a_deleted_message(letters: dict[str, str]) -> None:
    Message.objects.all().delete()
    assert found("quick") == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM message_documents")
        assert cursor.fetchone() == (0,)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(), st.text(alphabet="\"*()-+^:{}AND OR NOT NEAR\x00'\\%", max_size=40)))
def test_it_takes_any_text_as_a_query(db: None, text: str) -> None:
    search(text)
