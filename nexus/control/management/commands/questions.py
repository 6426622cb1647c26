"""`nexus questions`: agents' questions to the operators, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination.target_options import AGENT
from nexus.core.verbs import Option, Verb, VerbsCommand, time

QUESTION = Option("question_id", help="A question_id; `nexus questions` lists them.")


class Command(VerbsCommand):
    toolset = "control"
    help = "List the questions that agents ask operators, and answer them."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_questions",
                options=["which", AGENT, "limit"],
                rows="questions",
                columns={
                    "question": "question_id",
                    "agent": "agent_id",
                    "kind": "kind",
                    "asks": "title",
                    "status": lambda row: "allowed always" if row["always"] else row["status"],
                    "asked": time("asked_at"),
                },
                examples=["nexus questions list --which ended --json"],
            ),
            Verb(
                "show",
                "Show the whole question. Read it before you allow it.",
                operation="pool_get_question",
                words=[QUESTION],
                examples=["nexus questions show qst_…"],
            ),
            Verb(
                "allow",
                "Allow what is asked, once or always.",
                self.allow,
                _add_always,
                operation="pool_allow",
                words=[QUESTION],
                each=True,
                examples=["nexus questions allow qst_…", "nexus questions allow qst_… --always --scope project"],
            ),
            Verb(
                "refuse",
                operation="pool_refuse",
                words=[QUESTION],
                each=True,
                examples=["nexus questions refuse qst_…"],
            ),
            Verb(
                "answer",
                operation="pool_answer",
                words=[QUESTION, "words"],
                examples=['nexus questions answer qst_… "Use the second one."'],
            ),
            Verb(
                "answer-late",
                operation="pool_answer_late",
                words=[QUESTION, "words"],
                examples=['nexus questions answer-late qst_… "Use the second one."'],
            ),
            Verb(
                "dismiss",
                operation="pool_dismiss_question",
                words=[QUESTION],
                each=True,
                examples=["nexus questions dismiss qst_…"],
            ),
        )

    def allow(self, options: Mapping[str, Any]) -> int:
        """Allow each of the questions."""
        name, more = ("pool_allow_always", {"scope": options["scope"]}) if options["always"] else ("pool_allow", {})
        return self.each(options, options["question_id"], lambda one: self.call(name, question_id=one, **more))


def _add_always(parser: CommandParser) -> None:
    parser.add_argument("--always", action="store_true", help="Also write a rule that allows the same from now on.")
    parser.add_argument(
        "--scope",
        choices=("agent", "runner", "project"),
        default="agent",
        help="For whom the rule holds: the agent, agents of its runner, or of its project.",
    )
