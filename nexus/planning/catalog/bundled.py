"""The catalog of agents, skills and tags: `own/manifest.json` lists them, each agent and each skill has its text in a
file. Standard library only, because the hooks read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).parent / "own"


class Agent(NamedTuple):
    """A role that a lead hands work to."""

    id: str
    name: str
    description: str
    task: str
    category: str  # how, do or check
    resume_tier: str  # ephemeral, bounded or persistent
    model_tier: str  # high or standard
    capabilities: tuple[str, ...]  # what it may not do, by the vocabulary's names

    @property
    def body(self) -> str:
        """Its prompt, as Markdown, without the names that a client gives to tools."""
        return _text(f"agents/{self.id}/body.md")


class BundledTag(NamedTuple):
    """A tag of the vocabulary: of type `skill` with the id of a skill, or `inline_action` with the name of a
    handler."""

    id: str
    trigger: str
    type: str
    description: str
    skill: str | None = None
    handler: str | None = None
    variants: tuple[str, ...] = ()


@cache
def manifest() -> Mapping[str, Any]:
    """Return the manifest."""
    read: dict[str, Any] = json.loads(_text("manifest.json"))
    return read


@cache
def agents() -> Mapping[str, Agent]:
    """Return the agents by id."""
    found = manifest()["agents"]
    return {entry["id"]: Agent(**{**entry, "capabilities": tuple(entry["capabilities"])}) for entry in found}


@cache
def tags() -> tuple[BundledTag, ...]:
    """Return the vocabulary's tags, for `nexus.planning.catalog.tags.find_tags`."""
    words = manifest()["vocabulary"]["tags"]
    return tuple(BundledTag(**{**tag, "variants": tuple(tag.get("variants", ()))}) for tag in words)


@cache
def blocked_classes() -> Mapping[str, tuple[str, ...]]:
    """Return the semantic classes that each capability blocks, by capability."""
    words = manifest()["vocabulary"]["capabilities"]
    return {word["id"]: tuple(word["blocks_semantic_classes"]) for word in words}


def skill_body(skill: str) -> str:
    """Return a skill's instructions to its agent, as Markdown."""
    return _text(f"skills/{skill}/body.md")


def _text(path: str) -> str:
    return (DIRECTORY / path).read_text("utf-8")
