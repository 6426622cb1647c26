"""Events as sentences with links: the one place that makes them, of what every app declares of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from coordination.log.selectors import acts_after
from coordination.models import Event
from coordination.routing import describe
from nexus.core.apps import nexus_apps
from nexus.core.contributions import EntityRef, Sentence

LISTED = 3  # of a list, the others are counted
LONGEST = 160  # characters of what a field holds
FOLDED = 3  # of a kind in a row are told as one
PIECES = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\}|([^\[\]{}]+)")


class Part(NamedTuple):
    """A piece of a sentence: words of ours, or what an event holds (`given`), perhaps with a link."""

    text: str
    given: bool = False
    link: str = ""


@dataclass(frozen=True)
class Line:
    """An event and how it reads."""

    event: Event
    parts: Sequence[Part]


@dataclass(frozen=True)
class Run:
    """Events of a kind that came in a row, newest first; many of them are told as one."""

    lines: list[Line]
    told: str = ""  # instead of them, what they have in common
    actor: Part | None = field(default=None)  # of all of them

    @property
    def oldest(self) -> int:
        """What the run keeps while it grows."""
        return self.lines[-1].event.event_id


@cache
def sentences() -> Mapping[str, Sentence]:
    """By type of event, how it reads."""
    return {type: sentence for app in nexus_apps() for type, sentence in app.sentences().items()}


@cache
def quiet_types() -> list[str]:
    """The types of events that are hidden unless they are asked for."""
    return sorted(type for type, sentence in sentences().items() if sentence.quiet)


def without_quiet(events: Sequence[Event]) -> list[Event]:
    """Those of the events that are no mere signs of life."""
    quiet = quiet_types()
    return [event for event in events if event.type not in quiet]


def without_repeated_acts(events: Sequence[Event]) -> list[Line]:
    """`lines` without an operator's act that the others tell."""
    acts = _acts(events)
    told = {act.event_id for act in acts.values()}
    return _lines([event for event in events if event.event_id not in told], acts)


def lines(events: Sequence[Event]) -> list[Line]:
    """Each event with its sentence. One query for operators' acts, and for each kind of thing whose names events do
    not hold."""
    return _lines(events, _acts(events))


def _lines(events: Sequence[Event], acts: Mapping[int, Event]) -> list[Line]:
    names = {
        name: thing.names({value for event in events if (value := _id(thing, _fields(event)))})
        for name, thing in _things().items()
        if thing.names
    }
    return [Line(event, [*_sentence_parts(event, names), *_by(event, acts.get(event.event_id))]) for event in events]


def _acts(events: Sequence[Event]) -> Mapping[int, Event]:
    """By event, the operator's act that it tells of."""
    found: dict[int, Event] = {}
    act, first = None, 0  # the events from the first one on are the act's
    following = acts_after([event.event_id for event in events])
    for event in sorted([*events, *following], key=lambda event: event.event_id, reverse=True):
        if event.type == "operator.acted":
            count = _fields(event).get("events")
            act, first = event, event.event_id - (count if isinstance(count, int) else 0)
        elif act is not None and event.event_id >= first:
            found[event.event_id] = act
    return found


def _by(event: Event, act: Event | None) -> Sequence[Part]:
    """Who did it in the name of whom the sentence tells; nothing where that tells of an operator."""
    if act is None or _fields(event).get("operator"):
        return []
    return [Part(", by "), _actor(_fields(act), {})]


def runs(events: Sequence[Event]) -> list[Run]:
    """`told_once`, with those of one type that follow each other folded."""
    told: list[Run] = []
    for type, group in groupby(without_repeated_acts(events), key=lambda line: line.event.type):
        row = list(group)
        if len(row) < FOLDED:
            told += [Run([line]) for line in row]
            continue
        sentence = sentences().get(type)
        many = sentence.many.format(count=len(row)) if sentence else f"{len(row)} times {_words_of_type(type)}"
        actors = {_actor(_fields(line.event), {}) for line in row}
        told.append(Run(row, many, actors.pop() if len(actors) == 1 else None))
    return told


@cache
def _things() -> Mapping[str, EntityRef]:
    return {name: thing for app in nexus_apps() for name, thing in app.entity_refs().items()}


def _sentence_parts(event: Event, names: Mapping[str, Mapping[str, str]]) -> Sequence[Part]:
    fields = _fields(event)
    sentence = sentences().get(event.type)
    parts = _filled(sentence.one, fields, names) if sentence else None
    if parts is None:  # of a type that nobody declares, or an event without what its sentence tells
        parts = [_actor(fields, names), Part(f": {_words_of_type(event.type)}")]
    return parts


def _filled(sentence: str, fields: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> list[Part] | None:
    """The parts of a sentence; None where one is missing."""
    parts: list[Part] = []
    for option, name, words in PIECES.findall(sentence):
        if option:
            parts += _filled(option, fields, names) or []
        elif words:
            parts.append(Part(words))
        elif (part := _part(name, fields, names)) is None:
            return None
        else:
            parts.append(part)
    return parts


def _part(name: str, fields: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> Part | None:
    if name == "actor":
        return _actor(fields, names)
    if name == "target":
        return Part(describe(fields["target"], spoken=True), given=True)
    if thing := _things().get(name):
        return _entity_part(thing, fields, names.get(name))
    text = _text(fields.get(name))
    return Part(text, given=True) if text else None


def _actor(fields: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> Part:
    agent_id, operator = fields["actor"], fields.get("operator")
    if agent_id:
        return _entity_part(_things()["agent"], {"agent_id": agent_id}, names.get("agent")) or Part(
            agent_id, given=True
        )
    return Part(f"operator {_text(operator)}", given=True) if operator else Part("the hub")


def _entity_part(thing: EntityRef, fields: Mapping[str, Any], names: Mapping[str, str] | None) -> Part | None:
    """A thing by its name and with a link to it; without one where it is known to be gone."""
    identifier = _id(thing, fields)
    if not identifier:
        return None
    text = (names or {}).get(identifier) or _text(fields.get(thing.name))
    there = names is None or identifier in names
    return Part(text or thing.word, given=bool(text), link=_link(thing, identifier) if there else "")


def _id(thing: EntityRef, fields: Mapping[str, Any]) -> str:
    value = fields.get(thing.key)
    return value if isinstance(value, str) else ""


def _link(thing: EntityRef, identifier: str) -> str:
    try:
        if thing.argument:
            return f"{reverse(f'admin:{thing.page}')}?{urlencode({thing.argument: identifier})}"
        return reverse(f"admin:{thing.page}", args=[identifier])
    except NoReverseMatch:  # an id that is none
        return ""


def _fields(event: Event) -> Mapping[str, Any]:
    payload = event.payload if isinstance(event.payload, dict) else {}
    own = {"actor": event.actor_agent_id, "target": event.target, "workspace_id": event.workspace_id}
    return {"agent_id": event.actor_agent_id, "handoff_id": event.handoff_id, **payload, **own}


def _text(value: Any) -> str:
    """What a field holds, in a few words; empty where it holds nothing."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list):
        more = f" and {len(value) - LISTED} more" if len(value) > LISTED else ""
        return ", ".join(_text(each) for each in value[:LISTED]) + more
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _words_of_type(type: str) -> str:
    """A type as words: `toy.was_lent` is `toy was lent`."""
    return re.sub(r"[._]+", " ", type)
