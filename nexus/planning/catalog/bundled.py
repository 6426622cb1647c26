"""The bundled catalog for hooks. Its manifest is not checked, because it is part of the package. Standard library
only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).parent / "own"


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
    """Return the manifest, as `nexus.planning.catalog.loader.Manifest` describes it."""
    read: dict[str, Any] = json.loads((DIRECTORY / "manifest.json").read_bytes())
    return read


@cache
def agents() -> Mapping[str, Mapping[str, Any]]:
    """Return each agent's entry in the manifest, by id."""
    return {agent["id"]: agent for agent in manifest()["agents"]}


@cache
def skills() -> Mapping[str, Mapping[str, Any]]:
    """Return each skill's entry in the manifest, by id."""
    return {skill["id"]: skill for skill in manifest()["skills"]}


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
    """Return a skill's instructions to its agent, as Markdown. Raises KeyError for an unknown skill."""
    return (DIRECTORY / "skills" / str(skills()[skill]["id"]) / "body.md").read_text("utf-8")
