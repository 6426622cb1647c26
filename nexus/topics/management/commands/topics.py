"""`nexus topics`: topics, their messages, and their export files."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from coordination.log.selectors import interest_in
from nexus.core.cli import ago, one_line, text_of
from nexus.core.fulltext import HIT_ENDS, HIT_STARTS
from nexus.core.operations.caller import LOCAL_OPERATOR
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import MAX_INTEGER, whole_number
from nexus.core.operations.replies import Data
from nexus.core.progress import Bar
from nexus.core.verbs import Column, Option, Row, Verb, VerbsCommand, name_argument
from nexus.core.waiting import READERS, in_thread, waiter
from nexus.topics import agent_bus, archive, selectors
from nexus.topics.config import TopicSettings
from nexus.topics.embedding.background import catch_up
from nexus.topics.models import STREAM
from nexus.topics.rows import message_row
from nexus.topics.toolset import TopicCode, Unavailable, argument

TOPIC = "Its topic_id or its name; a name means its newest open topic."
PAGE = 100
REWRITE = Option("rewrite_messages", "--rewrite", "Replace the name in the topic's messages, too.")
REASON = Option("reason", help="Why, for everybody who reads it later.")


class Command(VerbsCommand):
    toolset = "topics"
    help = "List, show, follow and search topics; post and export."

    def verbs(self) -> Sequence[Verb]:
        topic = Option("topic_id", "TOPIC", TOPIC, required=True, read=self._id)
        return (
            Verb(
                "list",
                "List topics, newest first.",
                operation="topic_overview",
                options=[Option("status", help="Only topics in this state."), "limit"],
                rows="topics",
                columns={
                    "topic": "topic_id",
                    "name": "name",
                    "state": "status",
                    "messages": "last_seq",
                    "last": _time("last_message_at"),
                    "peers": "peers",
                    "opened": _time("created_at"),
                },
                examples=["nexus topics list --status open", "nexus topics list --json"],
            ),
            Verb(
                "show",
                "Show a topic and its newest messages.",
                self.show_one,
                operation="topic_read",
                words=[topic],
                options=["after", Option("limit", help="Messages at most.", default=20)],
                examples=["nexus topics show cache-review --limit 5", "nexus topics show cache-review --json"],
            ),
            Verb(
                "watch",
                "Follow a topic: print every message, until it is interrupted.",
                self.watch,
                _add_watch,
                ["nexus topics watch cache-review --last 20", "nexus topics watch cache-review --json"],
            ),
            Verb(
                "presence",
                "Show which peers synced recently, and how far each has read.",
                operation="topic_presence",
                words=[topic],
                options=[Option("window_seconds", "--window", "How many seconds count as recent.")],
                rows="peers",
                columns={"peer": "agent_name", "has read": "last_seq", "last seen": _time("updated_at")},
                examples=["nexus topics presence cache-review --window 3600"],
                nothing="nobody synced recently",
            ),
            Verb(
                "join",
                "Reserve or reclaim a name in a topic; prints its token.",
                operation="topic_join",
                words=[topic, Option("agent_name", "NAME", "The name to reserve or reclaim.")],
                options=[Option("reclaim_token", "--token", "The reclaim_token of a name that is reserved.")],
                examples=["nexus topics join cache-review operator"],
            ),
            Verb(
                "post",
                "Send a message; opens the topic if none of that name is open.",
                self.post,
                _add_post,
                [
                    'nexus topics post cache-review "Please stop here."',
                    "git log -1 | nexus topics post releases --as release-bot --token 5cd1… -",
                ],
            ),
            Verb(
                "search",
                "Find messages by their words.",
                self.search,
                _add_words,
                operation="messages_search",
                options=[
                    Option("topic_id", "--topic", "Only in this topic.", read=self._id),
                    Option("mode", help="How to search.", default="fts"),
                    Option("limit", help="Messages at most."),
                ],
                rows="results",
                columns={
                    "topic": "topic_name",
                    "message": "seq",
                    "from": "sender",
                    "found": lambda row: row["snippet"].replace(HIT_STARTS, "»").replace(HIT_ENDS, "«"),
                },
                examples=["nexus topics search cache key", "nexus topics search --topic cache-review key --json"],
            ),
            Verb(
                "export",
                "Write a topic as Markdown or JSON.",
                self.export,
                _add_export,
                ["nexus topics export cache-review > review.md", "nexus topics export cache-review --format json"],
            ),
            Verb(
                "import",
                "Import a database of Agent Bus; again to go on where it was stopped.",
                self.import_file,
                name_argument("file", "The database."),
                ["nexus topics import ~/.agent_bus/agent_bus.sqlite"],
            ),
            Verb(
                "rename",
                "Give a topic another name.",
                operation="topic_rename",
                words=[topic, Option("name", help="The new name.")],
                options=[REWRITE],
                examples=["nexus topics rename cache-review cache-review-1 --rewrite"],
            ),
            Verb(
                "close",
                "Close a topic: it takes no more messages.",
                operation="topic_close",
                words=[topic],
                options=[REASON],
                examples=['nexus topics close cache-review --reason "Merged"'],
            ),
            Verb(
                "delete",
                "Delete a topic with its messages, cursors and reserved names.",
                self.delete,
                _add_topic,
                ["nexus topics delete cache-review --yes"],
                asks=True,
            ),
            Verb(
                "reindex",
                "Rebuild the search index, with vectors if a model is set.",
                self.reindex,
                examples=["nexus topics reindex", "nexus topics reindex --embedding-model /srv/models/potion"],
            ),
        )

    def show_one(self, options: Mapping[str, Any]) -> int:
        """Show a topic and its messages."""
        data = self.answer(options)
        if options["json"]:
            return self.show(options, data)
        self.show(options, {name: value for name, value in data.items() if name != "messages" and value is not None})
        for message in data["messages"]:
            self._print_message(message)
        return 0

    def watch(self, options: Mapping[str, Any]) -> int:
        """Print every message as it arrives."""
        topic = selectors.get_topic(self._id(options["topic"]))
        asyncio.run(self._follow(topic.topic_id, max(topic.last_seq - options["last"], 0), options["json"]))
        return 0

    async def _follow(self, topic_id: str, after: int, as_json: bool) -> None:
        async with waiter().park(interest_in(STREAM, "topic_id", topic_id, lambda event: True)) as parked:
            while True:
                page = await in_thread(READERS, partial(selectors.page, topic_id, after=after, limit=PAGE))
                for message in page:
                    row = message_row(message)
                    self.stdout.write(json.dumps(row)) if as_json else self._print_message(row)
                    after = message.seq
                self.stdout.flush()
                if len(page) < PAGE:
                    await parked.wait(math.inf)

    def post(self, options: Mapping[str, Any]) -> int:
        """Send one message, as the operators or under a name of its own; that name's cursor does not move."""
        if options["token"] is not None and options["agent_name"] is None:
            raise argument("--token belongs to a name: give it with --as.")
        try:
            topic_id = self._id(options["topic"], allow_closed=False)
        except NexusError as error:
            if error.code != TopicCode.TOPIC_NOT_FOUND:
                raise
            topic_id = self.call("topic_create", name=options["topic"])["topic_id"]
        message = {
            "content_markdown": text_of(options["text"]),
            "message_type": options["type"],
            "reply_to": options["reply_to"],
        }
        if options["agent_name"] is None:
            return self.show(options, self.call("topic_post", topic_id=topic_id, message=message)["message"])
        joined = self.call(
            "topic_join", topic_id=topic_id, agent_name=options["agent_name"], reclaim_token=options["token"]
        )
        synced = self.call("sync", topic_id=topic_id, outbox=[message], wait_seconds=0, auto_advance=False)
        sent = synced["sent"][0]["message"]
        return self.show(options, {**sent, "reclaim_token": joined["reclaim_token"]})

    def search(self, options: Mapping[str, Any]) -> int:
        """Print the results of a search, best first."""
        return self.present(options, self.answer(options, query=" ".join(options["words"])))

    def export(self, options: Mapping[str, Any]) -> int:
        """Write a topic to a file."""
        topic = selectors.get_topic(self._id(options["topic"]))
        form = "json" if options["json"] else options["format"]
        pieces = (archive.to_json if form == "json" else archive.to_markdown)(topic, after=options["after"])
        sys.stdout.reconfigure(newline="", encoding="utf-8")  # type: ignore[union-attr]  # what was said, to the letter
        sys.stdout.writelines(pieces)
        return 0

    def import_file(self, options: Mapping[str, Any]) -> int:
        """Import the topics in a database of Agent Bus."""
        file = Path(options["file"]).expanduser()
        if not file.is_file():  # a pipe would wait for a writer
            raise argument(f"Nothing was imported: {file} is no file.")
        bar = Bar(self.stderr, "importing messages")
        with agent_bus.opened(file) as store:
            steps = 2 * store.messages
            stored = agent_bus.restore(
                store,
                operator=LOCAL_OPERATOR,
                progress=lambda checked, stored: bar(0, steps - checked - stored, steps),
            )
        return self.show(options, stored._asdict())

    def delete(self, options: Mapping[str, Any]) -> int:
        """Delete a topic."""
        topic = selectors.get_topic(self._id(options["topic"]))
        question = f"Delete {topic.name!r} with its {topic.messages.count()} messages and {topic.peers.count()} names?"
        if not options["yes"] and not self.ask(question):
            self.stdout.write("Nothing was deleted.")
            return 0
        return self.show(options, self.call("topic_delete", topic_id=topic.topic_id))

    def reindex(self, options: Mapping[str, Any]) -> int:
        """Rebuild the index of words; then make the missing vectors."""
        data = self.call("topic_reindex")
        if not TopicSettings.current().embedding_model:
            return self.show(options, data)
        try:
            total = None
            for left in catch_up():
                total = left if total is None else total
                self.stderr.write(f"indexed by meaning {max(total - left, 0)}, {left} to go")
        except Unavailable as why:
            raise argument(f"The index of words was rebuilt. {why}") from None
        return self.show(options, {**data, "indexed_by_meaning": total})

    def _id(self, given: str, *, allow_closed: bool = True) -> str:
        """Return the id of the named topic. Raises TOPIC_NOT_FOUND."""
        try:
            return selectors.get_topic(given).topic_id
        except NexusError:
            resolved: Data = self.call("topic_resolve", name=given, allow_closed=allow_closed)
            return str(resolved["topic_id"])

    def _print_message(self, message: Mapping[str, Any]) -> None:
        at = datetime.fromtimestamp(message["created_at"], UTC).astimezone()
        reply = f" reply to {message['reply_to']}" if message["reply_to"] else ""
        about = f"[{message['seq']}] {message['sender']} ({message['message_type']}) {at:%Y-%m-%d %H:%M:%S}{reply}"
        self.stdout.write(f"\n{one_line(about, 200)}  {message['message_id']}")
        for line in message["content_markdown"].splitlines():
            self.stdout.write(f"  {one_line(line, widest=10_000) if line else ''}".rstrip())


def _time(name: str) -> Column:
    """Return a column that shows a time in seconds as an age."""

    def shown(row: Row) -> str:
        seconds = row[name]
        return ago(None if seconds is None else datetime.fromtimestamp(seconds, UTC))

    return shown


def _seq(text: str) -> int:
    """Parse an argument that is a message's sequence number."""
    number = whole_number(text, MAX_INTEGER)
    if number is None:
        raise ValueError
    return number


def _add_topic(parser: CommandParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help=TOPIC)


def _add_watch(parser: CommandParser) -> None:
    _add_topic(parser)
    parser.add_argument("--last", type=_seq, default=0, help="Begin with this many of the newest messages. [0]")


def _add_post(parser: CommandParser) -> None:
    _add_topic(parser)
    parser.add_argument("text", metavar="TEXT", help="The message, in Markdown; - reads it from standard input.")
    parser.add_argument("--as", dest="agent_name", metavar="NAME", help="Another name than the operators'.")
    parser.add_argument("--token", help="The reclaim_token of that name; needed from its second use on.")
    parser.add_argument("--type", default="message", help="message, question, answer, or any other. [message]")
    parser.add_argument("--reply-to", help="The message_id that this answers.")


def _add_words(parser: CommandParser) -> None:
    parser.add_argument("words", nargs="+", metavar="WORD", help="Words, each matched from its beginning.")


def _add_export(parser: CommandParser) -> None:
    _add_topic(parser)
    parser.add_argument("--format", choices=("markdown", "json"), default="markdown", help="The form. [markdown]")
    parser.add_argument("--after", type=_seq, default=0, help="Only the messages after this number. [0]")
