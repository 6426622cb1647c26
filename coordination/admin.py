"""The admin's records of workspaces, sessions, channels, artifacts and events, and operators' accounts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import path
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from coordination.forms import TITLES, RoleLimitsForm, limits_of
from coordination.log.emit import streams
from coordination.log.selectors import newest_event_id
from coordination.log.sentences import lines, quiet_types
from coordination.models import (
    AgentLimits,
    Artifact,
    Channel,
    Event,
    LimitScope,
    Session,
    SessionStatus,
    Workspace,
)
from coordination.routing import Target, describe
from coordination.rows import EventRow, event_row
from coordination.selectors import roles
from coordination.services import operators
from nexus.core.apps import event_types
from nexus.core.operations.caller import LOCAL_OPERATOR
from nexus.core.operations.parameters import whole_number
from nexus.core.operations.registry import Operation
from nexus.web import records
from nexus.web.forms import OFFERED, OperationForm, searched
from nexus.web.page import posted
from nexus.web.records import NONE, OperationAdmin, code, column, link, moment
from nexus.web.templatetags.nexus import plain, readable

ACT = "operator.acted"
NO_EVENT = '"events": 0'  # in the payload of an act that no other event tells; PostgreSQL has it as text, too
LOOKED_AT = 100_000  # ids that a page looks through for an agent or a type, which have no index


def audience(target: Target | None) -> SafeString:
    """Return a target in words."""
    return records.text(describe(target))


@admin.register(Workspace)
class WorkspaceAdmin(OperationAdmin):
    list_display = ("title", "root", "created", "seen", "open_mail", "open_events", "open_graph", "open_plan")
    search_fields = ("display_name", "root_realpath", "workspace_id")
    ordering = ("-last_seen_at",)
    fields = (
        "workspace_id",
        "title",
        "root",
        "created",
        "seen",
        "sessions",
        "channels",
        "artifacts",
        "handoffs",
        "open_mail",
        "open_events",
        "open_graph",
        "open_plan",
    )
    readonly_fields = fields

    title = column("Workspace", lambda row: records.text(str(row)), ordering="display_name")
    root = column("Directory", lambda row: records.text(row.root_realpath), ordering="root_realpath")
    created = column("Created", lambda row: moment(row.created_at), ordering="created_at")
    seen = column("Last seen", lambda row: moment(row.last_seen_at), ordering="last_seen_at")
    open_mail = column("Mail", lambda row: link("inbox_message_changelist", "Mail", workspace=row.pk))
    open_events = column("Events", lambda row: link("coordination_event_changelist", "Events", workspace=row.pk))
    open_graph = column("Graph", lambda row: link("graph", "Graph", workspace=row.pk))
    open_plan = column("Plan", lambda row: link("plan", "Plan", workspace=row.pk))

    sessions = column(
        "Sessions", lambda row: link("coordination_session_changelist", "Sessions here", workspace=row.pk)
    )
    channels = column(
        "Channels", lambda row: link("coordination_channel_changelist", "Channels here", workspace=row.pk)
    )
    artifacts = column(
        "Artifacts", lambda row: link("coordination_artifact_changelist", "Artifacts here", workspace=row.pk)
    )
    handoffs = column("Handoffs", lambda row: link("board", "Handoffs here", workspace=row.pk))


class WorkspaceFilter(admin.SimpleListFilter):
    """Filter by workspace; offers those that were seen last."""

    title, parameter_name = "workspace", "workspace"  # which a choice in the header sets

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(row.pk, plain(row)) for row in Workspace.objects.order_by("-last_seen_at")[:OFFERED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(workspace=self.value()) if self.value() else queryset


def text_filter(title: str, parameter: str, column: str) -> type[TextFilter]:
    """Return a filter by a typed value of a column; `parameter` is its name in an address."""

    class Typed(TextFilter):  # type: ignore[misc]  # the theme ships no types
        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{column: self.value()}) if self.value() else queryset

    Typed.title, Typed.parameter_name = title, parameter
    return Typed


class InWorkspace(OperationAdmin):
    """Base of the records that belong to a workspace."""

    list_select_related: tuple[str, ...] = ("workspace",)
    list_filter: tuple[Any, ...] = (WorkspaceFilter,)

    workspace_link = column(
        "Workspace", lambda row: link("coordination_workspace_change", row.workspace, row.workspace_id)
    )
    created = column("Created", lambda row: moment(row.created_at), ordering="created_at")

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return lookup == "agent__agent_id__exact" or super().lookup_allowed(lookup, value, request)


@admin.register(Session)
class SessionAdmin(InWorkspace):
    list_display = ("session_id", "who", "workspace_link", "status", "started", "heard", "closed")
    operations = ("session_close",)
    list_filter = ("status", WorkspaceFilter)
    search_fields = ("session_id", "agent__agent_id")
    ordering = ("-session_id",)
    fields = ("session_id", "who", "workspace_link", "status", "started", "heard", "closed", "about", "what")
    readonly_fields = fields

    def operations_on(self, row: Session) -> Sequence[str]:
        return self.operations if row.status == SessionStatus.ACTIVE else ()

    who = column("Agent", lambda row: link("agent", row.agent_id, row.agent_id))
    started = column("Started", lambda row: moment(row.started_at), ordering="session_id")
    heard = column("Last heartbeat", lambda row: moment(row.last_heartbeat_at))
    closed = column("Closed", lambda row: moment(row.closed_at))
    about = column("Metadata", lambda row: readable(row.metadata))
    what = column(
        "Events",
        lambda row: link(
            "coordination_event_changelist",
            "Events of this agent here",
            agent=row.agent_id,
            workspace=row.workspace_id,
        ),
    )


@admin.register(Channel)
class ChannelAdmin(InWorkspace):
    intro = "Labels that agents give to their messages. A channel changes neither who gets a message nor who sees it."
    list_display = ("title", "workspace_link", "created", "open_mail")
    search_fields = ("name",)
    ordering = ("-channel_id",)
    fields = ("channel_id", "title", "workspace_link", "created", "open_mail")
    readonly_fields = fields

    title = column("Channel", lambda row: records.text(row.name))
    open_mail = column(
        "Mail",
        lambda row: link("inbox_message_changelist", "Mail in it", workspace=row.workspace_id, channel=row.pk),
    )


@admin.register(Artifact)
class ArtifactAdmin(InWorkspace):
    list_display = ("title", "artifact_type", "workspace_link", "size_bytes", "created")
    list_filter = ("artifact_type", WorkspaceFilter)
    search_fields = ("artifact_id", "name")
    ordering = ("-artifact_id",)
    fields = (
        "artifact_id",
        "title",
        "artifact_type",
        "workspace_link",
        "size_bytes",
        "content_type",
        "created",
        "about",
        "where",
        "preview",
        "cited",
    )
    readonly_fields = fields

    def get_urls(self) -> list[Any]:
        """Add the download to the admin's own pages."""
        download = path(
            "<path:object_id>/download/", self.admin_site.admin_view(self.download), name="artifact_download"
        )
        return [download, *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.defer("content") if request.path.endswith("/artifact/") else rows

    def download(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return inline content as a file. A path artifact has none: this page never serves a file's bytes."""
        row = get_object_or_404(Artifact, pk=object_id, content__isnull=False)
        suffix = {"json": "json", "markdown": "md"}.get(row.artifact_type, "txt")
        response = HttpResponse(row.content, content_type="application/octet-stream")
        response.headers["Content-Disposition"] = f'attachment; filename="{row.artifact_id}.{suffix}"'
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    title = column("Artifact", lambda row: records.text(str(row)))
    about = column("Metadata", lambda row: readable(row.metadata))

    @admin.display(description="Where")
    def where(self, row: Artifact) -> str:
        if row.content is None:
            return records.text(row.path)
        return link("artifact_download", "Download", row.pk)

    @admin.display(description="Preview")
    def preview(self, row: Artifact) -> str:
        if row.content is None:
            return "The file is in the workspace; its bytes are not shown here."
        if row.artifact_type == "markdown":
            return records.body(row.content)
        return code(json.loads(row.content) if row.artifact_type == "json" else row.content)

    cited = column("Cited in", lambda row: link("find", "Search for it", q=row.pk))


class StreamFilter(admin.SimpleListFilter):
    """Filter by stream. The apps declare the streams; the store is not queried."""

    title, parameter_name = "stream", "stream"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in streams()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        return queryset.filter(stream=self.value()) if self.value() else queryset


class TypeFilter(DropdownFilter):  # type: ignore[misc]  # the theme ships no types
    """Filter by a type of event, or by all types of a prefix, `handoff.*`."""

    title, parameter_name = "type", "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        known = sorted({*event_types(), *filter(None, [request.GET.get("type")])})
        whole = (f"{prefix}.*" for prefix in dict.fromkeys(type.partition(".")[0] for type in known))
        return [(type, plain(type)) for type in sorted({*whole, *known})]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        chosen = self.value() or ""
        if chosen.endswith(".*"):
            return queryset.filter(type__startswith=chosen.removesuffix("*"))
        return queryset.filter(type=chosen) if chosen else queryset


class HeartbeatFilter(admin.SimpleListFilter):
    """Show signs of life, too, and the acts of operators that other events tell; otherwise only by their type."""

    title, parameter_name = "heartbeats", "alive"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("on", "Shown")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        hidden, shown = super().choices(changelist)
        yield from ({**hidden, "display": "Hidden"}, shown)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        if self.value() or request.GET.get("type") in (*quiet_types(), ACT):
            return queryset
        shown = queryset.exclude(type__in=quiet_types()).alias(written=Cast("payload", TextField()))
        return shown.exclude(Q(type=ACT) & ~Q(written__contains=NO_EVENT))


@admin.register(Event)
class EventAdmin(InWorkspace):
    """The event log. Agents and types have no index: their lists look through LOOKED_AT ids, and lead on."""

    intro = "All that happened, newest first. Heartbeats, and what an operator did that other events tell, are hidden."
    list_display_links = None  # the sentence has links
    list_display = ("number", "sentence", "kind", "workspace_link", "created_plain")
    list_filter = (
        *(TypeFilter, StreamFilter, WorkspaceFilter, HeartbeatFilter),
        *(text_filter("actor", "agent", "actor_agent_id"), text_filter("handoff", "handoff", "handoff_id")),
        text_filter("trace", "trace", "trace_id"),
    )
    list_filter_submit = True
    search_fields = ("event_id__exact",)  # that there are any shows the field
    search_help_text = "Words, or an event's id"
    ordering = ("-event_id",)
    sortable_by = ()
    rare = ("who", "audience")
    fields = (
        *("number", "sentence", "kind", "stream", "who", "workspace_link", "created_plain"),
        *("visibility", "audience", "content"),
    )
    readonly_fields = fields

    exports = tuple(EventRow.__annotations__)

    find_by_words: Callable[[str], Sequence[int]] = staticmethod(lambda words: ())  # the app that has the index sets it

    def get_queryset(self, request: HttpRequest) -> QuerySet[Event]:
        rows: QuerySet[Event] = super().get_queryset(request)
        oldest = self._looks_to(request)
        return rows if oldest is None else rows.filter(event_id__gte=oldest)

    def _looks_to(self, request: HttpRequest) -> int | None:
        """Return the oldest id that a list may show; None for all, and for files."""
        given = {name: value for name, value in request.GET.items() if value}
        is_indexed = not {"agent", "type"} & given.keys() or {"q", "handoff", "trace"} & given.keys()
        if is_indexed or getattr(request, "exports", False):
            return None
        newest = newest_event_id() + 1
        return min(whole_number(given.get("event_id__lt")) or newest, newest) - LOOKED_AT

    def older(self, request: HttpRequest, rows: Sequence[Event], *, is_full: bool) -> Any:
        oldest = None if is_full else self._looks_to(request)
        if oldest is not None and Event.objects.filter(event_id__lt=oldest).exists():
            return oldest
        return super().older(request, rows, is_full=is_full)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = searched(search_term)
        number = whole_number(term)
        if number is None and term:
            return queryset.filter(pk__in=self.find_by_words(term)), False
        return queryset if number is None else queryset.filter(pk=number), False

    def exported(self, row: Event, columns: Sequence[str]) -> dict[str, Any]:
        return {**event_row(row)}

    def completed(self, rows: list[Event]) -> list[Event]:
        for line in lines(rows):
            line.event.parts = line.parts  # type: ignore[attr-defined]  # for the cell
        return rows

    sentence = column("What happened", lambda row: render_to_string("coordination/told.html", {"parts": row.parts}))
    number = column("Event", lambda row: link("coordination_event_change", str(row.event_id), str(row.event_id)))
    kind = column("Type", lambda row: link("coordination_event_changelist", row.type, type=row.type))
    who = column("Actor", lambda row: link("agent", row.actor_agent_id, row.actor_agent_id or ""))
    created_plain = column("When", lambda row: moment(row.created_at))
    audience = column("For", lambda row: audience(row.target) if row.visibility else NONE)
    content = column("Payload", lambda row: readable(row.payload))


def limits_in_words(row: AgentLimits) -> str:
    """Return the limits of an agent or a role, without the lists of what it may use."""
    return ", ".join(f"{TITLES.get(name, name)}: {value or 'no limit'}" for name, value in row.values.items()) or "–"


@admin.register(AgentLimits)
class AgentLimitsAdmin(OperationAdmin):
    intro = (
        "What is set for an agent goes over what is set for its role, and that over what holds for all: the settings "
        "of that name. 0 is no limit. Each change is in the event log."
    )
    list_display = ("whose", "limits", "may_use", "may_not_use", "change")
    list_filter = ("scope",)
    search_fields = ("name",)
    ordering = ("-scope", "name")
    sortable_by = ()
    operations = ("limits_update",)
    creates = "limits_update"
    fields = ("whose", "limits", "may_use", "may_not_use", "updated", "updated_by", "change")
    readonly_fields = fields

    def subject(self, row: AgentLimits) -> str:
        return f"{row.scope} {row.name}"

    def form_to_add(self, request: HttpRequest, operation: Operation[Any]) -> OperationForm:
        """Return the form of a role's limits, which `?role=` fills with the stored ones."""
        role = request.GET.get("role", "")
        initial = {"role": role, **limits_of(LimitScope.ROLE, role)}
        return RoleLimitsForm(posted(request), initial=initial, known=list(roles()))

    whose = column("Of", lambda row: records.text(f"{row.scope} {row.name}"))

    limits = column("Limits", limits_in_words)
    may_use = column("May use", lambda row: plain(", ".join(row.allowed or ())) or "–")
    may_not_use = column("May not use", lambda row: plain(", ".join(row.refused or ())) or "–")
    updated = column("Changed", lambda row: moment(row.updated_at))

    @admin.display(description="Change")
    def change(self, row: AgentLimits) -> str:
        if row.scope == LimitScope.AGENT:
            return link("act", "Change", do="limits_update:agent", on=row.name, next=self._list())
        return link("coordination_agentlimits_add", "Change", role=row.name)


# The names of Django's accounts on the pages. Set here, so that migrations, which read the declarations, do not see it.
User._meta.app_config.verbose_name = "Hub"
User._meta.verbose_name, User._meta.verbose_name_plural = "operator", "operators"

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class OperatorAdmin(UserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]  # the theme ships no types
    """Operators' accounts. An operator may do everything; a viewer, who has no right to act, sees everything."""

    form = UserChangeForm
    add_form = UserCreationForm
    add_form_template = None  # Django's mentions options that this form does not have
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "is_active", "is_staff", "may_act", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("username",)
    filter_horizontal = ()
    fieldsets = ((None, {"fields": ("username", "password", "is_active", "is_staff", "is_superuser", "last_login")}),)
    add_fieldsets = ((None, {"fields": ("username", "password1", "password2")}),)
    readonly_fields = ("last_login",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Leave out the account of local requests: nobody can log in to it."""
        return super().get_queryset(request).exclude(username=LOCAL_OPERATOR)

    @admin.display(description="May act", boolean=True, ordering="is_superuser")
    def may_act(self, row: User) -> bool:
        return row.is_superuser

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **how: Any) -> Any:
        """Say in our words what a superuser is."""
        if db_field.name == "is_superuser":
            how |= {"label": "May act", "help_text": "Without it, the account is a viewer's: it sees everything."}
        return super().formfield_for_dbfield(db_field, request, **how)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if not change:
            obj.is_staff = obj.is_superuser = True
        super().save_model(request, obj, form, change)
        operators.set_group(obj)
