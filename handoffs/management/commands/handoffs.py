"""`nexus handoffs`: the work that is offered, who has it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from coordination.routing import in_words
from coordination.target_options import add_target, target_of
from handoffs.models import HandoffStatus
from nexus.core.cli import EXIT_CODES, NOTHING, add_project_root, ago, positive, text_of
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.replies import Data
from nexus.core.verbs import Verb, VerbsCommand, named, several

HANDOFF = named("handoff", "The handoff_id.")
HANDOFFS = several("handoff", "A handoff_id, of `nexus handoffs`.")


class Command(VerbsCommand):
    help = (
        "List the handoffs that are not settled, show, offer, retract and unstick them. Without a verb it lists them."
    )
    examples = f"""examples:
  nexus handoffs
  nexus handoffs --project . --status completed --limit 10
  nexus handoffs create --capability review --work "Review the branch cache-key"
  nexus handoffs show hnd_…

{EXIT_CODES}
  {NOTHING}  none there"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the handoffs that are open or claimed, oldest first.",
                self.list,
                _add_filters,
                [
                    "nexus handoffs list --status rejected",
                    "nexus handoffs list --project . --agent builder --json",
                ],
                nothing="none there",
            ),
            Verb("show", "Show a handoff: the work, who has it, what came of it.", self.show_one, HANDOFF,
                 ["nexus handoffs show hnd_…", "nexus handoffs show hnd_… --json | jq -r .payload"]),
            Verb(
                "create",
                "Offer work that exactly one agent takes.",
                self.create,
                _add_offer,
                [
                    'nexus handoffs create --capability review --work "Review the branch cache-key"',
                    "git diff | nexus handoffs create --to reviewer --work -",
                ],
            ),
            Verb("cancel", "Retract an open handoff, whoever offered it.", self.cancel, _add_reason,
                 ['nexus handoffs cancel hnd_… --reason "No longer needed"']),
            self._verb("release", "Take handoffs from their holders: they are open again.", "handoff_release",
                       _reason, example='--reason "You seem stuck"'),
            self._verb("restore", "Take a release back, within a minute and while nobody acted on it.",
                       "handoff_release_undo"),
            self._verb("reassign", "Make open or held handoffs ones for an agent alone.", "handoff_reassign",
                       partial(_to, required=True), _reason, example="--to reviewer"),
            self._verb("reoffer", "Offer the work of handoffs that came to nothing once more.", "handoff_reoffer", _to,
                       example="--to reviewer"),
            self._verb("extend", "Let whoever holds handoffs keep them for longer.", "handoff_prolong", _seconds,
                       example="--seconds 900"),
            self._verb("accept", "Say that submitted handoffs count.", "handoff_approve"),
            self._verb("return", "Give submitted handoffs back to who did them.", "handoff_send_back", _reasons,
                       example='--reasons "The tests fail"'),
        )  # fmt: skip

    def _verb(
        self, name: str, help: str, operation: str, *options: Callable[[CommandParser], Any], example: str = ""
    ) -> Verb:
        """A verb over one or more handoffs."""

        def add(parser: CommandParser) -> None:
            HANDOFFS(parser)
            for option in options:
                option(parser)

        return Verb(name, help, partial(self._each, operation), add, [f"nexus handoffs {name} hnd_… {example}".strip()])

    def _each(self, operation: str, options: Mapping[str, Any]) -> int:
        given = {name: options.get(name) for name in ("agent_id", "reason", "reasons", "seconds")}
        return self.each(options, options["handoff"], lambda one: self.call(operation, handoff_id=one, **given))

    def list(self, options: Mapping[str, Any]) -> int:
        """Handoffs, one a row."""
        data = self._found(options)
        if options["json"]:
            self.print_json({"handoffs": data["handoffs"]})
        else:
            self.print_table(
                ["work", "handoff", "state", "from", "for", "claimed by", "lease ends", "offered", "project"],
                [
                    (
                        row["title"],
                        row["handoff_id"],
                        row["status"],
                        row["from_agent_id"],
                        in_words(row["target"]),
                        row.get("claimed_by"),
                        ago(row.get("lease_expires_at")),
                        ago(row["created_at"]),
                        row.get("project_root"),
                    )
                    for row in data["handoffs"]
                ],
            )
        return 0 if data["handoffs"] else NOTHING

    def _found(self, options: Mapping[str, Any]) -> Data:
        root, limit = options["project_root"], options["limit"]
        if options["agent"] is None:
            return self.call("handoff_list", project_root=root, status=options["status"], limit=limit)
        self.call("agent_get", agent_id=options["agent"])  # an unknown one is told, and not offered what is for all
        return self.call("handoff_list_available", project_root=root or ".", agent_id=options["agent"], limit=limit)

    def show_one(self, options: Mapping[str, Any]) -> int:
        """All of one handoff."""
        data = self.call("handoff_read", handoff_id=options["handoff"])
        if options["json"]:
            return self.show(options, data)
        outcome = data["outcome"] or {}
        shown = {
            **{name: data[name] for name in ("title", "handoff_id", "status", "from_agent_id")},
            "for": in_words(data["target"]),
            "seen_by": data["visibility"],
            **{name: data[name] for name in ("claimed_by", "lease_expires_at") if data[name]},
            **{name: data[name] for name in ("created_at", "updated_at", "project_root")},
            "work": data["payload"],
            **{f"{data['status'].lower()}_{name}": value for name, value in outcome.items() if value},
        }
        return self.show(options, shown)

    def create(self, options: Mapping[str, Any]) -> int:
        """A new handoff."""
        self.call("agent_register", agent_id=OPERATOR_AGENT, role="operator")  # the outcome comes to its inbox
        data = self.call(
            "handoff_create",
            project_root=options["project_root"],
            from_agent_id=OPERATOR_AGENT,
            target=target_of(options),
            visibility=options["visibility"],
            payload=text_of(options["work"]),
            title=options["title"],
        )
        return self.show(options, data)

    def cancel(self, options: Mapping[str, Any]) -> int:
        """Retracted."""
        data = self.call("handoff_withdraw", handoff_id=options["handoff"], reason=options["reason"])
        return self.show(options, data)


def _add_filters(parser: CommandParser) -> None:
    parser.add_argument("--project", dest="project_root", metavar="DIR", help="Only this project's.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--agent", metavar="AGENT", help="What this agent may claim in --project.")
    what.add_argument(
        "--status", type=str.upper, choices=HandoffStatus.values, help="Those in this state, newest first."
    )
    parser.add_argument("--limit", type=positive, default=100, help="Handoffs at most. [100]")


def _add_offer(parser: CommandParser) -> None:
    add_project_root(parser)
    add_target(parser, everybody="Whoever takes it first.")
    parser.add_argument("--title", help="What it is, in a line. [the first line of the work]")
    parser.add_argument("--work", required=True, help="What there is to do; - reads it from standard input.")
    parser.add_argument(
        "--visibility",
        choices=("public", "eligible", "private"),
        default="public",
        help="Who sees it: public, the whole project; else whom the target admits. [public]",
    )


def _add_reason(parser: CommandParser) -> None:
    HANDOFF(parser)
    _reason(parser)


def _reason(parser: CommandParser) -> None:
    parser.add_argument("--reason", help="Why, for the record.")


def _reasons(parser: CommandParser) -> None:
    parser.add_argument("--reasons", required=True, help="What is wrong with them; who did them is told.")


def _to(parser: CommandParser, *, required: bool = False) -> None:
    parser.add_argument("--to", dest="agent_id", metavar="AGENT", required=required, help="For this agent alone.")


def _seconds(parser: CommandParser) -> None:
    parser.add_argument("--seconds", type=positive, help="From now. [a whole lease]")
