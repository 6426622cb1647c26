"""Forms for agents, limits and settings, and the filter by workspace that most pages have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from coordination import switcher
from coordination.models import Agent, AgentLimits, LimitScope, Tag, Workspace
from coordination.routing import capability_set, tags_in
from coordination.services import agent_limits
from nexus.core.config import written
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import TOOLSETS, default
from nexus.web.forms import (
    OFFERED,
    PARAMETERS,
    SUGGESTED,
    Filters,
    JSONTextField,
    KnownField,
    NamesField,
    NumberField,
    OperationForm,
    hidden_field,
    words_field,
)
from nexus.web.templatetags.nexus import plain

SHOWN_TAGS = 3  # of the catalog, as examples


def workspace_choices() -> list[tuple[str, str]]:
    """Return the workspaces to choose from, by root."""
    latest = Workspace.objects.order_by("-last_seen_at")[:OFFERED]
    return [("", "–"), *((row.root_realpath, plain(row)) for row in latest)]


def agent_field() -> forms.Field:
    """Return a field for an agent, which suggests those that exist."""
    field = KnownField(label="Agent")
    agents = Agent.objects.exclude(pk=OPERATOR_AGENT).order_by("agent_id").values_list("agent_id", flat=True)
    field.offer("agent_id", agents[:SUGGESTED])
    return field


PARAMETERS["project_root"] = partial(forms.ChoiceField, label="Workspace", choices=workspace_choices)
PARAMETERS["agent_id"] = agent_field


class TagsField(NamesField):
    """Tags as `key=value`, separated by commas; as JSON where one holds a comma."""

    def to_python(self, value: Any) -> Any:
        try:
            if str(value or "").lstrip().startswith("{"):
                return json.loads(value)
            return tags_in(super().to_python(value))
        except (NexusError, ValueError, RecursionError):
            raise ValidationError("Write each tag as key=value, such as team=core.") from None


class ProfileForm(OperationForm):
    """An agent's profile. Fields that the operator did not change are not sent, so that they do not overwrite what the
    agent changes meanwhile."""

    role = forms.CharField(
        required=False, show_hidden_initial=True, widget=forms.TextInput(attrs={"placeholder": "reviewer"})
    )
    capabilities = NamesField(
        required=False,
        show_hidden_initial=True,
        label="Capabilities, separated by commas",
        widget=forms.TextInput(attrs={"placeholder": "python, review"}),
    )
    tags = TagsField(required=False, show_hidden_initial=True)
    toolsets = NamesField(required=False, show_hidden_initial=True)
    metadata = JSONTextField(label="Metadata (JSON)", show_hidden_initial=True)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        known = [
            f"{tag.key}={tag.value}" for tag in Tag.objects.exclude(value="").order_by("key", "value")[:SHOWN_TAGS]
        ]
        self.fields["tags"].label = "Tags, separated by commas; nexus tags makes them"
        self.fields["tags"].widget.attrs["placeholder"] = ", ".join(known)
        field = self.fields["toolsets"]
        field.label = f"Toolsets, separated by commas; of {', '.join(TOOLSETS)}, or all"
        field.widget.attrs["placeholder"] = ", ".join(each.name for each in default())

    def profile(self) -> dict[str, Any]:
        """Return the profile as the operations take it; an empty role is None."""
        return {**self.cleaned_data, "role": self.cleaned_data["role"] or None}

    def arguments(self) -> dict[str, Any]:
        """Return the fields that were changed."""
        return {name: value for name, value in self.profile().items() if name in self.changed_data}


class NewAgentForm(ProfileForm):
    agent_id = forms.CharField(
        label="Agent id", widget=forms.TextInput(attrs={"autofocus": True, "placeholder": "reviewer-1"})
    )
    field_order = ("agent_id",)

    def arguments(self) -> dict[str, Any]:
        return self.profile()


def profile_of(agent: Agent) -> dict[str, str]:
    """Return an agent's profile as `ProfileForm` shows it."""
    return {
        "role": agent.role or "",
        "capabilities": ", ".join(sorted(capability_set(agent.capabilities))),
        "tags": _written(agent.tags or {}),
        "toolsets": ", ".join(agent.toolsets or ()),
        "metadata": "" if agent.metadata is None else json.dumps(agent.metadata, ensure_ascii=False),
    }


def _written(tags: Mapping[str, Sequence[str]]) -> str:
    words = [f"{key}={value}" for key, values in tags.items() for value in values]
    has_commas = any("," in word for word in words) or any("=" in key for key in tags)
    return json.dumps(tags, ensure_ascii=False) if has_commas else ", ".join(words)


class LimitsForm(OperationForm):
    """The limits of an agent or of a role; an empty field shows the value that applies then.

    Fields that the operator did not change are not sent, so that they do not overwrite what others change meanwhile.
    """

    def __init__(self, *arguments: Any, role: str | None = None, **options: Any) -> None:
        """`role` is the role of the agent whose limits these are."""
        super().__init__(*arguments, **options)
        below = limits_of(LimitScope.ROLE, role) if role is not None else {}
        for name in agent_limits.names():
            holds = str(below.get(name, agent_limits.for_all(name)) or "no limit")
            widget = forms.TextInput(attrs={"inputmode": "numeric", "placeholder": holds})
            self.fields[name] = NumberField(
                required=False,
                show_hidden_initial=True,
                label=TITLES.get(name, name),
                widget=widget,
                help_text="Empty: the limit in grey. 0: no limit.",
            )
        for name, label in LISTS.items():
            widget = forms.TextInput(attrs={"placeholder": below.get(name, "")})
            self.fields[name] = NamesField(required=False, show_hidden_initial=True, label=label, widget=widget)

    def arguments(self) -> dict[str, Any]:
        """Return the changed limits as the operation takes them; an empty list is None."""
        changed = self.changed()
        return {
            "limits": {name: self.cleaned_data[name] for name in agent_limits.names() if name in changed},
            **{name: self.cleaned_data[name] or None for name in LISTS if name in changed},
        }

    def changed(self) -> set[str]:
        """Return the names of the changed fields."""
        return set(self.changed_data)

    def field_of(self, name: str) -> str:
        """Return the form field of a parameter: each limit has its own."""
        return name.removeprefix("limits.")


class RoleLimitsForm(LimitsForm):
    """`LimitsForm` with a field for the role."""

    role = KnownField()
    field_order = ("role",)

    def __init__(self, *arguments: Any, known: Iterable[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        role = self.fields["role"]
        assert isinstance(role, KnownField)
        role.required, role.show_hidden_initial = True, True
        role.offer("role", known)

    def arguments(self) -> dict[str, Any]:
        return {"role": self.cleaned_data["role"], **super().arguments()}

    def changed(self) -> set[str]:
        """Return the names of the changed fields; of a role other than the one shown, all fields that are filled in."""
        filled = {name for name, value in self.cleaned_data.items() if value not in (None, [])}
        return super().changed() | (filled if "role" in self.changed_data else set())


TITLES = {
    "messages_per_minute": "Messages a minute",
    "open_handoffs": "Handoffs that wait to be taken",
    "recipients": "Recipients of a message",
    "unread": "Unread messages that its inbox takes",
}
LISTS = {
    "allowed": "Toolsets and verbs that it may use, separated by commas; empty: all",
    "refused": "Toolsets and verbs that it may not use",
}


def limits_of(scope: LimitScope, name: str) -> dict[str, Any]:
    """Return the stored limits of an agent or a role as `LimitsForm` shows them."""
    row = AgentLimits.objects.filter(scope=scope, name=name).first()
    if row is None:
        return {}
    return {**row.values, "allowed": ", ".join(row.allowed or ()), "refused": ", ".join(row.refused or ())}


class SettingField(forms.CharField):
    """The field of one setting, with its type. The operation checks the bounds; the browser gets them as attributes."""

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self.kind = type(setting["default"])
        described = {"aria-describedby": f"about-{setting['name']}"}
        choices = setting["choices"] or (["true", "false"] if self.kind is bool else None)
        if choices:
            widget: forms.Widget = forms.Select(attrs=described, choices=[(choice, choice) for choice in choices])
        elif self.kind is str:
            widget = forms.TextInput(attrs=described)
        else:
            bounds = {name[:3]: setting[name] for name in ("minimum", "maximum") if setting[name] is not None}
            widget = forms.NumberInput(attrs={**described, **bounds, "step": 1, "required": True})
        shown = written(setting["value"])
        super().__init__(required=False, widget=widget, initial=shown, show_hidden_initial=True, label=setting["name"])

    def clean(self, value: Any) -> Any:
        if value is None:  # not in the posted data
            return None
        text = super().clean(value)
        if self.kind is bool:
            return text == "true"
        if self.kind is int:
            if not re.fullmatch("[+-]?[0-9]{1,18}", text):
                raise ValidationError("Use a whole number.")
            return int(text)
        return text


class SettingsForm(OperationForm):
    """The settings that can be changed here; `default` names one to reset. Fields that the operator did not change are
    not sent, so that they do not overwrite what others change meanwhile."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, auto_id="set-%s")
        for setting in rows:
            if not setting["pinned"] and setting["applies"] == "at once":
                self.fields[setting["name"]] = SettingField(setting)

    def changes(self) -> dict[str, Any]:
        """Return the changed values by name, as the operation takes them: null resets to the default."""
        if "default" in self.data:
            return {self.data["default"]: None}
        return {name: self.cleaned_data[name] for name in self.changed_data if name in self.data}


class SettingsFilters(Filters):
    """Which settings the page shows."""

    q = words_field("Find", "retention, lease, …")
    changed = forms.BooleanField(required=False, label="Only those that differ from the default")
    group = hidden_field()


WINDOWS = {"1": "1 hour", "24": "24 hours", "168": "7 days"}


class WorkspaceField(forms.CharField):
    """The id of a workspace; the value is the workspace."""

    def __init__(self) -> None:
        super().__init__(required=False, widget=forms.HiddenInput)

    def clean(self, value: Any) -> Workspace | None:
        workspace_id = super().clean(value)
        workspace = switcher.find_workspace(workspace_id)
        if workspace_id and workspace is None:
            raise ValidationError("There is no such workspace. Choose one in the header.")
        return workspace


class WorkspaceFilters(Filters):
    """The filter that most pages have: one workspace, or all. It is chosen in the header (`coordination.switcher`)."""

    workspace = WorkspaceField()

    @property
    def chosen_workspace(self) -> Workspace | None:
        """The chosen workspace."""
        self.is_valid()
        return self.cleaned_data.get("workspace")
