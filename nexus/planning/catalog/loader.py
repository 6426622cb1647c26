"""A catalog from a directory of the published layout: whole and unchanged, or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from nexus.core.operations.validation import PROBLEMS
from nexus.planning.catalog import layout
from nexus.planning.catalog.layout import refuse
from nexus.planning.catalog.model import Agent, Manifest, Skill

MANIFEST = "manifest.json"
MORE_PROBLEMS = {
    "extra_forbidden": "is not known",
    "json_invalid": "is not well-formed JSON",
    "string_pattern_mismatch": "has not the form that the layout gives it",
}


@dataclass(frozen=True)
class Catalog:
    """A manifest, and the prompts that it vouches for, by id."""

    manifest: Manifest
    agent_bodies: Mapping[str, str]
    skill_bodies: Mapping[str, str]


def load(directory: Path) -> Catalog:
    """The catalog in a directory.

    Raises CONFIG_ERROR, naming the file and its fault: one that is missing, too large, not of its form or leads out of
    the directory; a prompt that is not what the manifest's hash says; a meta.yml or a vocabulary that says something
    else than the manifest.
    """
    try:
        root = directory.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        refuse(directory, f"cannot be read ({type(error).__name__})")
    content = layout.read(root, MANIFEST, layout.LARGEST_MANIFEST)
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        refuse(root / MANIFEST, explained(error))
    words = manifest.vocabulary.model_dump(mode="json", exclude_unset=True)
    for part, name in layout.VOCABULARY.items():
        if layout.read_yaml(root, name) != {part: words[part]}:
            refuse(root / name, f"says something else than {MANIFEST}")
    return Catalog(
        manifest,
        {agent.id: _body(root, f"agents/{agent.id}", agent) for agent in manifest.agents},
        {skill.id: _body(root, f"skills/{skill.id}", skill) for skill in manifest.skills},
    )


def _body(root: Path, place: str, entry: Agent | Skill) -> str:
    if layout.read_yaml(root, f"{place}/meta.yml") != entry.model_dump(
        mode="json", exclude_unset=True, exclude={"body_hash"}
    ):
        refuse(root / place / "meta.yml", f"says something else than {MANIFEST}")
    body = layout.read_text(root, f"{place}/body.md")
    if hash_of(body.encode()) != entry.body_hash:
        refuse(root / place / "body.md", f"was changed: it is not what the hash in {MANIFEST} says")
    return body


def hash_of(content: bytes) -> str:
    """A hash as a manifest writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def explained(error: ValidationError) -> str:
    """The first problem of a manifest, in our words."""
    detail = error.errors(include_url=False)[0]
    problem = {**PROBLEMS, **MORE_PROBLEMS}.get(detail["type"], "is not what the layout has there")
    place = ".".join(map(str, detail["loc"]))
    return f"{f'{place[:200]!r}: ' if place else ''}{problem.format(**detail.get('ctx', {}))}"
