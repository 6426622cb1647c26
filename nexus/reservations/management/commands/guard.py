"""`nexus guard`: git's hooks in a repository, which refuse commits and pushes of files that another agent holds."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, CommandGroup
from nexus.core.config import CoreSettings, without_password
from nexus.core.database.store import store
from nexus.core.operations.errors import invalid
from nexus.core.processes import in_foreground
from nexus.core.verbs import Verb, VerbsCommand
from nexus.hooks.client_commands import remind_of_password, settings_flags
from nexus.reservations.config import GuardSettings
from nexus.reservations.guard import check, hooks
from nexus.reservations.guard.repository import without_repository
from nexus.reservations.operations import MOST_IDS, MOST_PATHS


class Command(VerbsCommand):
    toolset = "files"
    group = CommandGroup.CLIENTS
    help = "Refuse commits and pushes of files that another agent holds. Without a verb it says what is installed."
    examples = f"""examples:
  nexus guard install
  nexus guard status --repo ~/shop
  nexus guard uninstall

{EXIT_CODES}"""

    def verbs(self) -> tuple[Verb, ...]:
        return (
            Verb(
                "status",
                "Show the hooks of a repository, and the store that they read.",
                self.status,
                _add_repo,
                ["nexus guard status", "nexus guard status --repo ~/shop --json"],
            ),
            Verb(
                "install",
                "Install git's hooks in a repository, for all its worktrees and submodules.\n"
                "Existing hooks are kept under another name, and run first.",
                self.install,
                _add_repo,
                ["nexus guard install", "nexus guard install --repo ~/shop --guard-unreadable closed"],
            ),
            Verb(
                "uninstall",
                "Remove the hooks, and restore those that were there before.",
                self.uninstall,
                _add_repo,
                ["nexus guard uninstall --repo ~/shop"],
            ),
            Verb(
                "check",
                "Show what the hook would say about the staged files.",
                self.ask_now,
                _add_repo,
                ["nexus guard check"],
            ),
            Verb(
                "override",
                "Record that a person overrides reservations; the hooks call it, with JSON on stdin.",
                self.override,
                _add_verb,
            ),
            Verb(
                "refused",
                "Record that the guard refused a commit or a push; the hooks call it, with JSON on stdin.",
                self.refused,
                _add_verb,
            ),
        )

    def run(self, **options: Any) -> None:
        sys.exit(self.act(options))  # only `override` and `refused` need the store, which may be away

    def status(self, options: Mapping[str, Any]) -> int:
        location = hooks.hooks_directory(options["repo"])
        found = location.hooks
        arguments = hook_arguments()
        rows = [
            {
                "hook": hook.file.name,
                "state": hook.state,
                "keeps": hook.keeps,
                "current": hook.content == hooks.script(hook.file.name, *arguments),
                "file": str(hook.file),
            }
            for hook in found
        ]
        if options["json"]:
            self.print_json(
                {"hooks": rows, "hooks_path": location.scope or None, "store": without_password(arguments[0])}
            )
            return 0
        self.print_table(
            ("hook", "state", "runs another first", "file"),
            [(row["hook"], _state(row), row["keeps"] and row["state"] != "none", row["file"]) for row in rows],
        )
        if location.is_left_to_others:
            self.stderr.write(f"{location.leads}: see nexus guard install.")
        for line in location.left_out:
            self.stderr.write(line)
        return 0

    def install(self, options: Mapping[str, Any]) -> int:
        changed = hooks.install(options["repo"], *hook_arguments())
        remind_of_password(self)
        for line in hooks.hooks_directory(options["repo"]).left_out:
            self.stderr.write(line)
        return self._report(options, changed, "Installed")

    def uninstall(self, options: Mapping[str, Any]) -> int:
        return self._report(options, hooks.uninstall(options["repo"]), "Removed")

    def _report(self, options: Mapping[str, Any], changed: list[Path], done: str) -> int:
        if options["json"]:
            self.print_json({"changed": [str(file) for file in changed]})
        else:
            self.stdout.write("\n".join(f"{done}: {file}" for file in changed) or "Nothing needs a change.")
        return 0

    def ask_now(self, options: Mapping[str, Any]) -> int:
        command = [*shlex.split(hooks.program()), check.CHECK, "", *hook_arguments()]
        top, where = hooks.top(options["repo"]), hooks.hooks_directory(options["repo"])
        environ = without_repository(os.environ)
        code = in_foreground(command, cwd=top, env=environ).code  # the command that the hook runs
        if not where.is_left_to_others:
            return code
        self.stderr.write(f"[nexus] guard: git does not run the guard's hooks here: {where.leads}.")
        return check.REFUSED

    def override(self, options: Mapping[str, Any]) -> int:
        return self._record("files_override", options, ("reason",))

    def refused(self, options: Mapping[str, Any]) -> int:
        return self._record("files_record_refusal", options, ("agent_id", "passed"))

    def _record(self, operation: str, options: Mapping[str, Any], about: Sequence[str]) -> int:
        try:
            happened = json.loads(sys.stdin.read())
            given = {
                **{name: happened[name] for name in about},
                "paths": happened["paths"][:MOST_PATHS],
                "reservation_ids": list(dict.fromkeys(happened["reservation_ids"]))[:MOST_IDS],
            }
        except (ValueError, TypeError, KeyError):
            raise invalid("What happened comes as JSON on stdin, from the hooks.") from None
        store().prepare()
        self.call(operation, verb=options["doing"], **given)
        return 0


def _add_repo(parser: CommandParser) -> None:
    parser.add_argument("--repo", default=".", metavar="DIR", help="a directory in the repository; default: this one")


def _add_verb(parser: CommandParser) -> None:
    parser.add_argument(
        "--verb", dest="doing", choices=sorted(set(check.VERBS.values())), required=True, help="what is done"
    )


def hook_arguments() -> tuple[str, str, str]:
    """Return the hooks' arguments: the store, what to do when it cannot be read, and the flags with which `nexus`
    finds it."""
    known = CoreSettings.current()
    store = str(known.database) if known.database_url is None else without_password(known.database_url)
    return store, GuardSettings.current().guard_unreadable, shlex.join(settings_flags())


def _state(row: Mapping[str, Any]) -> str:
    if row["state"] == "installed" and not row["current"]:
        return "installed, with other settings: nexus guard install"
    return str(row["state"])
