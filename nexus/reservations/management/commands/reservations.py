"""`nexus reservations`: list, make, release and end the reservations of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.verbs import Column, Option, Verb, VerbsCommand

HOLDER = Option("agent_id", help="Whose reservation it is.", default=OPERATOR_AGENT)
SHARED = Option("exclusive", "--shared", "Shared: others may reserve them as shared, too.")
SECONDS = Option("seconds", help="How long, from the agent's latest act. [900]")
WAIT = Option("timeout_seconds", "--wait", "Seconds to wait for files that others hold.")
COLUMNS: Mapping[str, Column] = {
    "reservation": "reservation_id",
    "files": "pattern",
    "how": lambda row: "exclusive" if row["exclusive"] else "shared",
    "agent": "agent_id",
    "for": lambda row: row["reason"] or row["handoff_id"],
    "until": lambda row: row.get("released_at", row["expires_at"]),
    "asked by": lambda row: ", ".join(row.get("asked_by", ())),
    "waits": lambda row: ", ".join(row.get("waiting", ())),
    "refused": lambda row: ", ".join(each["agent_id"] or "a person" for each in row.get("refused", ())),
}


class Command(VerbsCommand):
    toolset = "files"
    help = "List the files that agents reserved, see who holds one, reserve, release and end."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="files_list",
                options=["project_root", "agent_id", "ended", "search", "limit"],
                rows="reservations",
                columns=COLUMNS,
                examples=[
                    "nexus reservations list --project . --search parser",
                    "nexus reservations list --ended --json",
                ],
            ),
            Verb(
                "who",
                "Show who holds a file, a directory or a glob, and who held it last.",
                self.who,
                operation="files_who",
                words=["path"],
                options=["project_root"],
                rows="held",
                columns=COLUMNS,
                examples=["nexus reservations who src/parser.py", "nexus reservations who 'src/**/*.py' --json"],
                nothing="nobody has it",
            ),
            Verb(
                "reserve",
                "Reserve files, so that no other agent can reserve them until they are released.",
                operation="files_reserve",
                words=["paths"],
                options=[SHARED, SECONDS, "reason", WAIT, "ask", HOLDER, "project_root"],
                rows="reservations",
                columns=COLUMNS,
                examples=[
                    'nexus reservations reserve src/ --agent builder --reason "the new parser" --wait 30',
                    "nexus reservations reserve docs/ --shared --agent builder --json",
                ],
            ),
            Verb(
                "release",
                "Release reservations: of paths, or all in the project.",
                operation="files_release",
                words=["paths"],
                options=[HOLDER, "project_root"],
                rows="released",
                columns=COLUMNS,
                examples=[
                    "nexus reservations release src/ --agent builder",
                    "nexus reservations release --agent builder",
                ],
            ),
            Verb(
                "extend",
                "Extend reservations.",
                operation="files_extend",
                words=["paths"],
                options=["seconds", HOLDER, "project_root"],
                rows="extended",
                columns=COLUMNS,
                examples=["nexus reservations extend src/ --agent builder --seconds 3600"],
            ),
            Verb(
                "end",
                operation="files_end",
                words=["reservation_id"],
                options=["reason"],
                asks="End the reservation {reservation_id}?",
                shows="reservation",
                examples=['nexus reservations end rsv_01a2… --reason "It was left behind." --yes'],
            ),
        )

    def who(self, options: Mapping[str, Any]) -> int:
        """Print the holders of a path, and below them the last one."""
        data = self.answer(options)
        code = self.present(options, data)
        if data["last"] and not options["json"]:
            last = data["last"]
            self.print_facts({"had it last": f"{last['agent_id']} until {last['released_at']} ({last['outcome']})"})
        return code
