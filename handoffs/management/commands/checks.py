"""`nexus checks`: what a project's nexus.toml lets Nexus run and bring into worktrees, and its approval."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import ago
from nexus.core.operations.errors import Code, NexusError
from nexus.core.verbs import Verb, VerbsCommand
from nexus.web.templatetags.nexus import plain


class Command(VerbsCommand):
    help = "List the checks and local files of a project's nexus.toml; approve them."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the checks and local files in nexus.toml, their digest, and whether they are approved.",
                operation="checks_list",
                options=["project_root"],
                rows="checks",
                columns={"check": "name", "runs": "run", "seconds": "seconds", "network": _network, "state": "state"},
                examples=["nexus checks", "nexus checks --project ~/shop"],
            ),
            Verb(
                "approve",
                "Show the checks and local files in nexus.toml, and approve them once you agree.",
                self.approve,
                _add_digest,
                operation="checks_list",
                options=["project_root"],
                asks=True,
                examples=["nexus checks approve", "nexus checks approve 3f9c…"],
            ),
        )

    def approve(self, options: Mapping[str, Any]) -> int:
        """Approve what the person saw: what is shown now, or what has the digest that they give."""
        digest = options["digest"]
        if digest is None:
            found = self.answer(options)
            if (digest := found["digest"]) is None:
                raise NexusError(Code.NOT_FOUND, found["problem"])
            if not options["json"]:
                self._print_whole(found)
            if not options["yes"] and not self.ask("Approve these?"):
                self.stdout.write("Nothing was changed.")
                return 0
        approved = self.call("checks_approve", project_root=options["project_root"], digest=digest)
        if options["json"]:
            self.print_json(approved)
        else:
            self.stdout.write(_state(approved, options["project_root"]))
        return 0

    def present(self, options: Mapping[str, Any], data: Mapping[str, Any]) -> int:
        """Print the checks, and below them what they are worth and the digest."""
        code = super().present(options, data)
        if not options["json"]:
            self._print_files(data)
            self.stdout.write(_state(data, options["project_root"]))
        return code

    def _print_whole(self, data: Mapping[str, Any]) -> None:
        """Print each command to its end, with its line breaks; what is invisible is spelled out."""
        for check in data["checks"]:
            self.stdout.write(f"{check['name']}: {check['state']}, {check['seconds']} seconds, {_network(check)}")
            for line in check["run"].split("\n"):
                self.stdout.write(f"    {plain(line)}")
        self._print_files(data)
        self.stdout.write(f"Digest: {data['digest']}")

    def _print_files(self, data: Mapping[str, Any]) -> None:
        for way, what in (("copy", "a copy of"), ("symlink", "a link to")):
            for path in data[way]:
                self.stdout.write(f"Each worktree gets {what} {plain(path)}")


def _add_digest(parser: CommandParser) -> None:
    parser.add_argument("digest", nargs="?", metavar="DIGEST", help="What you saw, by `nexus checks`.")


def _network(check: Mapping[str, Any]) -> str:
    return "network" if check["network"] else "no network"


def _state(data: Mapping[str, Any], project: str) -> str:
    if data["problem"]:
        return str(data["problem"])
    if data["reviewed"]:
        return f"Approved by {data['reviewed_by']}, {ago(data['reviewed_at'])}. Digest: {data['digest']}"
    where = "" if project == "." else f" --project {shlex.quote(project)}"
    held = ": they hold results and merges" if data["checks"] else ""
    return f"Not approved{held}. Approve them by: nexus checks approve {data['digest']}{where}"
