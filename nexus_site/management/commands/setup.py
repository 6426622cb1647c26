"""`nexus setup`: sets up, checks and removes everything that a project needs, in one command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shlex
import shutil
import sys
import time
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.management.base import CommandParser

from mcp_bridge.config import McpBridgeSettings
from mcp_bridge.config import names as toolset_names
from nexus.control.config import ControlSettings
from nexus.core.cli import CommandGroup, NexusCommand, add_project_root, table
from nexus.core.coding_clients import CLIENTS, HARNESSES
from nexus.core.config import CoreSettings, flag
from nexus.core.database.store import is_made
from nexus.core.instance import running
from nexus.core.logs import redact
from nexus.core.operations.errors import Code, NexusError
from nexus.core.processes import CHUNK, PIPE, own_environment, start
from nexus.hooks import agent_names, client_entries, hook_state, setup_pieces, setup_record, signal_files
from nexus.hooks.client_commands import (
    EDITS,
    TOOLSETS,
    add_setup_options,
    program,
    project,
    remind_of_password,
    settings_flags,
    shared_program,
)
from nexus.hooks.harness import PROBE, first_words
from nexus.hooks.setup_pieces import Piece
from nexus.reservations.guard import hooks as guard
from nexus.reservations.guard import repository, shell
from nexus.reservations.management.commands.guard import hook_arguments
from nexus.topics.models import Topic
from nexus_site import background
from nexus_site.listening import LOOPBACK, free_port, listen, port_number

USUAL = ("coordination", "files", "questions")  # mail and handoffs, reservations, questions to a person
PARTS = ("hub", "guard", "hooks", "texts", "exclude")  # for --without
PORT = 8420
CONTROL = "--control"
LOCAL = ".local."  # in the name of a client's file in a project that is of one person
LACKING = 4  # exit code of --check
ANSWER_SECONDS = 60
LONGEST_DETAIL = 1_000  # what to do about a file ends the line
REQUESTS: tuple[dict[str, Any], ...] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "nexus-setup", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


class CheckRow(NamedTuple):
    """One line of the check."""

    what: str
    holds: bool | None  # None: left out
    detail: str


class Command(NexusCommand):
    group = CommandGroup.CLIENTS
    help = (
        "Connect this project's coding clients, and start the hub. Shows its plan first, and asks.\n"
        "Finds the clients on this machine, gives each the tools of Nexus and the hooks that announce mail,\n"
        "installs the commit guard, writes a skill and a paragraph for agents, and starts the hub. A second run\n"
        "does what the first could not, and else changes nothing."
    )
    examples = (
        "examples:\n"
        "  nexus setup\n"
        "  nexus setup --yes --at-login                  the hub starts at each login, too\n"
        "  nexus setup --client codex --without hub      one client, only over stdio\n"
        "  nexus setup --check\n"
        "  nexus setup --undo\n"
        "\n"
        "exit codes:\n"
        "  0  done, or nothing to change; with --check: all is set up\n"
        "  1  refused or failed; stderr has the code and what to do\n"
        f"  {LACKING}  something is missing; the table says what\n"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        known = tuple(name for name in CLIENTS if name != "json")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--check", action="store_true", help="show what is set up, and write nothing")
        what.add_argument("--undo", action="store_true", help="remove exactly what setup wrote in this project")
        parser.add_argument("--purge", action="store_true", help="with --undo: delete the home, too, with the store")
        parser.add_argument(
            "--client",
            action="append",
            choices=known,
            metavar="CLIENT",
            help=f"a client to connect, repeatable: {', '.join(known)}; default: those on this machine",
        )
        parser.add_argument(
            "--without",
            action="append",
            choices=PARTS,
            default=[],
            metavar="PART",
            help=f"leave a part out: {', '.join(PARTS)} (the skill and the paragraph)",
        )
        parser.add_argument("--diff", action="store_true", help="show each line that would be written")
        parser.add_argument(
            "--port",
            type=port_number,
            help=f"the port of the hub it starts; default: the first free one from {PORT} on",
        )
        parser.add_argument("--open", action="store_true", help="open the hub's pages in a browser")
        parser.add_argument("--at-login", action="store_true", help="start the hub at each login (systemd, launchd)")
        add_project_root(parser)
        add_setup_options(parser)

    def run(self, **options: Any) -> None:
        home, root = CoreSettings.current().home, project(options)
        if options["check"]:
            sys.exit(self._check(home, root, options))
        if options["purge"] and not options["undo"]:
            raise NexusError(Code.CONFIG_ERROR, "--purge goes with --undo.")
        with setup_record.lock(home):
            if not options["undo"]:
                sys.exit(self._set_up(home, root, options))
            purges = self._undo(home, root, options)
        if purges:
            shutil.rmtree(home.resolve())

    # Set up

    def _set_up(self, home: Path, root: Path, options: Mapping[str, Any]) -> int:
        chosen = options["client"] or client_entries.installed_clients()
        if not chosen:
            raise NexusError(
                Code.CONFIG_ERROR,
                "No coding client was found on this machine. Install one, or name it: nexus setup --client codex.",
            )
        self.stdout.write(f"Found: {', '.join(CLIENTS[name].title for name in chosen)}.\n")
        known = setup_record.load(home, root)
        agent_names.assign(home, known, chosen)
        started = setup_record.hub_of(home)  # perhaps in another project
        manager = background.unit()[1] if options["at_login"] else started.get("manager", "")
        hub = None if "hub" in options["without"] else self._hub(home, started, manager, options)
        wanted = list(_pieces(root, chosen, options, hub))
        changes, refused = setup_record.plan(wanted)
        guarded = [] if "guard" in options["without"] else self._lacking_hooks(root)
        written = [piece for piece in wanted if piece.file in changes]
        rows = _plan(root, written, guarded)
        starts = bool(hub) and (running(home) is None or (bool(started) and hub != started))
        if hub and starts:
            what = "the hub, with agents of its own" if CONTROL in hub["arguments"] else "the hub"
            rows.append(("all", f"http://{LOOPBACK}:{hub['arguments'][1]}", what))
        for change in changes.values() if options["diff"] else ():
            self.stdout.write(redact(change.diff))
        for piece, error in refused:
            self.stderr.write(f"[nexus] {error.message} Put this in yourself:\n{piece.paste}")
        if rows:
            self.stdout.write("\n".join([*table(("client", "file", "what"), rows), "", *_about_commits(root, written)]))
            if not options["yes"] and not self.ask("Do this? --diff shows each line."):
                self.stdout.write("Nothing was written.")
                return 0
        setup_record.write(home, known, list(changes.values()), wanted)
        if guarded:
            self._guard(home, root, known)
        if hub and starts:
            self._start(home, known, hub)
        remind_of_password(self)
        if not rows:
            self.stdout.write("Nothing needs a change.")
        self.stdout.write("")
        return self._check(home, root, {**options, "client": chosen})

    def _guard(self, home: Path, root: Path, known: setup_record.Record) -> None:
        """Install the commit guard; where a hook is in the way, say so and continue."""
        hooks = guard.hooks_directory(str(root)).hooks
        try:
            guard.install(str(root), *hook_arguments())
        except NexusError as error:
            self.stderr.write(f"[nexus] {error.message}")
            return
        known.guard = known.guard or all(hook.state != "installed" for hook in hooks)
        setup_record.save(home, known)

    def _lacking_hooks(self, root: Path) -> list[Path]:
        """Return git's hooks that would be written; none, with the reason, where that is impossible."""
        try:
            where = guard.hooks_directory(str(root))
        except NexusError as error:
            if repository.find_repository(str(root)):
                self.stderr.write(f"[nexus] The commit guard is left out: {error.message}")
            return []
        if where.is_left_to_others:
            self.stderr.write("[nexus] The commit guard is left out: `nexus guard install` says how to add it.")
        return [hook.file for hook in where.hooks if where.own and not _is_current(hook)]

    def _hub(self, home: Path, before: Mapping[str, Any], manager: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return how the hub of this home is to be started: what it is now, and what was given. Raises CONFIG_ERROR
        where a given port is taken, and where a hub runs that a unit cannot replace."""
        holder, earlier = running(home), before.get("arguments", ())
        if holder and manager and not before:
            raise NexusError(
                Code.CONFIG_ERROR,
                f"Process {holder.pid} serves {home} already, and was started by hand. `nexus stop` ends it; then run "
                "this again.",
            )
        port = options["port"]
        if port is None:
            port = int(earlier[1]) if earlier else holder.port if holder else PORT
            port = port if holder else free_port(port)
        elif not holder or holder.port != port:
            listen(LOOPBACK, port, "Choose another --port, or leave it out.").close()
        control = ControlSettings.current().control or CONTROL in earlier
        if not (control or holder or before or options["yes"]) and sys.stdin.isatty():
            control = self.ask("Shall the hub run agents of its own, too, in worktrees that you review (--control)?")
        arguments = ["--port", str(port), *settings_flags(), *([CONTROL] if control else [])]
        return {"manager": manager, "arguments": arguments}

    def _start(self, home: Path, known: setup_record.Record, hub: dict[str, Any]) -> None:
        """Start the hub anew and record that. Raises CONFIG_ERROR, with the hub as it was, and no new unit left."""
        try:
            holder = background.restart(home, **hub)
        except NexusError:
            earlier = setup_record.hub_of(home)
            if hub["manager"] and not earlier.get("manager"):
                file = background.unit()[0]
                changes, _, _ = setup_record.undoing(home, known)
                setup_record.undo(home, known, {file: changes[file]} if file in changes else {})
            if earlier and earlier != hub:
                with contextlib.suppress(NexusError):
                    background.restart(home, earlier.get("arguments", ()), earlier["manager"])
            raise
        for _, other in setup_record.readable(home):
            if other.hub:
                other.hub = {}
                setup_record.save(home, other)
        known.hub = {**hub, "arguments": ["--port", str(holder.port), *hub["arguments"][2:]]}
        setup_record.save(home, known)

    # Undo

    def _undo(self, home: Path, root: Path, options: Mapping[str, Any]) -> bool:
        """Take back what setup wrote; return whether the home is to be deleted."""
        known = setup_record.load(home, root)
        changes, refused, kept = setup_record.undoing(home, known)
        others = [other for _, other in setup_record.readable(home) if other.project_root != str(root)]
        if options["purge"]:
            _check_purge(home, root, others, known)
        elif not (changes or refused or known.guard or known.hub):
            self.stdout.write("Setup wrote nothing in this project that is still there.")
            return False
        ends = bool(known.hub) and not others
        heir = _in_same_repository(root, others) if known.guard else None
        for change in changes.values() if options["diff"] else ():
            self.stdout.write(redact(change.diff))
        for file in kept:
            self.stdout.write(f"{_short(file, root)} stays: another project, or another home of Nexus, uses it.")
        steps = [f"Take back {_count(len(changes) - len(kept), 'file')}"]
        steps += ["the commit guard"] if known.guard and heir is None else []
        steps += ["end the hub"] if ends else []
        steps += [f"delete {home} with everything that agents wrote"] if options["purge"] else []
        if not options["yes"] and not self.ask(f"{', '.join(steps)}?"):
            self.stdout.write("Nothing was changed.")
            return False
        if ends:
            if known.hub.get("manager"):
                background.disable(known.hub["manager"])
            else:
                background.stop(home)
        elif known.hub:
            others[0].hub = known.hub
            setup_record.save(home, others[0])
        known.hub = {}
        if heir is not None:
            heir.guard = True
            setup_record.save(home, heir)
        elif known.guard and not setup_record.is_of_another(known):
            guard.uninstall(str(root))
        known.guard = False
        setup_record.save(home, known)
        setup_record.undo(home, known, changes)
        for error in refused:
            self.stderr.write(f"[nexus] {error.message}")
        self.stdout.write("The rest is taken back." if refused else "Nothing of setup is left in this project.")
        purges = bool(options["purge"]) and not refused
        if purges:
            self.stdout.write(f"{home} is deleted.")
        elif others:
            self.stdout.write(f"{home} stays: it serves {_count(len(others), 'other project')}.")
        else:
            self.stdout.write(f"{home} stays, with what agents wrote: `nexus setup --undo --purge` deletes it.")
        return purges

    # Check

    def _check(self, home: Path, root: Path, options: Mapping[str, Any]) -> int:
        chosen = options["client"] or client_entries.installed_clients()
        rows = [*self._rows(home, root, chosen, options)]
        marks = {True: "ok", False: "missing", None: "left out"}
        shown = rows if options["check"] else [rows[0], *(row for row in rows[1:] if row.holds is False)]
        lines = [(row.what, marks[row.holds], row.detail) for row in shown]
        for line in table(("what", "state", "where"), lines, LONGEST_DETAIL):
            self.stdout.write(line)
        for row in rows:
            if row.holds is False and len(row.detail) > LONGEST_DETAIL:  # the table shortens it
                self.stdout.write(f"\n{row.what}: {row.detail}")
        self.stdout.write("")
        record = setup_record.load(home, root)
        agent_names.assign(home, record, chosen)
        for client in chosen:
            known = CLIENTS[client]
            say = f'"{first_words(record.agents[client])}"'
            woken = "" if "hooks" in options["without"] else f" {known.woken}"
            self.stdout.write(f"{known.title}: {known.first} Then say {say}{woken}")
        if started := next((client for client in chosen if CLIENTS[client].program), None):
            second = f"NEXUS_AGENT_ID={record.agents[started]}-2 {CLIENTS[started].program}"
            self.stdout.write(f"A second agent in one client needs a name of its own: {second}")
        if holder := running(home):
            pages = background.pages(home, holder)
            self.stdout.write(f"Watch your agents and answer their questions at {pages}")
            if options["open"]:
                webbrowser.open(pages)
        return LACKING if any(row.holds is False for row in rows) else 0

    def _rows(self, home: Path, root: Path, chosen: Sequence[str], options: Mapping[str, Any]) -> Iterator[CheckRow]:
        yield _answers(root)
        for piece in _pieces(root, chosen, options, setup_record.load(home, root).hub):
            title = f"{CLIENTS[piece.client].title}: {piece.title}" if piece.client else piece.title
            try:
                yield CheckRow(title, piece.holds(), _short(piece.file, root))
            except NexusError as error:
                yield CheckRow(title, False, error.message)
        if any(name in HARNESSES and HARNESSES[name].waking for name in chosen) and "hooks" not in options["without"]:
            yield _is_woken(home, root)
        yield _guard_row(root, left_out="guard" in options["without"])
        if shell.WITHOUT_HOOKS in chosen and "guard" not in options["without"] and "hooks" in options["without"]:
            title = CLIENTS[shell.WITHOUT_HOOKS].title
            yield CheckRow(
                f"{title}: commits", False, "its shell runs no git hooks: set it up with its hooks, which check"
            )
        holder = running(home)
        url = f"{holder.url}/admin/" if holder else "clients work without it, over stdio"
        yield CheckRow("hub", holder is not None if "hub" not in options["without"] else None, url)


def _check_purge(home: Path, root: Path, others: Sequence[setup_record.Record], known: setup_record.Record) -> None:
    """Raise CONFIG_ERROR where the home is somebody's whom setup does not know."""
    holder = running(home)
    if others:
        why = (
            f"it serves {', '.join(other.project_root for other in others)}, too. Undo that first, or leave --purge out"
        )
    elif holder and not known.hub:
        why = f"process {holder.pid} serves it, which setup did not start. `nexus stop` ends it"
    elif any(place.is_relative_to(home) for place in (root, Path.home())):
        why = "more than Nexus's own files are in it. Leave --purge out, and delete those"
    else:
        return
    raise NexusError(Code.CONFIG_ERROR, f"{home} stays, and nothing was changed: {why}.")


def _in_same_repository(root: Path, others: Iterable[setup_record.Record]) -> setup_record.Record | None:
    """Return what setup wrote for another project that has the same hooks: in another work tree, or directory."""
    here = repository.find_repository(str(root))
    for other in others:
        there = repository.find_repository(other.project_root)
        if here and there and there.common == here.common:
            return other
    return None


def _pieces(
    root: Path, chosen: Sequence[str], options: Mapping[str, Any], hub: Mapping[str, Any] | None
) -> Iterator[Piece]:
    """Yield what setup writes into files for these clients and, at login, this hub."""
    entries = [*_entries(root, chosen, options)]
    yield from entries
    if "texts" not in options["without"]:
        yield from setup_pieces.texts(chosen, root, _toolsets())
    local = dict.fromkeys(piece.file for piece in entries if _is_local(piece, root))
    here = repository.find_repository(str(root)) if local and "exclude" not in options["without"] else None
    if here:
        yield setup_pieces.ignored(Path(here.common, "info", "exclude"), [_ignoring(here.top, file) for file in local])
    if hub and hub["manager"]:
        command = background.command(hub.get("arguments", ()))
        content = background.unit_text(hub["manager"], command, CoreSettings.current().home)
        yield setup_pieces.whole("hub at login", background.unit()[0], content)


def _entries(root: Path, chosen: Sequence[str], options: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield the clients' entries and hooks. What colleagues may have, too, starts `nexus` by its name."""
    scope = options["scope"]
    for client in chosen:
        starts = program if scope == "user" or CLIENTS[client].project_file is None else shared_program
        yield setup_pieces.server(client, root, scope, [*starts(), *_runmcp()])
        if client in HARNESSES and "hooks" not in options["without"]:
            starts = program if scope == "user" or LOCAL in HARNESSES[client].project_file else shared_program
            command = client_entries.hook_command(starts(), client, settings_flags(EDITS))
            yield setup_pieces.hooks(client, root, scope, command)


def _is_local(piece: Piece, root: Path) -> bool:
    """Return whether what a client has in a file of the project is of use on this machine alone."""
    is_shared = LOCAL not in piece.file.name and shared_program() == [client_entries.SERVER]
    return bool(piece.client) and piece.file.is_relative_to(root) and not is_shared


def _ignoring(top: str, file: Path) -> str:
    """Return the line by which git ignores this file alone in a work tree."""
    return "/" + re.sub(r"([\\*?\[\]])", r"\\\1", file.relative_to(top).as_posix())


def _plan(root: Path, pieces: Sequence[Piece], guarded: Sequence[Path]) -> list[tuple[str, str, str]]:
    """Return what setup will write, a row for each file: its clients, the file, what is in it."""
    of_files: dict[Path, list[Piece]] = {}
    for piece in pieces:
        of_files.setdefault(piece.file, []).append(piece)
    rows = []
    for file, inside in of_files.items():
        clients, titles = (
            dict.fromkeys(CLIENTS[piece.client].title for piece in inside if piece.client),
            dict.fromkeys(piece.title for piece in inside),
        )
        rows.append((", ".join(clients) or "all", _short(file, root), ", ".join(titles)))
    return rows + [
        ("git", _short(file, root), "commit guard") for file in dict.fromkeys(each.parent for each in guarded)
    ]


def _about_commits(root: Path, pieces: Sequence[Piece]) -> Iterator[str]:
    """Yield which of the files in a repository belong into commits."""
    if repository.find_repository(str(root)) is None:
        return
    mine = {piece.file for piece in pieces if _is_local(piece, root)}
    own = [piece.file for piece in pieces if piece.file.is_relative_to(root) and ".git" not in piece.file.parts]
    if shared := [_short(file, root) for file in dict.fromkeys(own) if file not in mine]:
        yield f"Commit these, if your colleagues use Nexus, too: {', '.join(shared)}."
    if mine:
        yield f"Do not commit these, which name this machine's paths: {', '.join(_short(file, root) for file in mine)}."


def _toolsets() -> list[str]:
    """Return the clients' toolsets: those given to this command, else the usual ones, with topics if there are any."""
    text = McpBridgeSettings.current().toolsets
    if settings.NEXUS_SOURCES[TOOLSETS] != "default" and text is not None:
        return toolset_names(text)
    return [*USUAL, *(["topics"] if is_made() and Topic.objects.exists() else [])]


def _runmcp() -> list[str]:
    """Return the words after `nexus` that a client starts."""
    return ["runmcp", *settings_flags(), flag(TOOLSETS), ",".join(_toolsets())]


def _answers(root: Path) -> CheckRow:
    """Start the command that the clients start, and count the tools that it offers."""
    command = [*program(), *_runmcp()]
    try:
        count = len(_ask(command, root)["result"]["tools"])
    except (OSError, ValueError, KeyError, TypeError):
        return CheckRow("Nexus answers", False, f"no; this is what clients start: {shlex.join(command)}")
    return CheckRow("Nexus answers", True, f"{count} tools: {', '.join(_toolsets())}")


def _is_woken(home: Path, root: Path) -> CheckRow:
    """Start what waits while an agent is idle, signal it, and see that it looks. No model is called."""
    command = [*program(), "wait", "--agent", PROBE, "--session", PROBE, *settings_flags(), "--seconds"]
    title, deadline = "an idle agent is woken", time.monotonic() + ANSWER_SECONDS
    try:
        with start([*command, str(ANSWER_SECONDS)], cwd=str(root), env=own_environment(), stdout=PIPE) as waiter:
            while not hook_state.waiting_hooks(home, hook_state.hook_id(PROBE, str(root))):
                if waiter.process.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(0.02)
            began = time.monotonic()
            signal_files.send(home, PROBE)
            holds = waiter.wait(deadline - began) == 0
            return CheckRow(title, holds, f"what waits for it answered a signal in {time.monotonic() - began:.1f} s")
    except OSError:  # includes TimeoutError
        return CheckRow(title, False, f"no; this waits for it: {shlex.join(command[:-1])}")


def _ask(command: Sequence[str], root: Path) -> Any:
    """Return the answer of a server on stdio to the last request. Raises OSError and ValueError."""
    deadline = time.monotonic() + ANSWER_SECONDS
    said = b""
    with (
        start(command, cwd=str(root), env=own_environment(), stdin=PIPE, stdout=PIPE) as program,
        selectors.DefaultSelector() as pipes,
    ):
        pipes.register(program.stdout, selectors.EVENT_READ)
        program.stdin.write("".join(json.dumps(message) + "\n" for message in REQUESTS).encode())
        program.stdin.flush()
        while pipes.select(max(deadline - time.monotonic(), 0)) and (chunk := os.read(program.stdout.fileno(), CHUNK)):
            said += chunk
            for line in said.splitlines(keepends=True):
                if line.endswith(b"\n") and (answer := json.loads(line)).get("id") == REQUESTS[-1]["id"]:
                    return answer
    raise TimeoutError("it does not answer")


def _is_current(hook: guard.Hook) -> bool:
    return hook.state == guard.BY_HAND or hook.content == guard.script(hook.file.name, *hook_arguments())


def _guard_row(root: Path, *, left_out: bool) -> CheckRow:
    try:
        where = guard.hooks_directory(str(root))
        holds = all(map(_is_current, where.hooks))
        detail = " ".join([_short(where.directory, root), *where.left_out])
        return CheckRow("commit guard", (holds and not where.left_out) or (None if left_out else False), detail)
    except NexusError as error:
        if repository.find_repository(str(root)) is None:
            return CheckRow("commit guard", None, "no git repository")
        return CheckRow("commit guard", None if left_out else False, error.message)


def _short(file: Path, root: Path) -> str:
    """Return a file's path as people write it: relative to the project or to their home."""
    for base, prefix in ((root, ""), (Path.home(), "~/")):
        if file.is_relative_to(base):
            return prefix + str(file.relative_to(base))
    return str(file)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
