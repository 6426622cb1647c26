"""Routing: the target grammar, eligibility and visibility.

Total functions over plain values: no Django, no clock, no I/O (coordination/texts/targets.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from nexus.core.operations.errors import NexusError, invalid

Tag = tuple[str, str]  # a key and a value
Selector = dict[str, list[str]] | list[dict[str, Any]]
Target = dict[str, Any]
"""A target that passed `parse_target`: `strategy` in its canonical spelling, only known keys."""

MAX_DEPTH = 8  # deeper nesting has no use and could exhaust a parser
MAX_RULES = 100  # of all levels together, with fallbacks: each agent is checked against each of them
MAX_NAME = 255
MAX_VALUES = 20  # of a tag, or of a part of a selector
MAX_BYTES = 16 * 1024  # of the whole target, as JSON
OVERSIZED: Target = {"strategy": "oversized"}  # replaces a target stored before there were limits; admits nobody
MAX_FALLBACK_SECONDS = 10 * 365 * 86_400


class Visibility(StrEnum):
    """Who may see an item. Who may claim it depends on the target alone."""

    PUBLIC = "public"  # every agent in the workspace
    ELIGIBLE = "eligible"  # agents that the target admits
    PRIVATE = "private"  # like eligible: never wider than the target


class Strategy(StrEnum):
    """The seven ways to name recipients."""

    DIRECT = "direct"  # one agent by id
    CAPABILITY = "capability"  # anyone with one of these skills
    ROLE = "role"  # anyone in this role
    TAG = "tag"  # anyone whose tags a selector matches
    BROADCAST = "broadcast"  # everyone in the workspace
    MIXED = "mixed"  # anyone that one of several rules admits
    DIRECT_WITH_FALLBACK = "direct_with_fallback"  # one agent now, a wider target later


FIELDS: Mapping[Strategy, frozenset[str]] = {
    Strategy.DIRECT: frozenset({"agent_id"}),
    Strategy.CAPABILITY: frozenset({"capability", "preferred"}),
    Strategy.ROLE: frozenset({"role"}),
    Strategy.TAG: frozenset({"selector"}),
    Strategy.BROADCAST: frozenset(),
    Strategy.MIXED: frozenset({"rules"}),
    Strategy.DIRECT_WITH_FALLBACK: frozenset({"agent_id", "fallback_after_seconds", "fallback"}),
}


class Profile(NamedTuple):
    """An agent's profile for routing; an unregistered agent has neither role nor capabilities."""

    agent_id: str
    role: str | None = None
    capabilities: frozenset[str] = frozenset()
    tags: frozenset[Tag] = frozenset()  # as `tag_set` makes them


def is_directed(target: Target | None, agent_id: str) -> bool:
    """Return whether a target names the agent itself, alone or in one of several rules."""
    if target is None:
        return False
    return target.get("agent_id") == agent_id or any(is_directed(rule, agent_id) for rule in target.get("rules", ()))


def capability_set(value: Any) -> frozenset[str]:
    """Return the capabilities of a stored value.

    A string is one capability, a list contributes its non-blank strings, a mapping its keys with a truthy value;
    null has none. Raises VALIDATION_ERROR for any other shape.
    """
    if value is None:
        return frozenset()
    if isinstance(value, str):
        names: Iterable[Any] = [value]
    elif isinstance(value, list):
        names = value
    elif isinstance(value, dict):
        names = [name for name, flag in value.items() if flag]
    else:
        raise invalid("capabilities must be a string, a list of strings or a mapping of flags.", field="capabilities")
    if not all(isinstance(name, str) for name in names):
        raise invalid("capabilities must hold strings only.", field="capabilities")
    return frozenset(name for name in names if name.strip())


def tag_set(value: Any) -> frozenset[Tag]:
    """Return the pairs by which the tags of an agent, `{key: [value, …]}`, are matched.

    A value with slashes is a path: each part of it from the beginning is a pair, too. With "" each key is one.
    """
    pairs = set()
    for key, values in (value or {}).items():
        pairs.add((key, ""))
        for each in values:
            parts = each.split("/")
            pairs.update((key, "/".join(parts[:count])) for count in range(1, len(parts) + 1))
    return frozenset(pairs)


def parse_tags(value: Any, path: str = "tags") -> dict[str, list[str]] | None:
    """Return tags in their canonical form; None where there are none. Raises VALIDATION_ERROR."""
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise _wrong(path, 'must be an object such as {"team": ["core"]}')
    tags: dict[str, list[str]] = {}
    for given, values in value.items():
        key = _text(given, path)
        if key in tags:
            raise _wrong(path, "has a key twice")
        tags[key] = _values(values, f"{path}.{key[:50]}")
    return tags


def tags_in(words: Iterable[str]) -> dict[str, list[str]]:
    """Return tags that people write as `key=value`. Raises VALIDATION_ERROR."""
    tags: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not (key and equals and value):
            raise _wrong("tags", "must be written key=value, such as team=core")
        tags.setdefault(key, []).append(value)
    return tags


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME:
        raise _wrong(path, f"must have keys and values of 1 to {MAX_NAME} characters")
    return value.strip()


def _values(given: Any, path: str) -> list[str]:
    values = [given] if isinstance(given, str) else given
    if not isinstance(values, list) or not 1 <= len(values) <= MAX_VALUES:
        raise _wrong(path, f"must be a list of 1 to {MAX_VALUES} values")
    return list(dict.fromkeys(_text(each, path) for each in values))


def parse_target(value: Any, *, timed: bool = True) -> Target | None:
    """Return the canonical form of a target, or None where it is absent or blank (no restriction).

    `timed=False` refuses `direct_with_fallback`, which does not work for messages.
    Raises VALIDATION_ERROR with `details.path` at the part that is wrong.
    """
    if value is None or value == {} or (isinstance(value, str) and not value.strip()):
        return None
    target = _parse(value, "target", timed=timed, within_mixed=False, depth=1, left=iter(range(MAX_RULES)))
    if len(json.dumps(target).encode()) > MAX_BYTES:
        raise _wrong("target", f"is larger than {MAX_BYTES} bytes of JSON")
    return target


def an_object(value: Any) -> Any:
    """Return a target unchanged. Raises ValueError for a text, and says how that is written as a target."""
    if isinstance(value, str) and value.strip():
        raise ValueError(_no_object(value))
    return value


def _no_object(value: Any) -> str:
    """Return what is wrong with a value, with the agent that it seems to name as an example."""
    named = isinstance(value, str) and value.strip() and value.strip()[0] not in '{["'
    name = value.strip()[:100].encode(errors="replace").decode() if named else "…"  # no lone surrogate in an answer
    example = {"strategy": "direct", "agent_id": name}
    return f"must be an object such as {json.dumps(example, ensure_ascii=False)}"


def _parse(value: Any, path: str, *, timed: bool, within_mixed: bool, depth: int, left: Iterator[int]) -> Target:
    """Return the canonical form of the part at `path`. Each rule and fallback takes one from `left`, which all parts
    share."""
    if depth > 1 and next(left, None) is None:
        raise _wrong(path, f"is one of more than {MAX_RULES} rules in all")
    if not isinstance(value, dict) or not value:
        raise _wrong(path, _no_object(value))
    if depth > MAX_DEPTH:
        raise _wrong(path, f"is nested deeper than {MAX_DEPTH} levels")
    strategy = _strategy(value, path)
    unknown = value.keys() - FIELDS[strategy] - {"strategy", "kind"}
    if unknown:
        known = ", ".join(sorted(FIELDS[strategy])) or "no further field"
        named = sorted(str(key)[:50] for key in unknown)[:5]
        raise _wrong(path, f"has unknown fields {named}; {strategy} takes {known}")

    target: Target = {"strategy": strategy.value}
    match strategy:
        case Strategy.DIRECT:
            target["agent_id"] = _name(value, "agent_id", path)
        case Strategy.ROLE:
            target["role"] = _name(value, "role", path)
        case Strategy.TAG:
            target["selector"] = _selector(value.get("selector"), f"{path}.selector")
        case Strategy.CAPABILITY:
            target["capability"] = _capability(value, path)
            if "preferred" in value:
                target["preferred"] = value["preferred"]
        case Strategy.BROADCAST:
            if within_mixed:
                raise _wrong(path, "is a broadcast inside a mixed target; use a bare broadcast target instead")
        case Strategy.MIXED:
            rules = value.get("rules")
            if not isinstance(rules, list) or not 1 <= len(rules) <= MAX_RULES:
                raise _wrong(f"{path}.rules", f"must be a list of 1 to {MAX_RULES} targets")
            target["rules"] = [
                _parse(rule, f"{path}.rules[{i}]", timed=timed, within_mixed=True, depth=depth + 1, left=left)
                for i, rule in enumerate(rules)
            ]
        case Strategy.DIRECT_WITH_FALLBACK:
            if not timed:
                raise _wrong(path, "is direct_with_fallback, which messages do not take; create a handoff instead")
            target["agent_id"] = _name(value, "agent_id", path)
            target["fallback_after_seconds"] = _seconds(value, path)
            target["fallback"] = _parse(
                {"strategy": "broadcast"} if value.get("fallback") is None else value["fallback"],
                f"{path}.fallback",
                timed=timed,
                within_mixed=within_mixed,
                depth=depth + 1,
                left=left,
            )
    return target


def _wrong(path: str, why: str) -> NexusError:
    return invalid(f"{path} {why}.", path=path)


def _strategy(value: Mapping[str, Any], path: str) -> Strategy:
    spellings = {_canonical(value[key]) for key in ("strategy", "kind") if value.get(key) is not None}
    known = ", ".join(Strategy)
    if len(spellings) != 1:
        raise _wrong(f"{path}.strategy", f"must be exactly one of {known}")
    try:
        return Strategy(spellings.pop())
    except ValueError:
        raise _wrong(f"{path}.strategy", f"must be one of {known}") from None


def _canonical(strategy: Any) -> str:
    return strategy.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(strategy, str) else ""


def _name(value: Mapping[str, Any], key: str, path: str) -> str:
    name = value.get(key)
    if not isinstance(name, str) or not name.strip():
        raise _wrong(f"{path}.{key}", "must be a non-empty string")
    if len(name) > MAX_NAME:
        raise _wrong(f"{path}.{key}", f"must have at most {MAX_NAME} characters")
    return name


def _capability(value: Mapping[str, Any], path: str) -> str | list[str]:
    wanted = value.get("capability")
    names: list[Any] = wanted if isinstance(wanted, list) else [wanted]
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise _wrong(f"{path}.capability", "must be a non-empty string or a non-empty list of them")
    if any(len(name) > MAX_NAME for name in names):
        raise _wrong(f"{path}.capability", f"must have at most {MAX_NAME} characters each")
    return wanted  # type: ignore[return-value]  # the line above leaves only str and list[str]


def _selector(value: Any, path: str) -> Selector:
    if isinstance(value, list) and value:
        return [_expression(each, f"{path}[{number}]") for number, each in enumerate(value)]
    tags = parse_tags(value, path)
    if tags is None:  # it would be a broadcast
        raise _wrong(path, 'must name a tag, such as {"team": ["core"]}')
    return tags


def _expression(value: Any, path: str) -> dict[str, Any]:
    operator = value.get("operator") if isinstance(value, dict) else None
    if operator not in ("In", "NotIn", "Exists", "DoesNotExist") or value.keys() - {"key", "operator", "values"}:
        raise _wrong(path, 'must be {"key", "operator": In, NotIn, Exists or DoesNotExist, "values"}')
    expression = {"key": _text(value.get("key"), f"{path}.key"), "operator": operator}
    if operator in ("In", "NotIn"):
        return {**expression, "values": _values(value.get("values"), f"{path}.values")}
    if value.get("values"):
        raise _wrong(f"{path}.values", f"is not for {operator}")
    return expression


def selectors_of(target: Target | None) -> Iterator[Selector]:
    """Yield the selectors of all parts of a target, in force or not yet."""
    for part in () if target is None else _parts(target, datetime.min, datetime.max):
        if part["strategy"] == Strategy.TAG:
            yield part["selector"]


def named_in(selector: Selector) -> Iterator[Tag]:
    """Yield the pairs that a selector names; a key that it names without a value has ""."""
    parts = (
        [(key, values) for key, values in selector.items()]
        if isinstance(selector, dict)
        else [(each["key"], each.get("values", ())) for each in selector]
    )
    for key, values in parts:
        yield key, ""
        yield from ((key, value) for value in values)


def _seconds(value: Mapping[str, Any], path: str) -> int | float:
    seconds = value.get("fallback_after_seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _wrong(f"{path}.fallback_after_seconds", "must be a number of seconds")
    if not 0 <= seconds <= MAX_FALLBACK_SECONDS:  # also refuses NaN
        raise _wrong(f"{path}.fallback_after_seconds", f"must be from 0 to {MAX_FALLBACK_SECONDS}")
    return seconds


def stored_target(text: str) -> Target:
    """Return a target from its stored form. One far beyond the limits is not parsed: that alone would take a second."""
    target: Target = json.loads(text) if len(text) <= 4 * MAX_BYTES else OVERSIZED
    return target


@lru_cache(maxsize=1024)
def stored_strategy(text: str) -> str:
    """Return the strategy of a stored target. The cache helps because few targets occur again and again."""
    return str(stored_target(text).get("strategy"))


def is_eligible(target: Target | None, agent: Profile, *, created_at: datetime, now: datetime) -> bool:
    """Return whether `target` (parsed) admits `agent`; no target admits everyone.

    The boundary of a fallback is inclusive: it opens at created_at + fallback_after_seconds.
    """
    return bool(eligible_agents(target, [agent], created_at=created_at, now=now))


def eligible_agents(
    target: Target | None, agents: Iterable[Profile], *, created_at: datetime, now: datetime
) -> list[Profile]:
    """Return the agents that the target admits."""
    if target is None:
        return list(agents)
    parts = list(_parts(target, created_at, now))
    return [agent for agent in agents if any(_admits(part, agent) for part in parts)]


class TargetNames(NamedTuple):
    """The ids, roles and capabilities that a target names. An agent that it admits has at least one of them."""

    ids: set[str]
    roles: set[str]
    capabilities: set[str]


def named_by(target: Target | None, *, created_at: datetime, now: datetime) -> TargetNames | None:
    """Return what the parts of a target that are in force name; None where a part names nobody."""
    named = TargetNames(set(), set(), set())
    for part in [{"strategy": Strategy.BROADCAST}] if target is None else _parts(target, created_at, now):
        match part["strategy"]:
            case Strategy.DIRECT | Strategy.DIRECT_WITH_FALLBACK:
                named.ids.add(part["agent_id"])
            case Strategy.ROLE:
                named.roles.add(part["role"])
            case Strategy.CAPABILITY:
                wanted = part["capability"]
                named.capabilities.update([wanted] if isinstance(wanted, str) else wanted)
            case Strategy.MIXED:
                pass  # its rules are parts of their own
            case _:  # a broadcast, or tags, which no index leads to
                return None
    return named


def _parts(target: Target, created_at: datetime, now: datetime) -> Iterator[Target]:
    """Yield the parts of a target that are in force; of one stored before there were limits, no more than the limits
    allow."""
    pending = [target]
    for _ in range(MAX_RULES + 1):
        if not pending:
            return
        part = pending.pop()
        yield part
        if part["strategy"] == Strategy.MIXED:
            pending.extend(reversed(part["rules"][:MAX_RULES]))
        elif part["strategy"] == Strategy.DIRECT_WITH_FALLBACK and now >= _opens(part, created_at):
            pending.append(part["fallback"])


def _admits(part: Target, agent: Profile) -> bool:
    """Return whether a part of a target admits `agent` by itself."""
    match part["strategy"]:
        case Strategy.DIRECT | Strategy.DIRECT_WITH_FALLBACK:
            return bool(agent.agent_id == part["agent_id"])
        case Strategy.ROLE:
            return bool(agent.role == part["role"])
        case Strategy.TAG:
            return _matches(part["selector"], agent.tags)
        case Strategy.CAPABILITY:
            wanted = part["capability"]
            return not agent.capabilities.isdisjoint([wanted] if isinstance(wanted, str) else wanted)
    return bool(part["strategy"] == Strategy.BROADCAST)


def admits_everyone(target: Target | None, *, created_at: datetime, now: datetime) -> bool:
    """Return whether a part of a target that is in force is a broadcast."""
    return target is None or any(part["strategy"] == Strategy.BROADCAST for part in _parts(target, created_at, now))


def _matches(selector: Selector, tags: frozenset[Tag]) -> bool:
    """Return whether all parts of a selector match. What must not be there matches an agent without the key, too."""
    if isinstance(selector, dict):
        return all(any((key, value) in tags for value in values) for key, values in selector.items())
    return all(_fits(each["key"], each["operator"], each.get("values", ()), tags) for each in selector)


def _fits(key: str, operator: str, values: Iterable[str], tags: frozenset[Tag]) -> bool:
    match operator:
        case "In":
            return any((key, value) in tags for value in values)
        case "NotIn":
            return not any((key, value) in tags for value in values)
        case "Exists":
            return (key, "") in tags
    return (key, "") not in tags


def _opens(target: Target, created_at: datetime) -> datetime:
    return created_at + timedelta(seconds=target["fallback_after_seconds"])


def next_opening(target: Target | None, *, created_at: datetime, now: datetime) -> datetime | None:
    """Return when after `now` the next fallback within `target` opens; None where none opens any more."""
    in_the_end = datetime.max.replace(tzinfo=created_at.tzinfo)
    parts = _parts(target, created_at, in_the_end) if target else ()
    openings = (_opens(part, created_at) for part in parts if part["strategy"] == Strategy.DIRECT_WITH_FALLBACK)
    return min((opening for opening in openings if opening > now), default=None)


def describe(target: Target | None, *, spoken: bool = False) -> str:
    """Return a target in words: `capability python`, or for use inside a sentence: `whoever has python`."""
    words = ("whoever is", "whoever has", "whoever is tagged") if spoken else ("role", "capability", "tagged")
    return _describe(target, iter(range(MAX_RULES)), words)


def _describe(target: Target | None, left: Iterator[int], words: tuple[str, str, str]) -> str:
    if not target:
        return "everyone present"
    match target.get("strategy"):
        case Strategy.DIRECT:
            return str(target.get("agent_id"))
        case Strategy.ROLE:
            return f"{words[0]} {target.get('role')}"
        case Strategy.TAG:
            return f"{words[2]} {_in_words(target.get('selector'))}"
        case Strategy.CAPABILITY:
            wanted = target.get("capability")
            return f"{words[1]} {', '.join(wanted) if isinstance(wanted, list) else wanted}"
        case Strategy.BROADCAST:
            return "everyone"
        case Strategy.MIXED:
            rules = takewhile(lambda _: next(left, None) is not None, target.get("rules", []))
            return " or ".join(_describe(rule, left, words) for rule in rules) or "nobody"
        case Strategy.DIRECT_WITH_FALLBACK:
            after = f"{target.get('fallback_after_seconds')} s"
            return f"{target.get('agent_id')}, after {after} {_describe(target.get('fallback'), left, words)}"
    return "unknown target"


def _in_words(selector: Any) -> str:
    if isinstance(selector, dict):
        return ", ".join(f"{key} {' or '.join(values)}" for key, values in selector.items())
    parts = selector if isinstance(selector, list) else []
    return ", ".join(" ".join([each["key"], each["operator"], *each.get("values", ())]) for each in parts)


def can_see(
    *,
    visibility: str | None,
    target: Target | None,
    actor: str | None,
    item_workspace: str | None,
    workspace: str | None,
    agent: Profile,
    created_at: datetime,
    now: datetime,
) -> bool:
    """Return whether `agent`, looking from `workspace`, sees an item of `item_workspace`."""
    if not workspace or workspace != item_workspace:
        return False
    return is_shown_to(agent, visibility=visibility, target=target, actor=actor, created_at=created_at, now=now)


def is_shown_to(
    agent: Profile,
    *,
    visibility: str | None,
    target: Target | None,
    actor: str | None,
    created_at: datetime,
    now: datetime,
) -> bool:
    """Return whether an item's visibility admits `agent`, wherever it looks from.

    The actor always sees its own item; no visibility means public. A malformed item (unknown visibility, malformed
    target) is visible to nobody else, so that one bad row never blocks a stream.
    """
    if visibility in (None, Visibility.PUBLIC) or (actor is not None and actor == agent.agent_id):
        return True
    if visibility not in (Visibility.ELIGIBLE, Visibility.PRIVATE):
        return False
    try:
        return is_eligible(target, agent, created_at=created_at, now=now)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def only_shown_to(*, visibility: str | None, target: Target | None, actor: str | None) -> frozenset[str] | None:
    """Return the ids of the only agents that may see an item; None where the item alone does not determine them."""
    if visibility in (None, Visibility.PUBLIC) or target is None or target.get("strategy") != Strategy.DIRECT:
        return None
    return frozenset(agent for agent in (target.get("agent_id"), actor) if isinstance(agent, str))
