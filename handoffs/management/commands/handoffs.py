"""`nexus handoffs`: the work that is offered, who has it, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination.routing import describe
from coordination.target_options import add_target, target_of
from handoffs.check_runs import runs_in_words
from handoffs.models import HandoffStatus
from nexus.core.cli import text_of
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.replies import Data
from nexus.core.verbs import Option, Verb, VerbsCommand, time

HANDOFF = Option("handoff_id", help="A handoff_id; `nexus handoffs` lists them.")
WORK = Option("payload", "--work", "The work; - reads it from standard input.", required=True, read=text_of)
REASONS = Option("reasons", help="What is wrong with the result. The agent that did the work gets this text.")


class Command(VerbsCommand):
    help = "List unfinished handoffs; show, create, cancel, release or reassign them."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the handoffs that are open or claimed, oldest first.",
                self.list,
                _add_filters,
                operation="handoff_list",
                options=["project_root", "limit"],
                rows="handoffs",
                columns={
                    "work": "title",
                    "handoff": "handoff_id",
                    "state": "status",
                    "from": "from_agent_id",
                    "for": lambda row: describe(row["target"]),
                    "claimed by": "claimed_by",
                    "lease ends": time("lease_expires_at"),
                    "offered": time("created_at"),
                    "project": "project_root",
                },
                examples=[
                    "nexus handoffs list --status rejected --limit 10",
                    "nexus handoffs list --project . --agent builder --json",
                ],
            ),
            Verb(
                "show",
                "Show a handoff: the work, its holder, its result.",
                self.show_one,
                operation="handoff_read",
                words=[HANDOFF],
                examples=["nexus handoffs show hnd_…", "nexus handoffs show hnd_… --json | jq -r .payload"],
            ),
            Verb(
                "create",
                "Create a handoff: work that exactly one agent takes.",
                self.create,
                _add_target,
                operation="handoff_create",
                options=["project_root", "title", WORK, Option("visibility", default="public")],
                examples=[
                    'nexus handoffs create --capability review --work "Review the branch cache-key"',
                    "git diff | nexus handoffs create --to reviewer --work -",
                ],
            ),
            Verb(
                "cancel",
                "Cancel an open handoff, whoever created it.",
                operation="handoff_withdraw",
                words=[HANDOFF],
                options=["reason"],
                examples=['nexus handoffs cancel hnd_… --reason "No longer needed"'],
            ),
            _verb("release", "handoff_release", "reason", example='--reason "You seem stuck"'),
            _verb("reassign", "handoff_reassign", Option("agent_id", "--to"), "reason", example="--to reviewer"),
            _verb("reoffer", "handoff_reoffer", Option("agent_id", "--to"), example="--to reviewer"),
            _verb("extend", "handoff_prolong", "seconds", example="--seconds 900"),
            _verb("accept", "handoff_approve"),
            _verb("return", "handoff_send_back", REASONS, example='--reasons "The tests fail"'),
        )

    def list(self, options: Mapping[str, Any]) -> int:
        """Handoffs, one a row."""
        data = self._found(options)
        return self.present(options, {"handoffs": data["handoffs"]})

    def _found(self, options: Mapping[str, Any]) -> Data:
        if options["agent"] is None:
            return self.answer(options, status=options["status"])
        self.call(
            "agent_get", agent_id=options["agent"]
        )  # refuse an unknown agent, to which everything for all is open
        where = {"project_root": options["project_root"] or ".", "limit": options["limit"]}
        return self.call("handoff_list_available", agent_id=options["agent"], **where)

    def show_one(self, options: Mapping[str, Any]) -> int:
        """All of one handoff."""
        data = self.answer(options)
        if options["json"]:
            return self.show(options, data)
        outcome = data["outcome"] or {}
        shown = {
            **{name: data[name] for name in ("title", "handoff_id", "status", "from_agent_id")},
            "for": describe(data["target"]),
            "seen_by": data["visibility"],
            **{name: data[name] for name in ("claimed_by", "lease_expires_at") if data[name]},
            **{name: data[name] for name in ("created_at", "updated_at", "project_root")},
            "work": data["payload"],
            **{f"{data['status'].lower()}_{name}": value for name, value in outcome.items() if value},
        }
        return self.show(options, {**shown, **runs_in_words(data)})

    def create(self, options: Mapping[str, Any]) -> int:
        """A new handoff."""
        self.call("agent_register", agent_id=OPERATOR_AGENT, role="operator")  # the outcome comes to its inbox
        return self.present(options, self.answer(options, from_agent_id=OPERATOR_AGENT, target=target_of(options)))


def _verb(name: str, operation: str, *options: str | Option, example: str = "") -> Verb:
    """A verb over one or more handoffs."""
    line = f"nexus handoffs {name} hnd_… {example}".strip()
    return Verb(name, operation=operation, words=[HANDOFF], options=options, each=True, examples=[line])


def _add_filters(parser: CommandParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--agent", metavar="AGENT", help="Only what this agent may claim in --project.")
    what.add_argument(
        "--status", type=str.upper, choices=HandoffStatus.values, help="Only handoffs in this state, newest first."
    )


def _add_target(parser: CommandParser) -> None:
    add_target(parser, everybody="Every agent; the first that claims it gets it.")
