"""A catalog's manifest, as published: its agents, its skills and its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
