"""The pieces that `nexus setup` puts into files: clients' entries, the skill, and the paragraph for agents.

Skill and paragraph are made from the texts that this version serves, so that the project's texts agree with the
server's.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from nexus.core.coding_clients import CLIENTS, HOOKED, PLUGGED, Format
from nexus.core.files import Change
from nexus.core.operations import registry
from nexus.core.operations.errors import NexusError
from nexus.core.operations.replies import packaged
from nexus.hooks import client_entries, client_files
from nexus.hooks.client_files import Edit
from nexus.hooks.config_text import JsonText

BEGIN = "<!-- nexus: `nexus setup` keeps what stands here; `nexus setup --undo` takes it out -->"
END = "<!-- /nexus -->"
MARKED = re.compile(rf"{re.escape(BEGIN)}\r?\n.*?{re.escape(END)}(?:\r?\n)?", re.DOTALL)
SKILL = ".agents/skills/nexus/SKILL.md"  # most clients look here
AGENTS = "AGENTS.md"
PLUGIN_COMMAND = re.compile(r"const COMMAND = \[.*\]")
IMPORTED = f"@{AGENTS}"  # in a CLAUDE.md that imports the other file


def skill_text(names: Iterable[str]) -> str:
    """Return the skill for agents with these toolsets. Raises CONFIG_ERROR for an unknown name."""
    chosen = (text for toolset in registry.choose(names) if (text := toolset.instructions()))
    return packaged("nexus.hooks", "skill")() + "\n\n".join(text.rstrip("\n") for text in chosen) + "\n"


def paragraph_text() -> str:
    """Return the paragraph with its markers."""
    return f"{BEGIN}\n{packaged('nexus.hooks', 'paragraph')()}{END}\n"


def with_paragraph(file: Path, text: str) -> str:
    """Return a text with the paragraph: in its old place, otherwise at the end. Raises CONFIG_ERROR if one of the
    markers is missing."""
    newline = "\r\n" if "\r\n" in text else "\n"
    ours = paragraph_text().replace("\n", newline)
    found = MARKED.findall(text)
    if len(found) != text.count(BEGIN) or len(found) != text.count(END) or len(found) > 1:
        client_files.refuse(file, "has a marker of Nexus's paragraph without the other, or twice")
    if found:
        return MARKED.sub(lambda _: ours, text)
    gap = "" if not text else newline if text.endswith("\n") else 2 * newline
    return text + gap + ours


def without_paragraph(text: str) -> str:
    """Return a text without the paragraph, and without the empty line before it."""
    return re.sub(rf"(\r?\n)?{MARKED.pattern}", "", text, flags=re.DOTALL)


Kind = Literal["server", "hooks", "paragraph", "whole"]


@dataclass(frozen=True)
class Piece:
    """One piece of a file: an entry of a client, the paragraph, or the whole file.

    `put` takes the file's text (None if there is no file) and returns the change. Raises CONFIG_ERROR.
    """

    title: str
    file: Path
    kind: Kind  # lines that are added to a text are a paragraph
    client: str  # the client of an entry or a plugin; otherwise empty
    put: Callable[[str | None], Change]
    paste: str  # the text to paste by hand if Nexus cannot write it

    def holds(self) -> bool:
        """Return whether the file has this piece as it should be. Raises CONFIG_ERROR if the file cannot be read."""
        text = client_files.read(self.file)
        return self.put(text).after == text


def server(client: str, root: Path, scope: str, command: Sequence[str]) -> Piece:
    """Return the client's entry that starts `command`."""
    put = client_files.put_server(client, client_entries.server_entry(client, command=command))
    paste = client_entries.snippet(client, command=command).text
    return _entry("tools", client_files.find(client, root, scope), CLIENTS[client].format, "server", client, put, paste)


def hooks(client: str, root: Path, scope: str, command: str) -> Piece:
    """Return the client's hooks that call `command`, or the plugin that does."""
    if client in PLUGGED:
        words = json.dumps(shlex.split(command))
        plugin = files("nexus.hooks").joinpath(f"{client}_plugin.js").read_text("utf-8")
        file = client_entries.locate(PLUGGED[client].file(scope), root)
        return whole("mail", file, PLUGIN_COMMAND.sub(lambda _: f"const COMMAND = {words}", plugin), client)
    path = HOOKED[client].file(scope)
    paste = client_entries.dump("json", ("hooks",), client_entries.hook_entries(client, command))

    def put(document: JsonText) -> None:
        installed = client_files.installed(document, client)
        client_files.put_hooks(client, client_entries.with_choices(command, installed))(document)

    return _entry("mail", client_entries.locate(path, root), "json", "hooks", client, put, paste)


def _entry(title: str, file: Path, format: Format, kind: Kind, client: str, edit: Edit, paste: str) -> Piece:
    def put(text: str | None) -> Change:
        return client_files.edited(file, format, text, edit)

    return Piece(title, file, kind, client, put, paste)


def whole(title: str, file: Path, content: str, client: str = "") -> Piece:
    """Return a file that belongs to Nexus alone. Version control may check it out with Windows' line ends."""

    def put(text: str | None) -> Change:
        return Change(file, text, text if (text or "").replace("\r\n", "\n") == content else content)

    return Piece(title, file, "whole", client, put, content)


def texts(chosen: Sequence[str], root: Path, toolsets: Sequence[str]) -> Iterator[Piece]:
    """Yield the skill where these clients look for it, and the paragraph in the files that they read."""
    skill = skill_text(toolsets)
    for path in dict.fromkeys([SKILL, *filter(None, (CLIENTS[name].skill for name in chosen))]):
        yield whole("skill", root / path, skill)
    for name in dict.fromkeys(_guide(root, CLIENTS[client].guide) for client in chosen):
        yield _paragraph(root / name)


def _guide(root: Path, name: str) -> str:
    """Return the file that a client reads, or the one that it imports or links to."""
    if (root / name).is_symlink() and (root / name).readlink() == Path(AGENTS):
        return AGENTS
    try:
        text = client_files.read(root / name) or ""
    except NexusError:
        return name
    return AGENTS if IMPORTED in text else name


def ignored(file: Path, lines: Sequence[str]) -> Piece:
    """Return these lines of the file in which git keeps what it ignores in this clone alone."""

    def put(text: str | None) -> Change:
        lacking = "".join(f"{line}\n" for line in lines if line not in (text or "").splitlines())
        gap = "\n" if lacking and text and not text.endswith("\n") else ""
        return Change(file, text, (text or "") + gap + lacking if lacking else text)

    return Piece("what git ignores", file, "paragraph", "", put, "".join(f"{line}\n" for line in lines))


def _paragraph(file: Path) -> Piece:
    def put(text: str | None) -> Change:
        return Change(file, text, with_paragraph(file, text or ""))

    return Piece("paragraph", file, "paragraph", "", put, paragraph_text())
