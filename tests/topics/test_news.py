"""How agents learn between their turns of what is said: signal files, the hook, webhooks."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from django.conf import settings
from django.db import connection
from hypothesis import given

from coordination.models import Event
from coordination.toolset import run
from nexus.hooks import signal_files, store_queries
from nexus.hooks.harness import HookCall
from nexus.hooks.quick_check import glance
from nexus.hooks.signals import concerned
from nexus.topics import hook as sql  # registers it, as the start of a hook does
from nexus.topics import naming, notices
from nexus.topics.models import TopicMessage
from tests.conftest import LOCAL
from tests.topics.conftest import Client

HOME = settings.NEXUS.home


@pytest.fixture
def registered(committed: None) -> None:
    """The agents builder and reviewer, both of whom listen for signals."""
    for agent_id in ("builder", "reviewer"):
        assert run(LOCAL, "agent_register", {"agent_id": agent_id})["ok"]
        signal_files.arm(HOME, agent_id)


@pytest.fixture
def speaker(registered: None) -> Client:
    return Client()


@pytest.fixture
def topic(speaker: Client) -> str:
    """A topic that the speaker has joined."""
    topic_id: str = speaker.call("topic_create", name="cache")["topic_id"]
    speaker.join(topic_id, "speaker")
    return topic_id


def waiting(agent_id: str) -> list[str]:
    """What waits for an agent, by its text; the look without Django must agree."""
    ids = [notice.identifier for notice in notices.unread_messages(agent_id)]
    if connection.vendor == "sqlite":
        seen = glance(settings.NEXUS.database, agent_id=agent_id, root="/", busy_ms=1000)
        assert seen.waiting == set(ids)
    found = {message.message_id: message.content_markdown for message in TopicMessage.objects.all()}
    return [found[message_id] for message_id in ids]


def told(act: Callable[[], object]) -> set[str]:
    """The agents that an act signals; a webhook's events agree."""
    before = {agent_id: signal_files.stamp(HOME, agent_id) for agent_id in ("builder", "reviewer")}
    act()
    newest = Event.objects.order_by("event_id").last()
    assert newest is not None
    signalled = {agent_id for agent_id, stamp in before.items() if signal_files.stamp(HOME, agent_id) != stamp}
    assert concerned(newest) & set(before) == signalled
    return signalled


def test_an_agent_is_told_of_new_messages_in_topics_it_joined(speaker: Client, topic: str) -> None:
    assert sql.WAITING
    builder = Client(agent_id="builder")
    builder.join(topic, "red-squirrel")
    assert told(lambda: speaker.say(topic, "one", "two")) == {"builder"}
    assert (waiting("builder"), waiting("reviewer")) == (["one", "two"], [])
    assert told(lambda: builder.say(topic, "mine")) == set()
    builder.look(topic, max_items=1)
    assert waiting("builder") == ["two"]
    builder.look(topic)
    assert waiting("builder") == []


def test_a_peer_of_an_unbound_connection_is_the_agent_of_that_name(speaker: Client, topic: str) -> None:
    Client().join(topic, "builder")
    Client(agent_id="builder").join(topic, "reviewer")
    assert told(lambda: speaker.say(topic, "one")) == {"builder"}
    assert (waiting("builder"), waiting("reviewer")) == (["one"], []), "the name reviewer is builder's here"


def test_an_agent_is_told_of_messages_that_name_it_until_it_joins(speaker: Client, topic: str) -> None:
    assert told(lambda: speaker.say(topic, "what does @reviewer say? (@nobody, a@builder)")) == {"reviewer"}
    assert told(lambda: speaker.say(topic, "and nobody else")) == set()
    assert len(waiting("reviewer")) == 1 and waiting("builder") == []
    reviewer = Client(agent_id="reviewer")
    reviewer.join(topic, "blue-heron")
    assert len(waiting("reviewer")) == 2
    reviewer.look(topic)
    assert waiting("reviewer") == []


def test_nobody_is_told_of_a_closed_topic_it_has_no_part_in(speaker: Client, topic: str) -> None:
    Client(agent_id="builder").join(topic, "red-squirrel")
    speaker.say(topic, "@reviewer")
    speaker.call("topic_close", topic_id=topic)
    assert (waiting("builder"), waiting("reviewer")) == (["@reviewer"], [])


def test_a_notice_tells_what_names_its_reader(speaker: Client, topic: str) -> None:
    Client(agent_id="builder").join(topic, "red-squirrel")
    speaker.say(topic, "plain", "for @builder.")
    first, second = notices.unread_messages("builder")
    assert ("names you" in first.what, "names you" in second.what) == (False, True)
    assert second.said == {"topic": "cache", "from": "speaker", "body": "for @builder."}


def test_the_hook_tells_of_what_is_said_and_not_of_what_is_known(speaker: Client, topic: str, project: str) -> None:
    Client(agent_id="builder").join(topic, "builder")
    hook = HookCall("claude-code", "session_start", project, "builder")
    assert store_queries.waiting(hook, ()) == ("", set())
    (said,) = speaker.say(topic, "<b>why?</b>")
    text, fresh = store_queries.waiting(hook, ())
    assert fresh == {said["message_id"]}
    assert "1 new topic message" in text and "sync(topic_id" in text
    assert "why?" in text and "<b>" not in text, "what others wrote is quoted"
    assert store_queries.waiting(hook, fresh) == ("", set())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@ann and (@bob), <@cleo>", {"ann", "bob", "cleo"}),
        ("mail@ann.example @@bob", set()),
        ("Ask @claude@shop, or @claude@shop-2.", {"claude@shop", "claude@shop-2", "claude@shop-2."}),
        ("@red-squirrel. @a.b.", {"red-squirrel", "red-squirrel.", "a.b", "a.b."}),
        ("", set()),
    ],
)
def test_a_name_behind_an_at_sign_is_a_mention(text: str, names: set[str]) -> None:
    assert naming.mentioned(text) == names


@given(text=st.text(st.sampled_from("@a. \n(")))
def test_no_text_breaks_mentions(text: str) -> None:
    assert all(text.count(name) for name in naming.mentioned(text))
