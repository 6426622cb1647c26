"""`nexus planning`: installs a catalog's agents and the hooks in a coding client."""

from __future__ import annotations

import contextlib
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, CommandGroup, add_project_root
from nexus.core.coding_clients import HOOKED, SUBAGENTS
from nexus.core.config import flag
from nexus.core.files import Change
from nexus.core.logs import redact
from nexus.core.operations.errors import invalid
from nexus.core.operations.registry import TOOLSETS
from nexus.core.verbs import Verb, VerbsCommand
from nexus.hooks import client_entries, client_files
from nexus.hooks.client_commands import (
    EDITS,
    add_setup_options,
    program,
    project,
    remind_of_password,
    settings_flags,
    write,
)
from nexus.hooks.client_entries import GATE
from nexus.hooks.harness import PLANNING
from nexus.planning import install
from nexus.planning.catalog import bundled
from nexus.planning.catalog.capability_map import disallowed
from nexus.planning.install import Plan, render

NO_HOOKS = "This client has no hooks that call a command: tags, resume decisions and gates do not work in it."
KEPT = "The hooks were installed for an agent of their own (--agent); `nexus hook` changes them."


@dataclass(frozen=True)
class Setup:
    """All changes to make, and the messages about them."""

    directory: Path  # of the agents
    agents: Plan
    emptied: tuple[Change, ...]  # the hooks' file, if it contains nothing else
    hooks: Change | None
    notes: tuple[str, ...]

    @property
    def changes(self) -> list[Change]:
        """Every change, the hooks' last."""
        return [*self.agents.changes, *self.emptied, *([self.hooks] if self.hooks else [])]

    def apply(self) -> None:
        """Make the changes, and remove the directories that are left empty. Raises CONFIG_ERROR with the file that
        cannot be written or has changed meanwhile; the same call goes on from there."""
        for change in (*self.agents.changes, *self.emptied):
            client_files.write(change, new_mode=0o644)
        if self.hooks:
            write(self.hooks)  # with a backup, like `nexus hook install`
        with contextlib.suppress(OSError):
            self.directory.rmdir()
            self.directory.parent.rmdir()


class Command(VerbsCommand):
    group = CommandGroup.CLIENTS
    help = "List the catalog's agents, and install them in a coding client. Without a verb it lists them."
    examples = f"""examples:
  nexus planning
  nexus planning install --client claude-code
  nexus planning uninstall --client claude-code

{EXIT_CODES}"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the agents: purpose, lifetime and restrictions.",
                self.list,
                examples=["nexus planning list", "nexus planning list --json"],
            ),
            Verb(
                "install",
                "Write the agents, and the hooks, into a client's files. Shows the change first and asks.\n"
                "Files that Nexus did not write, or that were changed by hand, are left as they are.\n"
                "With --json and without --yes it only shows what it would do.",
                self.install,
                _add_install,
                [
                    "nexus planning install --client claude-code",
                    "nexus planning install --client codex --scope user --yes",
                    "nexus planning install --client gemini --also writer=no_shell_exec",
                    "nexus planning install --client cursor --json                what would be done; --yes does it",
                ],
            ),
            Verb(
                "uninstall",
                "Remove what install wrote. Shows the change first and asks; what was changed by hand stays.",
                self.uninstall,
                _add_client,
                ["nexus planning uninstall --client claude-code"],
            ),
        )

    def run(self, **options: Any) -> None:
        """Run without the store: nothing here uses it."""
        self.act(options)

    def list(self, options: Mapping[str, Any]) -> int:
        agents = bundled.agents().values()
        if options["json"]:
            self.print_json({"agents": [agent._asdict() for agent in agents]})
        else:
            self.print_table(
                ["AGENT", "CATEGORY", "KEPT", "MODEL", "MAY NOT"],
                [[agent.id, agent.category, agent.resume_tier, agent.model_tier, ", ".join(agent.capabilities)]
                 for agent in agents],
            )  # fmt: skip
        return 0

    def install(self, options: Mapping[str, Any]) -> int:
        client, root = options["client"], project(options)
        also = _additions(options["also"])
        if strange := set(also) - set(bundled.agents()):
            raise invalid(f"--also: the catalog has no agent {min(strange)!r}.", field="also")
        operations = sorted({each.name for toolset in TOOLSETS.values() for each in toolset.tools})
        wanted = {}
        for agent in bundled.agents().values():
            text = render(client, agent, disallowed(agent, client, also[agent.id]), operations)
            wanted[agent.id + SUBAGENTS[client].suffix] = install.marked(text)

        def put(document: Any) -> None:
            line = client_files.installed(document, client)
            ours = client_entries.hook_command(program(), client, [PLANNING, *settings_flags(GATE, EDITS)])
            gate = [word for word in settings_flags(GATE) if word not in settings_flags()]
            kept = f"{_without_planning(line)} {shlex.join([PLANNING, *gate])}" if line and _is_named(line) else None
            client_files.put_hooks(client, kept or ours)(document)

        if client in HOOKED:
            remind_of_password(self)
        return self._carry_out(options, _setup(options, root, wanted, put, []))

    def uninstall(self, options: Mapping[str, Any]) -> int:
        client, notes = options["client"], []

        def drop(document: Any) -> None:
            line = client_files.installed(document, client)
            if line and _is_named(line):
                client_files.put_hooks(client, _without_planning(line))(document)
                notes.append(KEPT)
            elif line and PLANNING in shlex.split(line):
                client_files.drop_hooks(client)(document)

        setup = _setup(options, project(options), {}, drop, notes)
        return self._carry_out(options, setup)

    def _carry_out(self, options: Mapping[str, Any], setup: Setup) -> int:
        if options["json"]:
            if options["yes"]:
                setup.apply()
            self.print_json(_as_data(setup, options))
            return 0
        for change in setup.changes:
            self.stdout.write(redact(change.diff))
        for file, why in setup.agents.left.items():
            self.stderr.write(f"{file} is left as it is: {why}.")
        for note in setup.notes:
            self.stderr.write(note)
        count = len(setup.changes)
        if not count:
            self.stdout.write("Nothing needs a change.")
        elif not options["yes"] and not self.ask(f"Make these changes to {count} files?"):
            self.stdout.write("Nothing was changed.")
        else:
            setup.apply()
            self.stdout.write(f"Changed {count} files.")
        return 0


def _add_client(parser: CommandParser) -> None:
    parser.add_argument("--client", choices=tuple(SUBAGENTS), required=True, help="the client to set up")
    add_project_root(parser)
    add_setup_options(parser)


def _add_install(parser: CommandParser) -> None:
    _add_client(parser)
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="AGENT=CAPABILITY",
        help="a restriction beyond the catalog's; repeatable",
    )


def _additions(given: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the capabilities to add, by agent. Raises VALIDATION_ERROR."""
    added: dict[str, list[str]] = defaultdict(list)
    for each in given:
        agent, equals, capability = each.partition("=")
        if not (agent and equals and capability):
            raise invalid(f"--also: {each[:200]!r} is not of the form AGENT=CAPABILITY.", field="also")
        added[agent].append(capability)
    return added


def _is_named(line: str) -> bool:
    """Return whether hooks were installed for one agent, which only `nexus hook install` does."""
    return "--agent-id" in shlex.split(line)


def _without_planning(line: str) -> str:
    """Return the hooks' command line for mail only."""
    words = iter(shlex.split(line))
    kept = []
    for word in words:
        if word == flag(GATE):
            next(words, None)
        elif word != PLANNING:
            kept.append(word)
    return shlex.join(kept)


def _setup(
    options: Mapping[str, Any],
    root: Path,
    wanted: Mapping[str, str],
    edit: client_files.Edit,
    notes: list[str],
) -> Setup:
    name = options["client"]
    client, of_user = SUBAGENTS[name], options["scope"] == "user"
    directory = client_entries.locate(f"~/{client.user}" if of_user else client.project, root)
    agents = install.plan(directory, client.suffix, wanted)
    hooks = emptied = None
    if name in HOOKED:
        path = HOOKED[name].file(options["scope"])
        file = client_entries.locate(path, root)
        hooks = client_files.plan(file, "json", edit)
        left = client_files.parse(file, "json", hooks.after or "")
        if name == "cursor" and left.get(()) == {"version": 1}:
            left.remove(("version",))
        is_linked = (root / Path(path).expanduser()).is_symlink()  # its target is managed elsewhere
        if hooks.diff and left.is_empty and not is_linked:
            emptied = Change(hooks.file, hooks.before, None)
    elif wanted:
        notes.append(NO_HOOKS)
    return Setup(
        directory,
        agents,
        emptied=(emptied,) if emptied else (),
        hooks=hooks if hooks and hooks.diff and not emptied else None,
        notes=tuple(notes),
    )


def _as_data(setup: Setup, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was done, or would be, as data for scripts."""
    changes = setup.changes
    return {
        "client": options["client"],
        "applied": options["yes"],
        "written": [str(change.file) for change in changes if change.after is not None],
        "removed": [str(change.file) for change in changes if change.after is None],
        "unchanged": [str(file) for file in setup.agents.unchanged],
        "left": [{"file": str(file), "why": why} for file, why in setup.agents.left.items()],
        "notes": setup.notes,
    }
