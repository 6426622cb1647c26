"""The interface of runners: their input, their result, and the redaction of secrets in what they pass on."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from nexus.control.agents.questions import Decision
from nexus.control.agents.turns import Ended
from nexus.control.faults import Fault
from nexus.control.models import Entry, PoolAgent, Role, Turn
from nexus.control.permissions.prices import MOST, Cost
from nexus.control.permissions.rules import Action, Rule, Ruling, Verdict, decide
from nexus.core.operations.replies import Outcome
from nexus.core.waiting import OUTSIDE, in_thread

T = TypeVar("T")

LOGS = "logs/pool"  # below the home: what goes to and from models and agent processes, a file for each agent
LONGEST_DRAFT = 100_000  # characters; the rest of a longer text appears with its entry


class Say(Protocol):
    """Append an entry to the transcript; durable when it returns."""

    async def __call__(
        self, role: Role, content: str, *, tool_call_id: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> None: ...


class Ask(Protocol):
    """Ask an operator, and wait for the answer or for the timeout in the settings.

    `kind` is `permission` (may this be done?) or `question` (answered in words). `subject` is what it is about, in a
    line. `action` is what a permission would allow; without it, rules know the permission by its subject.
    """

    async def __call__(
        self, kind: str, title: str, detail: str, *, subject: str, action: Action | None = None
    ) -> Decision: ...


class Draft:
    """The text that an agent is writing, and the tokens of its turn so far: shown meanwhile, and never stored.

    The entry that the runner writes afterwards replaces it. `secrets` are redacted; text that may be the beginning of a
    secret is held back until more follows.
    """

    def __init__(self) -> None:
        self.begun = 0  # the number of restarts
        self.input_tokens = self.output_tokens = 0
        self.cached_tokens: int | None = None
        self.cost: Cost | None = None  # as the agent says, or by known prices
        self.changed = asyncio.Event()
        self.signs = 0  # of life: what came from the agent or its model
        self.secrets: Secrets = NO_SECRETS
        self._parts: list[str] = []
        self._length = 0
        self._unsure = ""

    @property
    def text(self) -> str:
        """The text so far."""
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def add(self, text: str) -> None:
        """Append a text, which must be one that every client accepts."""
        self.signs += 1
        text = self._unsure + text
        sure = self.secrets.settled(text)
        self._unsure = text[sure:]
        kept = self.secrets.struck(text[:sure])[: LONGEST_DRAFT - self._length]
        if kept:
            self._parts.append(kept)
            self._length += len(kept)
            self.changed.set()

    def restart(self) -> None:
        """Clear the text: it became an entry, or is discarded."""
        self._unsure = ""
        if self._length:
            self._parts, self._length = [], 0
            self.begun += 1
            self.changed.set()

    def used(self, input_tokens: int, output_tokens: int, cached_tokens: int | None = None) -> None:
        """Set the tokens that the whole turn has used so far; the cached ones are a part of the input."""
        self.input_tokens, self.output_tokens = min(input_tokens, MOST), min(output_tokens, MOST)
        self.cached_tokens = None if cached_tokens is None else min(cached_tokens, self.input_tokens)
        self.changed.set()


async def no_instructions() -> str:
    """Return none."""
    return ""


async def no_rules() -> Sequence[Rule]:
    """Return none."""
    return ()


async def not_told(session: Mapping[str, Any]) -> None:
    """Keep nothing."""


@dataclass(frozen=True)
class Scene:
    """One turn, as its runner sees it."""

    agent: PoolAgent
    turn: Turn
    history: Callable[[], AsyncIterator[Entry]]  # the context, newest first, from the turn's message; read lazily
    say: Say
    ask: Ask
    call: Callable[[str, str, Mapping[str, Any]], Awaitable[Outcome]]  # an operation of a toolset, as the agent
    draft: Draft = field(default_factory=Draft)
    instructions: Callable[[], Awaitable[str]] = no_instructions  # of the operator's and the project's files
    tell_session: Callable[[Mapping[str, Any]], Awaitable[None]] = not_told  # keep what its process told of its session
    rules: Callable[[], Awaitable[Sequence[Rule]]] = no_rules  # that hold for the agent now
    rulings: list[str] = field(default_factory=list)  # of rules about the call that runs, in words

    async def decide(self, action: Action, ceiling: Verdict) -> Ruling:
        """Return the verdict on an action, by the rules that hold now and by the agent's ceiling."""
        known = () if ceiling is Verdict.REFUSED else await self.rules()
        return await in_share(self.agent, partial(decide, known, action, ceiling)) if known else Ruling(ceiling)


class RunnerFailed(Exception):
    """A turn that cannot be finished; the message is for operators.

    `fault` is the provider's, if that is the reason; `has_written`: it changed something, whatever the transcript has.
    """

    def __init__(self, why: str, fault: Fault | None = None, *, has_written: bool = False) -> None:
        super().__init__(why)
        self.fault, self.has_written = fault, has_written


async def in_share(agent: PoolAgent, function: Callable[[], T]) -> T:
    """Run a function that uses the disk for an agent, on a thread of its owner's share: a mount may never answer."""
    return await in_thread(OUTSIDE, function, agent.owner)


class Takes(Protocol):
    """Run a turn to its end. When cancelled, leave nothing running. Raises RunnerFailed."""

    async def __call__(self, runner: Any, scene: Scene) -> Ended: ...


STRUCK = "***"


NAMES_ONLY = ("_MODEL", "_PROVIDER")  # ends of variables whose values are names, which agents also say
SHORTEST_SECRET = 6  # characters; a shorter value is a common word, and is not redacted


def secret_values(names: Iterable[str]) -> list[str]:
    """Return the values of environment variables that are redacted, where they are set."""
    values = (os.environ.get(name, "") for name in names if not name.endswith(NAMES_ONLY))
    return [value for value in values if len(value) >= SHORTEST_SECRET]


class Secrets:
    """Texts that are redacted wherever they occur: as they are, and as JSON escapes them."""

    def __init__(self, *values: str) -> None:
        spelled = {form for value in values for form in (value, json.dumps(value)[1:-1])}
        # Longest first, so that a secret that begins with another is redacted whole.
        self._values = sorted(filter(None, spelled), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values)) or r"(?!)")

    def struck(self, text: str) -> str:
        """Return the text with the secrets redacted."""
        return self._pattern.sub(STRUCK, text)

    def cut(self, text: str, most: int) -> str:
        """Return the beginning of the text with the secrets redacted. If it were cut first, it could end with a part of
        one."""
        return self.struck(text)[:most]

    def struck_of(self, value: Any) -> Any:
        """Return a JSON value with the secrets redacted in all its texts and keys."""
        if isinstance(value, str):
            return self.struck(value)
        if isinstance(value, dict):
            return {self.struck(name): self.struck_of(each) for name, each in value.items()}
        return [self.struck_of(each) for each in value] if isinstance(value, list) else value

    def settled(self, text: str) -> int:
        """Return how many characters of an unfinished text are safe to show: the rest may be the beginning of a
        secret."""
        longest = len(self._values[0]) if self._values else 1
        sure = next(
            (at for at in range(max(len(text) - longest + 1, 0), len(text)) if self._may_go_on(text[at:])), len(text)
        )
        # A complete secret is not split, even if its end may begin another.
        return next((one.start() for one in self._pattern.finditer(text) if one.start() < sure < one.end()), sure)

    def _may_go_on(self, tail: str) -> bool:
        return any(len(tail) < len(value) and value.startswith(tail) for value in self._values)


NO_SECRETS = Secrets()
