"""What an operator writes to agents, and what one hands over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django import forms

from coordination.models import Agent, Workspace
from coordination.selectors import capabilities
from handoffs.titles import MAX_TITLE
from inbox.models import Message
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.dashboard.forms.filters import OFFERED
from nexus.dashboard.templatetags.nexus import plain
from nexus.web.forms import KnownField, LinesField, OperationForm, name_of

MESSAGE, HANDOFF = ("message", "Message"), ("handoff", "Handoff: exactly one takes it")
STRATEGIES = {"direct": "One agent", "role": "A role", "capability": "A capability", "broadcast": "Everyone"}
CHOSEN = {"direct": ("agent_id", "to"), "role": ("role", "role"), "capability": ("capability", "capability")}


class SpeakForm(OperationForm):
    """A message, or a handoff; an answer belongs to the workspace of what it answers.

    `form` makes one that is sent twice one message; with another text it is another.
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
        """What is wrong with a target is shown where its agent, role or capability is typed."""
        if name in ("target", "path", "agent"):
            return CHOSEN.get(self.data.get("strategy", ""), ("", "strategy"))[1]
        return {"parent_message_id": "reply"}.get(name, name)

    @property
    def client_id(self) -> str | None:
        """By which the operations know what was sent before; None for what came from no form of ours."""
        return name_of(self.cleaned_data) if self.cleaned_data["form"] else None

    def target(self) -> dict[str, str]:
        """The target as the operations take it."""
        strategy = self.cleaned_data["strategy"]
        if strategy not in CHOSEN:
            return {"strategy": strategy}
        key, field = CHOSEN[strategy]
        return {"strategy": strategy, key: self.cleaned_data[field]}
