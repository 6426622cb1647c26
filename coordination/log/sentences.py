"""Events as sentences with links. Each app declares the sentences of its own events; only this module builds them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from coordination.log.selectors import acts_after
from coordination.models import Event
from coordination.routing import describe
from nexus.core.apps import nexus_apps
from nexus.core.contributions import EntityRef, Sentence

LISTED = 3  # items of a list that are named; the others are counted
LONGEST = 160  # characters of a field's value
PIECES = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\}|([^\[\]{}]+)")


class SentencePart(NamedTuple):
    """A part of a sentence: our words, or a value from an event (`given`), perhaps with a link."""

    text: str
    given: bool = False
    link: str = ""


@dataclass(frozen=True)
class EventLine:
    """An event and its sentence."""

    event: Event
    parts: Sequence[SentencePart]


@cache
def sentences() -> Mapping[str, Sentence]:
    """Return the sentence for each type of event."""
    return {type: sentence for app in nexus_apps() for type, sentence in app.sentences().items()}


@cache
def quiet_types() -> list[str]:
    """Return the types of events that are hidden unless they are asked for."""
    return sorted(type for type, sentence in sentences().items() if sentence.quiet)


def without_quiet(events: Sequence[Event]) -> list[Event]:
    """Return the events without those of quiet types."""
    quiet = quiet_types()
    return [event for event in events if event.type not in quiet]


def without_repeated_acts(events: Sequence[Event]) -> list[EventLine]:
    """Return `lines` without the operators' acts that the other lines already show."""
    acts = _acts(events)
    act_ids = {act.event_id for act in acts.values()}
    return _lines([event for event in events if event.event_id not in act_ids], acts)


def lines(events: Sequence[Event]) -> list[EventLine]:
    """Return each event with its sentence. It takes one query for operators' acts, and one for each kind of thing
    whose names are not in the events."""
    return _lines(events, _acts(events))


def _lines(events: Sequence[Event], acts: Mapping[int, Event]) -> list[EventLine]:
    names = {
        name: thing.names({value for event in events if (value := _id(thing, _fields(event)))})
        for name, thing in _things().items()
        if thing.names
    }
    return [
        EventLine(event, [*_sentence_parts(event, names), *_by(event, acts.get(event.event_id))]) for event in events
    ]


def _acts(events: Sequence[Event]) -> Mapping[int, Event]:
    """Return, for each event that an operator's act caused, that act; by event id."""
    found: dict[int, Event] = {}
    act, first = None, 0  # events with ids from `first` on belong to the act
    following = acts_after([event.event_id for event in events])
    for event in sorted([*events, *following], key=lambda event: event.event_id, reverse=True):
        if event.type == "operator.acted":
            count = _fields(event).get("events")
            act, first = event, event.event_id - (count if isinstance(count, int) else 0)
        elif act is not None and event.event_id >= first:
            found[event.event_id] = act
    return found


def _by(event: Event, act: Event | None) -> Sequence[SentencePart]:
    """Return who acted on behalf of the sentence's subject; nothing where the sentence already names the operator."""
    if act is None or _fields(event).get("operator"):
        return []
    return [SentencePart(", by "), _actor(_fields(act), {})]


@cache
def _things() -> Mapping[str, EntityRef]:
    return {name: thing for app in nexus_apps() for name, thing in app.entity_refs().items()}


def _sentence_parts(event: Event, names: Mapping[str, Mapping[str, str]]) -> Sequence[SentencePart]:
    fields = _fields(event)
    sentence = sentences().get(event.type)
    parts = _fill(sentence.one, fields, names) if sentence else None
    if parts is None:  # an undeclared type, or an event that lacks a field of its sentence
        parts = [_actor(fields, names), SentencePart(f": {_words_of_type(event.type)}")]
    return parts


def _fill(
    sentence: str, fields: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]
) -> list[SentencePart] | None:
    """Return the parts of a sentence; None where a value is missing."""
    parts: list[SentencePart] = []
    for option, name, words in PIECES.findall(sentence):
        if option:
            parts += _fill(option, fields, names) or []
        elif words:
            parts.append(SentencePart(words))
        elif (part := _part(name, fields, names)) is None:
            return None
        else:
            parts.append(part)
    return parts


def _part(name: str, fields: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> SentencePart | None:
    if name == "actor":
        return _actor(fields, names)
    if name == "target":
        return SentencePart(describe(fields["target"], spoken=True), given=True)
    if thing := _things().get(name):
        return _entity_part(thing, fields, names.get(name))
    text = _text(fields.get(name))
    return SentencePart(text, given=True) if text else None


def _actor(fields: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> SentencePart:
    agent_id, operator = fields["actor"], fields.get("operator")
    if agent_id:
        return _entity_part(_things()["agent"], {"agent_id": agent_id}, names.get("agent")) or SentencePart(
            agent_id, given=True
        )
    return SentencePart(f"operator {_text(operator)}", given=True) if operator else SentencePart("the hub")


def _entity_part(thing: EntityRef, fields: Mapping[str, Any], names: Mapping[str, str] | None) -> SentencePart | None:
    """Return a thing's name with a link to it; without a link where the thing is known to be gone."""
    identifier = _id(thing, fields)
    if not identifier:
        return None
    text = (names or {}).get(identifier) or _text(fields.get(thing.name))
    there = names is None or identifier in names
    return SentencePart(text or thing.word, given=bool(text), link=_link(thing, identifier) if there else "")


def _id(thing: EntityRef, fields: Mapping[str, Any]) -> str:
    value = fields.get(thing.key)
    return value if isinstance(value, str) else ""


def _link(thing: EntityRef, identifier: str) -> str:
    try:
        if thing.argument:
            return f"{reverse(f'admin:{thing.page}')}?{urlencode({thing.argument: identifier})}"
        return reverse(f"admin:{thing.page}", args=[identifier])
    except NoReverseMatch:  # not a valid id
        return ""


def _fields(event: Event) -> Mapping[str, Any]:
    payload = event.payload if isinstance(event.payload, dict) else {}
    own = {"actor": event.actor_agent_id, "target": event.target, "workspace_id": event.workspace_id}
    return {"agent_id": event.actor_agent_id, "handoff_id": event.handoff_id, **payload, **own}


def _text(value: Any) -> str:
    """Return a field's value in a few words; empty where it holds nothing."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list):
        more = f" and {len(value) - LISTED} more" if len(value) > LISTED else ""
        return ", ".join(_text(each) for each in value[:LISTED]) + more
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _words_of_type(type: str) -> str:
    """Return a type as words: `toy.was_lent` becomes `toy was lent`."""
    return re.sub(r"[._]+", " ", type)
