"""Texts about Nexus for a project's agents: a skill, and a paragraph between markers in AGENTS.md or CLAUDE.md.

Both are made from the texts that this version serves, so that the project's texts agree with the server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nexus.core.operations import registry
from nexus.core.operations.replies import packaged
from nexus.hooks import configuration

BEGIN = "<!-- nexus: `nexus setup` keeps what stands here; `nexus setup --undo` takes it out -->"
END = "<!-- /nexus -->"
MARKED = re.compile(rf"{re.escape(BEGIN)}\r?\n.*?{re.escape(END)}(?:\r?\n)?", re.DOTALL)
SKILL = ".agents/skills/nexus/SKILL.md"  # most clients look here
AGENTS = "AGENTS.md"
IMPORTED = f"@{AGENTS}"  # in a CLAUDE.md that imports the other file


def skill(names: Iterable[str]) -> str:
    """Return the skill for agents with these toolsets. Raises CONFIG_ERROR for an unknown name."""
    chosen = (text for toolset in registry.choose(names) if (text := toolset.instructions()))
    return packaged("nexus.hooks", "skill")() + "\n\n".join(text.rstrip("\n") for text in chosen) + "\n"


def paragraph() -> str:
    """Return the paragraph with its markers."""
    return f"{BEGIN}\n{packaged('nexus.hooks', 'paragraph')()}{END}\n"


def with_paragraph(file: Path, text: str) -> str:
    """Return a text with the paragraph: in its old place, otherwise at the end. Raises CONFIG_ERROR if one of the
    markers is missing."""
    newline = "\r\n" if "\r\n" in text else "\n"
    ours = paragraph().replace("\n", newline)
    found = MARKED.findall(text)
    if len(found) != text.count(BEGIN) or len(found) != text.count(END) or len(found) > 1:
        configuration.refuse(file, "has a marker of Nexus's paragraph without the other, or twice")
    if found:
        return MARKED.sub(lambda _: ours, text)
    gap = "" if not text else newline if text.endswith("\n") else 2 * newline
    return text + gap + ours


def without_paragraph(text: str) -> str:
    """Return a text without the paragraph, and without the empty line before it."""
    return re.sub(rf"(\r?\n)?{MARKED.pattern}", "", text, flags=re.DOTALL)
