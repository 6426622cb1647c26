"""Loading of a catalog from a directory of the published layout: complete and unchanged, or refused."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.validation import PROBLEMS
from nexus.planning.catalog.model import Agent, Manifest, Skill

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 2**20  # bytes
LARGEST_FILE = 2**18  # bytes of any other
VOCABULARY = {  # the parts of the vocabulary, and their files
    "capabilities": "vocabulary/capabilities.yml",
    "categories": "vocabulary/categories.yml",
    "resume_tiers": "vocabulary/resume-tiers.yml",
    "tags": "vocabulary/tags.yml",
}
MORE_PROBLEMS = {
    "extra_forbidden": "is not known",
    "json_invalid": "is not well-formed JSON",
    "string_pattern_mismatch": "has not the form that the layout gives it",
}


@dataclass(frozen=True)
class Catalog:
    """A manifest, and the prompts whose hashes it contains, by id."""

    manifest: Manifest
    agent_bodies: Mapping[str, str]
    skill_bodies: Mapping[str, str]


def load(directory: Path) -> Catalog:
    """Return the catalog in a directory.

    Raises CONFIG_ERROR with the file and its fault: a file that is missing, too large, malformed or outside of the
    directory; a prompt that does not match the manifest's hash; a meta.yml or a vocabulary that differs from the
    manifest.
    """
    try:
        root = directory.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        refuse(directory, f"cannot be read ({type(error).__name__})")
    content = read(root, MANIFEST, LARGEST_MANIFEST)
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        refuse(root / MANIFEST, explained(error))
    words = manifest.vocabulary.model_dump(mode="json", exclude_unset=True)
    for part, name in VOCABULARY.items():
        if read_yaml(root, name) != {part: words[part]}:
            refuse(root / name, f"says something else than {MANIFEST}")
    return Catalog(
        manifest,
        {agent.id: _body(root, f"agents/{agent.id}", agent) for agent in manifest.agents},
        {skill.id: _body(root, f"skills/{skill.id}", skill) for skill in manifest.skills},
    )


def _body(root: Path, folder: str, entry: Agent | Skill) -> str:
    if read_yaml(root, f"{folder}/meta.yml") != entry.model_dump(
        mode="json", exclude_unset=True, exclude={"body_hash"}
    ):
        refuse(root / folder / "meta.yml", f"says something else than {MANIFEST}")
    body = read_text(root, f"{folder}/body.md")
    if hash_of(body.encode()) != entry.body_hash:
        refuse(root / folder / "body.md", f"was changed: it is not what the hash in {MANIFEST} says")
    return body


def hash_of(content: bytes) -> str:
    """Return a hash as a manifest writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def explained(error: ValidationError) -> str:
    """Return the first problem of a manifest, in our words."""
    detail = error.errors(include_url=False)[0]
    problem = {**PROBLEMS, **MORE_PROBLEMS}.get(detail["type"], "is not what the layout has there")
    field = ".".join(map(str, detail["loc"]))
    return f"{f'{field[:200]!r}: ' if field else ''}{problem.format(**detail.get('ctx', {}))}"


def refuse(file: Path, why: str) -> NoReturn:
    """Raise CONFIG_ERROR with the file and its fault."""
    raise NexusError(Code.CONFIG_ERROR, f"{file} {why}.", {"file": str(file)})


def read(root: Path, name: str, limit: int = LARGEST_FILE) -> bytes:
    """Return the content of a regular file below `root`, which is resolved. Raises CONFIG_ERROR."""
    file = root / name
    try:
        resolved = file.resolve(strict=True)
        if not resolved.is_relative_to(root):
            refuse(file, "leads out of the catalog")
        if not stat.S_ISREG(resolved.stat().st_mode):  # a pipe would block
            refuse(file, "is no file")
        with resolved.open("rb") as opened:
            content = opened.read(limit + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        refuse(file, f"cannot be read ({type(error).__name__})")
    if len(content) > limit:
        refuse(file, f"has more than {limit} bytes")
    return content


def read_text(root: Path, name: str) -> str:
    """Return the content of such a file as text. Raises CONFIG_ERROR."""
    try:
        return read(root, name).decode("utf-8")
    except UnicodeDecodeError:
        refuse(root / name, "is not UTF-8")


def read_yaml(root: Path, name: str) -> Any:
    """Return the content of such a YAML file: plain values, no aliases, every key once. Raises CONFIG_ERROR."""
    text = read_text(root, name)
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except _Refused as problem:
        refuse(root / name, str(problem))
    except (yaml.YAMLError, ValueError, RecursionError):
        refuse(root / name, "is not well-formed YAML")


class _Refused(Exception):
    """A construct of YAML that the layout does not allow."""


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses aliases, a few of which can expand to a billion values, and duplicate keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _Refused("has an alias, which the layout does not")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise _Refused("has a key twice")
        return mapping
