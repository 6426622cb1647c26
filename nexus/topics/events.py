"""The events of topics, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import EntityRef, Sentence

THINGS = {
    "topic": EntityRef("a topic", "topic", "topic_id", name="topic"),
    "said": EntityRef("a message", "topic_message", "message_id"),
}
SENTENCES = {
    "topic.created": Sentence("{actor} opened the topic {topic}", "{count} topics opened"),
    "topic.joined": Sentence("{agent_name} joined {topic}", "{count} peers joined topics"),
    "topic.message": Sentence("{sender} wrote {said} in {topic}", "{count} messages in topics"),
    "topic.closed": Sentence("{actor} closed {topic}[: {reason}]", "{count} topics closed"),
    "topic.renamed": Sentence("{actor} renamed {topic} from {before} to {name}", "{count} topics renamed"),
    "topic.deleted": Sentence("{actor} deleted the topic {name}", "{count} topics deleted"),
    "topic.message_deleted": Sentence("{actor} deleted {messages} messages in {topic}", "{count} messages deleted"),
    "topic.imported": Sentence("{actor} imported {topics} topics", "{count} imports of topics"),
}
