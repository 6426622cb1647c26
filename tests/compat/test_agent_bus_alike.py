"""The published Agent Bus 0.5.1 and ours, called alike: what differs in the answers.

NEXUS_DIFFERENCES_TABLE=write writes the table of what differs into docs/how-to/coming-from.md.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nexus.core.operations.dispatch import run
from nexus.topics.toolset import TOPICS
from tests.compat import agent_bus
from tests.topics.conftest import Client

pytestmark = pytest.mark.skipif(
    not agent_bus.SHIM.exists(), reason="Agent Bus is not installed: `python -m tests.compat.agent_bus` does it"
)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md"
TOPIC = ["$", 0, "topic_id"]
BEFORE: list[tuple[str, dict[str, Any]]] = [
    ("topic_create", {"name": "plan", "mode": "new"}),
    ("topic_join", {"topic_id": TOPIC, "agent_name": "ann"}),
    ("sync", {"topic_id": TOPIC, "wait_seconds": 0, "outbox": [{"content_markdown": "foo-bar first"}]}),
]


class Case(NamedTuple):
    what: str
    tool: str
    arguments: dict[str, Any]
    why: str = ""  # where it differs


CODE = "A client can tell it from a failure."
SEARCHED = "What people type is searched for."
CASES = [
    Case("an argument of a wrong type", "topic_create", {"name": 7}, CODE),
    Case("an unknown value", "topic_list", {"status": "odd"}, CODE),
    Case("a missing argument", "topic_close", {}, CODE),
    Case(
        "`reply_to` that is no message of the topic",
        "sync",
        {"topic_id": TOPIC, "wait_seconds": 0, "outbox": [{"content_markdown": "a", "reply_to": "nowhere"}]},
        "A reply to nothing misleads its readers.",
    ),
    Case(
        "a wrong `reclaim_token` in the process that holds the name",
        "topic_join",
        {"topic_id": TOPIC, "agent_name": "ann", "reclaim_token": "wrong"},
        "A token that does not count protects nobody.",
    ),
    Case("a blank `reclaim_token`", "topic_join", {"topic_id": TOPIC, "agent_name": "ann", "reclaim_token": " "}),
    Case("a name that is taken", "topic_join", {"topic_id": TOPIC, "agent_name": " "}),
    Case("an empty `topic_id` of a search", "messages_search", {"query": "first", "topic_id": ""}),
    Case("an unknown `topic_id` of a search", "messages_search", {"query": "first", "topic_id": "nowhere"},
         "No hits and no topic are two things."),
    Case("an empty name of a topic", "topic_create", {"name": "", "mode": "new"}, "Nobody could find it by its name."),
    Case("`foo-bar` in a search by words", "messages_search", {"query": "foo-bar", "mode": "fts"}, SEARCHED),
    Case('`"x` in a search by words', "messages_search", {"query": '"x', "mode": "fts"}, SEARCHED),
    Case("`*` in a search by words", "messages_search", {"query": "*", "mode": "fts"}, SEARCHED),
    Case("a word of a message", "messages_search", {"query": "first", "mode": "fts"}),
    Case("a `sync` of a topic that is unknown", "sync", {"topic_id": "nowhere", "wait_seconds": 0},
         "To join it would not help."),
    Case("a `cursor_reset` of one", "cursor_reset", {"topic_id": "nowhere"}, "To join it would not help."),
    Case("a cursor beyond what there is", "cursor_reset", {"topic_id": TOPIC, "last_seq": 99}),
    Case("a negative cursor", "cursor_reset", {"topic_id": TOPIC, "last_seq": -1}),
    Case("presence", "topic_presence", {"topic_id": TOPIC}),
    Case("an empty message", "sync", {"topic_id": TOPIC, "wait_seconds": 0, "outbox": [{"content_markdown": ""}]}),
    Case("an unknown name of a topic", "topic_resolve", {"name": "nobody"}),
    Case("the end of a topic", "topic_close", {"topic_id": TOPIC, "reason": "done"}),
    Case("its end again", "topic_close", {"topic_id": TOPIC}),
    Case("a message to a closed topic", "sync",
         {"topic_id": TOPIC, "wait_seconds": 0, "outbox": [{"content_markdown": "late"}]}),
]  # fmt: skip


def told(answer: dict[str, Any]) -> str:
    """Return an answer in words: taken, with how many hits of a search, or refused with a code."""
    if "error" not in answer:
        return f"{answer['count']} hits" if "count" in answer else "taken"
    code = answer["error"]["code"]
    return f"`{code}`" if code else "the text of a library, without a code"


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.django_db
def test_the_table_in_the_docs_is_what_differs(tmp_path: Path) -> None:
    calls = [*BEFORE, *((case.tool, case.arguments) for case in CASES)]
    theirs = agent_bus.repeat(tmp_path / "agent_bus.sqlite", calls)
    caller, ours = Client().caller, list[dict[str, Any]]()
    for tool, arguments in calls:
        ours.append(dict(run(TOPICS, caller, tool, agent_bus.filled(arguments, ours))))
    assert not any("error" in answer for answer in (*theirs[: len(BEFORE)], *ours[: len(BEFORE)]))
    answers = zip(CASES, theirs[len(BEFORE) :], ours[len(BEFORE) :], strict=True)
    rows = [(case, told(there), told(here)) for case, there, here in answers]
    differing = [row for row in rows if row[1] != row[2]]
    assert [row[0].what for row in differing] == [case.what for case in CASES if case.why], [
        (row[0].what, *row[1:]) for row in differing if not row[0].why
    ]
    lines = ["| what | Agent Bus 0.5.1 | Nexus | why |", "|---|---|---|---|"]
    lines += [f"| {case.what} | {there} | {here} | {case.why} |" for case, there, here in differing]
    before, begin, rest = PAGE.read_text().partition("<!-- differences: agent-bus -->\n\n")
    _, end, after = rest.partition("\n\n<!-- end -->")
    table = "\n".join(lines)
    if os.environ.get("NEXUS_DIFFERENCES_TABLE") == "write":
        PAGE.write_text(f"{before}{begin}{table}{end}{after}")
    assert table in PAGE.read_text(), "run this test with NEXUS_DIFFERENCES_TABLE=write"
