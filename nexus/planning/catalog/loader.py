"""A catalog's manifest, as published, and its loading from a directory: complete and unchanged, or refused."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.validation import PROBLEMS

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


Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Text = Annotated[str, Field(min_length=1, max_length=8_000)]
Hash = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Part(BaseModel):
    """Base of the parts of a manifest. Fields outside of the layout are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Agent(Part):
    """A role. `body_hash` is the hash of its prompt, the file body.md."""

    id: Id
    name: Text
    description: Text
    task: str | None = None
    alias_ko: str | None = None
    category: Id
    resume_tier: Id
    model_tier: Literal["high", "standard"]
    capabilities: tuple[Id, ...]
    body_hash: Hash


class Skill(Part):
    """A way of working that a tag switches on. An agent never chooses a `manual_only` one by itself."""

    id: Id
    name: Text
    description: Text
    summary: str | None = None
    triggers: tuple[Id, ...] = ()
    alias_ko: str | None = None
    manual_only: bool = False
    harness_docs_refs: tuple[Text, ...] = ()
    body_hash: Hash


class Capability(Part):
    """A restriction of an agent: it may not use tools of these semantic classes."""

    id: Id
    description: Text
    intent: Word
    blocks_semantic_classes: Annotated[tuple[Word, ...], Field(min_length=1)]
    prose_guidance: Text


class Described(Part):
    """A category, or a resume tier."""

    id: Id
    description: Text


class Tag(Part):
    """A word in brackets that a user writes: it loads a skill, or runs an action with the text that follows."""

    id: Id
    trigger: Annotated[str, Field(pattern=r"^\[[a-z][a-z0-9_-]*(:[^\[\]\s:]+)?\]$", max_length=80)]
    type: Literal["skill", "inline_action"]
    description: Text
    skill: Id | None = None
    handler: Text | None = None
    variants: tuple[Text, ...] = ()


class Vocabulary(Part):
    """The vocabulary of a catalog."""

    capabilities: tuple[Capability, ...]
    categories: tuple[Described, ...]
    resume_tiers: tuple[Described, ...]
    tags: tuple[Tag, ...]


class Manifest(Part):
    """A whole catalog without its prompts. All references are within it, and every id is unique."""

    nexus_core_version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.-]+)?$")]
    nexus_core_commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")]
    schema_contract_version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
    agents: tuple[Agent, ...]
    skills: tuple[Skill, ...]
    vocabulary: Vocabulary

    @property
    def blocked_classes(self) -> Mapping[str, tuple[str, ...]]:
        """The semantic classes that each capability blocks, by capability."""
        return {word.id: word.blocks_semantic_classes for word in self.vocabulary.capabilities}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        words = self.vocabulary
        capabilities = _once("capability", (word.id for word in words.capabilities))
        categories = _once("category", (word.id for word in words.categories))
        tiers = _once("resume tier", (word.id for word in words.resume_tiers))
        tags = _once("tag", (tag.id for tag in words.tags))
        skills = _once("skill", (skill.id for skill in self.skills))
        _once("trigger", (tag.trigger for tag in words.tags))
        _once("agent", (agent.id for agent in self.agents))
        for agent in self.agents:
            _require_known(f"agent {agent.id!r}", "capability", agent.capabilities, capabilities)
            _require_known(f"agent {agent.id!r}", "category", [agent.category], categories)
            _require_known(f"agent {agent.id!r}", "resume tier", [agent.resume_tier], tiers)
        for skill in self.skills:
            _require_known(f"skill {skill.id!r}", "tag", skill.triggers, tags)
            if not (skill.triggers or skill.manual_only):
                raise ValueError(f"skill {skill.id!r} has no trigger and is not manual_only")
        for tag in words.tags:
            if tag.type == "skill":
                _require_known(f"tag {tag.id!r}", "skill", [tag.skill or ""], skills)
            elif not tag.handler:
                raise ValueError(f"tag {tag.id!r} has no handler")
        return self


def _once(what: str, ids: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise ValueError(f"{what} {one!r} is listed twice")
        seen.add(one)
    return seen


def _require_known(who: str, what: str, named: Iterable[str], known: set[str]) -> None:
    for one in named:
        if one not in known:
            raise ValueError(f"{who} names the {what} {one!r}, which the catalog does not have")
