"""`nexus questions`: what agents ask the people, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from coordination import selectors
from nexus.core.cli import EXIT_CODES, NOTHING, ago, positive
from nexus.core.verbs import Verb, VerbsCommand, named, several

QUESTIONS = several("question", "A question_id, of `nexus questions`.")


class Command(VerbsCommand):
    toolset = "control"
    help = "List what agents ask the people, and answer it. Without a verb it lists what waits."
    examples = f"""examples:
  nexus questions
  nexus questions show qst_…
  nexus questions allow qst_…
  nexus questions answer qst_… "Use the second one."
  nexus questions list --which always

{EXIT_CODES}
  {NOTHING}  none there"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List questions: those that wait, those allowed always, or those that ended.", self.list,
                 _add_filters, ["nexus questions list --which ended --json"], nothing="none there"),
            Verb("show", "Show a question whole: read it before you allow it.", self.show_one,
                 named("question", "A question_id."), ["nexus questions show qst_…"]),
            Verb("allow", "Allow what is asked, once or always.", self.allow, _add_allow,
                 ["nexus questions allow qst_…", "nexus questions allow qst_… --always"]),
            self._verb("refuse", "Refuse what is asked.", "pool_refuse"),
            Verb("answer", "Answer in words; a permission is not given with them.", self.answer, _add_answer,
                 ['nexus questions answer qst_… "Use the second one."']),
            self._verb("ask-again", "Take back that something is allowed always.", "pool_ask_again"),
        )  # fmt: skip

    def _verb(self, name: str, help: str, operation: str) -> Verb:
        return Verb(name, help, partial(self._each, operation), QUESTIONS, [f"nexus questions {name} qst_…"])

    def list(self, options: Mapping[str, Any]) -> int:
        """Questions, one a row."""
        asked = {"which": options["which"], "agent_id": options["agent"], "limit": options["limit"]}
        data = self.call("pool_list_questions", **asked)
        if options["agent"] is not None and not data["questions"]:
            selectors.found(options["agent"])  # a name that was mistyped is no agent that asks nothing
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["question", "agent", "kind", "asks", "status", "asked"],
                [
                    (
                        row["question_id"],
                        row["agent_id"],
                        row["kind"],
                        row["title"],
                        "allowed always" if row["always"] else row["status"],
                        ago(row["asked_at"]),
                    )
                    for row in data["questions"]
                ],
            )
        return 0 if data["questions"] else NOTHING

    def show_one(self, options: Mapping[str, Any]) -> int:
        """A question with all that its asker says."""
        return self.show(options, self.call("pool_get_question", question_id=options["question"]))

    def allow(self, options: Mapping[str, Any]) -> int:
        """Allowed, each by itself."""
        return self._each("pool_allow_always" if options["always"] else "pool_allow", options)

    def answer(self, options: Mapping[str, Any]) -> int:
        """Answered in words."""
        return self.show(options, self.call("pool_answer", question_id=options["question"], words=options["words"]))

    def _each(self, operation: str, options: Mapping[str, Any]) -> int:
        return self.each(options, options["question"], lambda each: self.call(operation, question_id=each))


def _add_filters(parser: CommandParser) -> None:
    parser.add_argument("--which", choices=("asked", "always", "ended"), default="asked", help="[asked]")
    parser.add_argument("--agent", help="Only those of this agent.")
    parser.add_argument("--limit", type=positive, default=50, help="Questions at most. [50]")


def _add_allow(parser: CommandParser) -> None:
    QUESTIONS(parser)
    parser.add_argument("--always", action="store_true", help="Also what the agent asks about the same from now on.")


def _add_answer(parser: CommandParser) -> None:
    parser.add_argument("question", metavar="QUESTION", help="A question_id.")
    parser.add_argument("words", metavar="WORDS", help="What you say.")
