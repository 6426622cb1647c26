"""`nexus files`: who has which files of a project, and taking, giving up and ending reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, add_project_root, positive
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.verbs import Verb, VerbsCommand


class Command(VerbsCommand):
    toolset = "files"
    help = "List the files that agents reserved, see who has one, reserve, release and end. Without a verb it lists."
    examples = f"""examples:
  nexus files
  nexus files who src/parser.py
  nexus files reserve "src/**/*.py" docs/ --agent builder --reason "the new parser" --wait 30
  nexus files release --agent builder

{EXIT_CODES}
  {NOTHING}  there are none"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List reservations of every project, or of one.", self.list, _add_list,
                 ["nexus files list --search parser", "nexus files list --ended --json"], nothing="there are none"),
            Verb("who", "Show who has a file, a directory or a glob, and who had it last.", self.who, _add_path,
                 ["nexus files who src/parser.py", "nexus files who 'src/**/*.py' --json"], nothing="nobody has it"),
            Verb("reserve", "Reserve files: nobody else may then, until they are released.", self.reserve, _add_reserve,
                 ['nexus files reserve src/ --agent builder --reason "the new parser"',
                  "nexus files reserve docs/ --shared --agent builder --json"]),
            Verb("release", "Give up reservations: of paths, or all in the project.", self.release, _add_paths,
                 ["nexus files release src/ --agent builder", "nexus files release --agent builder"]),
            Verb("extend", "Hold reservations longer.", self.extend, _add_extend,
                 ["nexus files extend src/ --agent builder --seconds 3600"]),
            Verb("end", "End any agent's reservation; it is told.", self.end, _add_end,
                 ['nexus files end rsv_01a2… --reason "It was left behind." --yes'], asks=True),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Reservations, one a row."""
        data = self.call(
            "files_list",
            project_root=options["project_root"] if options["here"] else None,
            ended=options["ended"],
            search=options["search"],
            limit=options["limit"],
        )
        return self._print(options, data, data["reservations"])

    def who(self, options: Mapping[str, Any]) -> int:
        """Those who have a path; the last who had it goes below."""
        data = self.call("files_who", project_root=options["project_root"], path=options["path"])
        code = self._print(options, data, data["held"])
        if data["last"] and not options["json"]:
            last = data["last"]
            self.print_facts({"had it last": f"{last['agent_id']} until {last['released_at']} ({last['outcome']})"})
        return code

    def reserve(self, options: Mapping[str, Any]) -> int:
        """What is reserved now."""
        data = self.call(
            "files_reserve",
            project_root=options["project_root"],
            agent_id=options["agent_id"],
            paths=options["paths"],
            exclusive=not options["shared"],
            seconds=options["seconds"],
            reason=options["reason"],
            timeout_seconds=options["wait"],
            ask=options["ask"],
        )
        return self._print(options, data, data["reservations"])

    def release(self, options: Mapping[str, Any]) -> int:
        """What was given up."""
        data = self.call("files_release", **self._chosen(options))
        if not options["json"]:
            self.warn(data)
        return self._print(options, data, data["released"])

    def extend(self, options: Mapping[str, Any]) -> int:
        """What is held longer."""
        data = self.call("files_extend", **self._chosen(options), seconds=options["seconds"])
        return self._print(options, data, data["extended"])

    def end(self, options: Mapping[str, Any]) -> int:
        """Ended, whoever had it."""
        if not options["yes"] and not self.ask(f"End the reservation {options['reservation_id']}?"):
            self.stdout.write("Nothing was ended.")
            return 0
        data = self.call("files_end", reservation_id=options["reservation_id"], reason=options["reason"])
        return self.show(options, data if options["json"] else data["reservation"])

    def _chosen(self, options: Mapping[str, Any]) -> dict[str, Any]:
        named = {"project_root": options["project_root"], "agent_id": options["agent_id"]}
        return {**named, "paths": options["paths"] or None}

    def _print(self, options: Mapping[str, Any], data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> int:
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["reservation", "files", "how", "agent", "for", "until"],
                [
                    (
                        row["reservation_id"],
                        row["pattern"],
                        "exclusive" if row["exclusive"] else "shared",
                        row["agent_id"],
                        row["reason"] or row["handoff_id"],
                        row.get("released_at", row["expires_at"]),
                    )
                    for row in rows
                ],
            )
        return 0 if rows else NOTHING


def _add_list(parser: CommandParser) -> None:
    parser.add_argument("--here", action="store_true", help="Only this project's.")
    parser.add_argument("--ended", action="store_true", help="Those that ended, latest first.")
    parser.add_argument("--search", default="", metavar="WORD", help="Part of a pattern, a reason or a holder.")
    parser.add_argument("--limit", type=positive, default=100, help="Reservations at most. [100]")
    add_project_root(parser)


def _add_path(parser: CommandParser) -> None:
    parser.add_argument("path", metavar="PATH", help="A file, a directory or a glob as .gitignore has it.")
    add_project_root(parser)


def _add_agent(parser: CommandParser) -> None:
    parser.add_argument("--agent", dest="agent_id", default=OPERATOR_AGENT, metavar="AGENT",
                        help=f"Whose reservation it is. [{OPERATOR_AGENT}]")  # fmt: skip
    add_project_root(parser)


def _add_reserve(parser: CommandParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Files, directories, globs as .gitignore has them.")
    parser.add_argument("--shared", action="store_true", help="Only to read: others may, too.")
    parser.add_argument("--seconds", type=positive, help="How long, from the agent's latest act. [900]")
    parser.add_argument("--reason", metavar="TEXT", help="What for.")
    parser.add_argument(
        "--wait", type=positive, default=0, metavar="SECONDS", help="Wait so long for what others have."
    )
    parser.add_argument("--ask", action="store_true", help="Ask the holders, with a message to their inbox.")
    _add_agent(parser)


def _add_paths(parser: CommandParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="As they were reserved; none: all in the project.")
    _add_agent(parser)


def _add_extend(parser: CommandParser) -> None:
    _add_paths(parser)
    parser.add_argument("--seconds", type=positive, help="How long from now. [as long as each was reserved for]")


def _add_end(parser: CommandParser) -> None:
    parser.add_argument("reservation_id", metavar="ID", help="Its reservation_id.")
    parser.add_argument("--reason", metavar="TEXT", help="Why, for its holder.")
