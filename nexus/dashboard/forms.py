"""Forms and filters of the pages that span apps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from django import forms

from coordination.forms import WINDOWS, WorkspaceFilters
from coordination.models import Agent, Workspace
from coordination.selectors import capabilities
from handoffs.models import MAX_TITLE
from inbox.models import Message
from nexus.core.contributions import Action
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.registry import TOOLSETS
from nexus.web.forms import (
    OFFERED,
    Filters,
    KnownField,
    LinesField,
    MomentField,
    OperationForm,
    ParametersForm,
    choice_field,
    hidden_field,
    line_field,
    name_of,
    number_field,
    words_field,
)
from nexus.web.templatetags.nexus import plain

TIMELINES = {"15m": "15 minutes", "1h": "1 hour", "6h": "6 hours", "1d": "1 day", "7d": "7 days", "30d": "30 days"}


class GraphFilters(WorkspaceFilters):
    hours = choice_field(label="Traffic of the last", choices=list(WINDOWS.items()))
    preset = {"hours": "24"}


class TimelineFilters(WorkspaceFilters):
    agent = line_field("all agents", label="Agent")
    window = forms.ChoiceField(required=False, choices=list(TIMELINES.items()), widget=forms.HiddenInput)
    since = MomentField(required=False)
    until = MomentField(required=False)
    span = hidden_field()
    step = number_field()
    sender = hidden_field()
    recipient = hidden_field()
    sent_since = MomentField(required=False)
    sent_until = MomentField(required=False)
    preset = {"window": "1h"}

    def moment(self, name: str) -> datetime | None:
        """Return the time in a field; None if it is missing or malformed."""
        self.is_valid()
        return self.cleaned_data.get(name)


class RosterFilters(WorkspaceFilters):
    q = words_field(placeholder="agent, role or work", **{"aria-label": "Find agents"})


class SearchFilters(Filters):
    q = words_field("Words", size=40, autofocus=True)


class ActForm(ParametersForm):
    """A field for each parameter that the action asks for, and for the one that may be changed of a single thing."""

    def __init__(self, action: Action, data: Any, chosen: Sequence[str]) -> None:
        params = TOOLSETS[action.toolset].operations[action.operation].params
        super().__init__(params, data, only=action.asks)
        for name, field in self.fields.items():
            field.label, field.help_text, field.required = action.asks[name], "", name in action.needed
        if action.edits and len(chosen) == 1:
            name, label, value = action.edits
            self.fields[name] = LinesField(label=label, required=False, initial=value(chosen[0]))

    def arguments(self) -> dict[str, Any]:
        """Return the parameters; what is false was chosen."""
        return {name: value for name, value in self.cleaned_data.items() if value is False or value}

    def field_of(self, name: str) -> str:
        return name if name in self.fields else f"{name}_id"  # the error for an unknown agent names it without `_id`


MESSAGE, HANDOFF = ("message", "Message"), ("handoff", "Handoff: exactly one takes it")
STRATEGIES = {"direct": "One agent", "role": "A role", "capability": "A capability", "broadcast": "Everyone"}
CHOSEN = {"direct": ("agent_id", "to"), "role": ("role", "role"), "capability": ("capability", "capability")}


class SpeakForm(OperationForm):
    """A message, or a handoff; an answer belongs to the workspace of what it answers.

    `form` identifies the form: submitting it twice sends one message; with another text it sends another.
    """

    what = forms.ChoiceField(choices=[MESSAGE, HANDOFF], widget=forms.RadioSelect, initial="message")
    workspace = forms.ChoiceField(error_messages={"required": "Choose a workspace: a message belongs to one."})
    strategy = forms.ChoiceField(
        choices=list(STRATEGIES.items()), widget=forms.RadioSelect, initial="direct", label="To"
    )
    to = KnownField(label="Agent")
    role = KnownField()
    capability = KnownField()
    subject = forms.CharField(required=False, strip=False)
    body = LinesField(required=False, label="Message (Markdown)")
    title = forms.CharField(
        required=False, max_length=MAX_TITLE, label="Title (without one: the first line of the work)"
    )
    payload = LinesField(required=False, label="The work")
    visibility = forms.ChoiceField(
        label="Who sees it",
        required=False,
        choices=[
            ("public", "everyone in the workspace"),
            ("eligible", "those who may take it"),
            ("private", "private"),
        ],
    )
    reply = forms.CharField(required=False, widget=forms.HiddenInput)
    form = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Mapping[str, Any] | None = None, *, initial: Mapping[str, str] | None = None) -> None:
        given = data or initial or {}
        self.answered = (
            Message.objects.select_related("workspace").filter(pk=given["reply"]).first()
            if given.get("reply")
            else None
        )
        super().__init__(data, initial={**self._answering(), **(initial or {}), "form": uuid4().hex})
        workspaces = {row.pk: row for row in Workspace.objects.order_by("-last_seen_at")[:OFFERED]}
        if self.answered is not None:
            workspaces[self.answered.workspace_id] = self.answered.workspace
            self._choices("what", [MESSAGE])
            self.fields["body"].widget.attrs["autofocus"] = True
        self.workspaces = workspaces
        self._choices("workspace", [(key, plain(row)) for key, row in workspaces.items()])
        agents = Agent.objects.exclude(pk=OPERATOR_AGENT).order_by("agent_id").values_list("agent_id", "role")
        self._offer("to", [agent_id for agent_id, _ in agents])
        self._offer("role", sorted({role for _, role in agents if role}))
        self._offer("capability", list(capabilities()))

    def _answering(self) -> dict[str, str]:
        message = self.answered
        if message is None:
            return {}
        subject = message.subject if message.subject.startswith("Re: ") else f"Re: {message.subject}"
        return {"to": message.from_agent_id, "workspace": message.workspace_id, "subject": subject}

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def _offer(self, name: str, known: list[str]) -> None:
        field = self.fields[name]
        assert isinstance(field, KnownField)
        field.offer(name, known)

    def clean(self) -> None:
        if self.cleaned_data.get("what") == "handoff" and not self.cleaned_data.get("payload", "").strip():
            self.add_error("payload", "Say what the work is: whoever takes it reads this.")
        _, field = CHOSEN.get(self.cleaned_data.get("strategy", ""), ("", ""))
        if field and not self.cleaned_data.get(field, "").strip():
            self.add_error(field, "Say who it is for.")

    def field_of(self, name: str) -> str:
        """Return the field for an error about a target: the one where its agent, role or capability is typed."""
        if name in ("target", "path", "agent"):
            return CHOSEN.get(self.data.get("strategy", ""), ("", "strategy"))[1]
        return {"parent_message_id": "reply"}.get(name, name)

    @property
    def client_id(self) -> str | None:
        """The id by which the operations recognize a repeated submission; None for requests that came from no form of
        ours."""
        return name_of(self.cleaned_data) if self.cleaned_data["form"] else None

    def target(self) -> dict[str, str]:
        """Return the target as the operations take it."""
        strategy = self.cleaned_data["strategy"]
        if strategy not in CHOSEN:
            return {"strategy": strategy}
        key, field = CHOSEN[strategy]
        return {"strategy": strategy, key: self.cleaned_data[field]}
