"""The events of messages, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import EntityRef, Sentence

THINGS = {"message": EntityRef("a message", "inbox_message_change", "message_id", name="subject")}
SENTENCES = {
    "message.created": Sentence("{actor} wrote {message}[ to {recipients}]", "{count} messages sent"),
    "message.requeued": Sentence("{actor} put {message} back into the inbox[ of {recipients}]", "{count} requeued"),
    "message.forwarded": Sentence("{actor} forwarded {message}[ of {former}][ to {recipients}]", "{count} forwarded"),
    "message.acknowledged": Sentence(
        "{actor} settled {message}, a dead letter[ of {recipients}]", "{count} dead letters settled"
    ),
    "message.overdue": Sentence("{message} has not come as far as expected[ with {recipients}]", "{count} overdue"),
    "message.parked": Sentence("{actor} made {message} a dead letter again[ of {recipients}]", "{count} parked again"),
}
