"""What narrows a page down, from its address. What is malformed narrows nothing, and the page says so beside it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, ClassVar

from django import forms
from django.http import QueryDict

from coordination.log.streams import streams
from coordination.models import Channel, Workspace
from nexus.control.models import PoolAgent
from nexus.control.rules import Preset
from nexus.control.wording import may_have_children
from nexus.core.apps import event_types
from nexus.dashboard.templatetags.nexus import plain
from nexus.web.forms import NumberField

OFFERED = 200  # workspaces to choose from, those of the newest activity
LONGEST, MOST = 200, 12  # letters, and words, of a search
LANES = {
    "": "All mail",
    "unread": "Unread",
    "delivered": "In flight",
    "read": "Read",
    "parked": "Dead letters",
    "nobody": "Reached nobody",
}
TIMELINES = {"15m": "15 minutes", "1h": "1 hour", "6h": "6 hours", "1d": "1 day", "7d": "7 days", "30d": "30 days"}
YEARS = range(2000, 2101)  # that an address may name
WINDOWS = {"1": "1 hour", "24": "24 hours", "168": "7 days"}


def _choice(**options: object) -> forms.ChoiceField:
    """A choice that sends its form."""
    return forms.ChoiceField(required=False, widget=forms.Select(attrs={"data-submit": True}), **options)  # type: ignore[arg-type]


def _hidden() -> forms.CharField:
    return forms.CharField(required=False, strip=False, widget=forms.HiddenInput)


def _number() -> NumberField:
    return NumberField(required=False, widget=forms.HiddenInput)


def _line(placeholder: str = "", **options: str) -> forms.CharField:
    attrs = {"placeholder": placeholder} if placeholder else {}
    return forms.CharField(required=False, widget=forms.TextInput(attrs=attrs), **options)  # type: ignore[arg-type]


class WordsField(forms.CharField):
    """Words to search for."""

    def to_python(self, value: Any) -> str:
        return searched(super().to_python(value) or "")


def searched(text: str) -> str:
    """As much of a text as is searched for: a store refuses patterns and conditions without end."""
    return " ".join(text.replace("\x00", "")[:LONGEST].split()[:MOST])


def _words(label: str = "Words", placeholder: str = "", **attrs: object) -> forms.CharField:
    widget = forms.TextInput(attrs={"type": "search", **({"placeholder": placeholder} if placeholder else {}), **attrs})
    return WordsField(required=False, label=label, widget=widget)


class Filters(forms.Form):
    """Base of a page's filters, none of them required."""

    preset: ClassVar[Mapping[str, str]] = {}  # what those are set to that an address does not name

    def __init__(self, data: QueryDict) -> None:
        given = data.copy()
        for name, value in self.preset.items():
            given.setdefault(name, value)
        super().__init__(given)

    def text(self, name: str) -> str:
        """What a filter is set to; empty where it is not, or is malformed."""
        self.is_valid()
        return self.cleaned_data.get(name) or ""

    def number(self, name: str) -> int | None:
        """What a filter is set to; None where it is not, or is malformed."""
        self.is_valid()
        return self.cleaned_data.get(name)

    def query(self, *without: str) -> str:
        """The address's query, without the parameters named."""
        assert isinstance(self.data, QueryDict)
        query = self.data.copy()
        for name in without:
            query.pop(name, None)
        return query.urlencode()


class PlaceFilters(Filters):
    """The filter that most pages have: one workspace, or all."""

    workspace = _choice()

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        self.workspaces = list(Workspace.objects.order_by("-last_seen_at")[:OFFERED])
        choices = [("", "All workspaces"), *((row.pk, plain(row)) for row in self.workspaces)]
        _offer(self.fields["workspace"], choices)

    @property
    def place(self) -> Workspace | None:
        """The workspace that was chosen."""
        chosen = self.text("workspace")
        return next((row for row in self.workspaces if row.pk == chosen), None)


def _offer(field: forms.Field, choices: list[Any]) -> None:
    assert isinstance(field, forms.ChoiceField)
    field.choices = choices


class GraphFilters(PlaceFilters):
    hours = _choice(label="Traffic of the last", choices=list(WINDOWS.items()))
    preset = {"hours": "24"}


class MomentField(forms.CharField):
    """A moment as `iso` writes it; without a zone it is UTC."""

    widget = forms.HiddenInput

    def to_python(self, value: object) -> datetime | None:  # type: ignore[override]
        text = super().to_python(value)
        try:
            moment = datetime.fromisoformat(text) if text else None
        except ValueError:
            moment = datetime.min
        if moment is None:
            return None
        if moment.year not in YEARS:
            raise forms.ValidationError("Use a time such as 2026-01-31T12:00:00Z.")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


class TimelineFilters(PlaceFilters):
    agent = _line("all agents", label="Agent")
    window = forms.ChoiceField(required=False, choices=list(TIMELINES.items()), widget=forms.HiddenInput)
    since = MomentField(required=False)
    until = MomentField(required=False)
    span = _hidden()
    step = _number()
    sender = _hidden()
    recipient = _hidden()
    sent_since = MomentField(required=False)
    sent_until = MomentField(required=False)
    preset = {"window": "1h"}

    def moment(self, name: str) -> datetime | None:
        """What a time is set to; None where it is not, or is malformed."""
        self.is_valid()
        return self.cleaned_data.get(name)


class FigureFilters(Filters):
    hours = _choice(label="Of the last", choices=[*WINDOWS.items(), ("720", "30 days")])
    agent = _line(label="Agent", placeholder="all agents")
    preset = {"hours": "24"}


class EventFilters(PlaceFilters):
    type = _choice()
    stream = _choice()
    agent = _line(label="Actor")
    handoff = _line()
    q = _words()
    alive = forms.BooleanField(
        required=False, label="Heartbeats", widget=forms.CheckboxInput(attrs={"data-submit": True})
    )
    before = _number()
    format = _hidden()

    def __init__(self, data: QueryDict, counts: Mapping[str, int] | None = None) -> None:
        """`counts`: how many events there are lately, by type."""
        super().__init__(data)
        _offer(self.fields["stream"], [("", "All streams"), *((name, name) for name in streams())])
        _offer(self.fields["type"], _types(counts or {}, data.get("type", "")))


def _types(counts: Mapping[str, int], chosen: str) -> list[Any]:
    """Every type of event by its prefix, and each prefix for all of its types, with how many there are lately; a type
    that nobody declares is one, too, where an address names it."""
    known = sorted({*event_types(), *counts} | ({chosen} if chosen and not chosen.endswith(".*") else set()))
    groups: list[Any] = [("", "All types")]
    for prefix, named in groupby(known, key=lambda type: type.partition(".")[0]):
        types = list(named)
        whole = [(f"{prefix}.*", _counted(f"{prefix}.*", sum(counts.get(type, 0) for type in types)))]
        groups.append((plain(prefix), whole + [(type, _counted(type, counts.get(type, 0))) for type in types]))
    return groups


def _counted(type: str, count: int) -> str:
    return f"{plain(type)} ({count})" if count else plain(type)


class MailFilters(PlaceFilters):
    channel = _choice()
    agent = _line("sent or received by")
    q = _words(placeholder="subject or body")
    lane = forms.ChoiceField(required=False, choices=list(LANES.items()), widget=forms.HiddenInput)
    before = _hidden()
    m = _hidden()
    alone = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        place = next((row for row in self.workspaces if row.pk == data.get("workspace")), None)
        channels = Channel.objects.filter(workspace=place).order_by("name")[:100] if place else []
        _offer(self.fields["channel"], [("", "All channels"), *((row.pk, plain(row)) for row in channels)])


class ConversationFilters(Filters):
    peer = _hidden()
    tab = _hidden()
    before = _hidden()
    whole = _hidden()


class AgentFilters(Filters):
    q = _words("Id, role or capability")
    page = _number()


class LimitsFilters(Filters):
    role = _hidden()


class RosterFilters(Filters):
    q = _words(placeholder="agent, role or work", **{"aria-label": "Find agents"})


class ArrivalFilters(Filters):
    since = _number()


class FilesFilters(PlaceFilters):
    state = _choice(label="State", choices=[("held", "Held"), ("ended", "Ended")])
    q = _words("Part of a path, a reason or an agent")
    page = _number()
    preset = {"state": "held"}


class TopicsFilters(Filters):
    status = _choice(label="State", choices=[("all", "All"), ("open", "Open"), ("closed", "Closed")])
    q = _words("Name, or words of a message")
    page = _number()
    preset = {"status": "all"}


class TopicFilters(Filters):
    q = _words("Find in this topic")
    at = _number()
    before = _number()
    after = _number()
    answer = _number()
    whole = _number()
    format = _hidden()


class PoolFilters(Filters):
    state = _choice(label="State", choices=[("living", "Living"), ("ended", "Ended")])
    q = _words("Name, runner or directory")
    page = _number()
    preset = {"state": "living"}


class NewPoolAgentFilters(Filters):
    """Below which agent a new one stands; the newest that may have children are offered, and the one that is named."""

    parent = _choice(label="Below")

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        living = PoolAgent.objects.living().order_by("-pool_agent_id")
        trusted = [agent for agent in living.filter(preset=Preset.TRUSTED)[:OFFERED] if _has_room(agent)]
        named = living.filter(agent_id=data.get("parent", "").replace("\x00", ""))
        names = dict.fromkeys(agent.agent_id for agent in [*named, *trusted])
        _offer(self.fields["parent"], [("", "nobody: no parent's ceiling"), *((name, name) for name in names)])


def _has_room(agent: PoolAgent) -> bool:
    return may_have_children(agent.permissions, agent.cwd)


class TranscriptFilters(Filters):
    before = _number()
    after = _number()
    whole = _number()


class CycleFilters(PlaceFilters):
    q = _words("Words of a plan, a decision or a task")
    page = _number()


class SearchFilters(Filters):
    q = _words("Words", size=40, autofocus=True)
