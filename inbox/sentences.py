"""How the events of messages read to people."""

from __future__ import annotations

from core.contributions import Sentence, Thing

THINGS = {"message": Thing("a message", "mail", "message_id", argument="m", name="subject")}
SENTENCES = {"message.created": Sentence("{actor} wrote {message}[ to {recipients}]", "{count} messages sent")}
