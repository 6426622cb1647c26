"""The admin's records of workspaces, sessions, channels, artifacts and events, and operators' accounts."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import path
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from coordination.forms import TITLES, RoleLimitsForm, limits_of
from coordination.log.emit import streams
from coordination.log.sentences import lines
from coordination.models import AgentLimits, Artifact, Channel, Event, LimitScope, Session, Workspace
from coordination.routing import Target, describe
from coordination.selectors import roles
from coordination.services import operators
from nexus.core.operations.caller import LOCAL_OPERATOR
from nexus.core.operations.registry import Operation
from nexus.web import records
from nexus.web.forms import OFFERED, OperationForm
from nexus.web.page import posted
from nexus.web.records import OperationAdmin, code, column, link, moment
from nexus.web.templatetags.nexus import plain, readable


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
    open_mail = column("Mail", lambda row: link("mail", "Mail", workspace=row.pk))
    open_events = column("Events", lambda row: link("events", "Events", workspace=row.pk))
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
    list_filter = ("status", WorkspaceFilter)
    search_fields = ("session_id", "agent__agent_id")
    ordering = ("-session_id",)
    fields = ("session_id", "who", "workspace_link", "status", "started", "heard", "closed", "about", "what")
    readonly_fields = fields

    who = column("Agent", lambda row: link("agent", row.agent_id, row.agent_id))
    started = column("Started", lambda row: moment(row.started_at), ordering="session_id")
    heard = column("Last heartbeat", lambda row: moment(row.last_heartbeat_at))
    closed = column("Closed", lambda row: moment(row.closed_at))
    about = column("Metadata", lambda row: readable(row.metadata))
    what = column(
        "Events",
        lambda row: link("events", "Events of this agent here", agent=row.agent_id, workspace=row.workspace_id),
    )


@admin.register(Channel)
class ChannelAdmin(InWorkspace):
    list_display = ("title", "workspace_link", "created", "open_mail")
    search_fields = ("name",)
    ordering = ("-channel_id",)
    fields = ("channel_id", "title", "workspace_link", "created", "open_mail")
    readonly_fields = fields

    title = column("Channel", lambda row: records.text(row.name))
    open_mail = column("Mail", lambda row: link("mail", "Mail in it", workspace=row.workspace_id, channel=row.pk))


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


@admin.register(Event)
class EventAdmin(InWorkspace):
    """The event log as a table; the Events page follows it live."""

    list_display_links = None  # the list shows all of it
    list_display = ("number", "sentence", "kind", "workspace_link", "created_plain")
    list_filter = (StreamFilter, WorkspaceFilter)
    search_fields = ("event_id__exact",)
    search_help_text = "An event id; the Search page finds words"
    ordering = ("-event_id",)
    sortable_by = ("number",)
    fields = (
        "number",
        "sentence",
        "kind",
        "stream",
        "who",
        "workspace_link",
        "created_plain",
        "visibility",
        "audience",
        "handoff",
        "content",
    )
    readonly_fields = fields

    def completed(self, rows: list[Event]) -> list[Event]:
        for line in lines(rows):
            line.event.parts = line.parts  # type: ignore[attr-defined]  # for the cell
        return rows

    sentence = column("What happened", lambda row: render_to_string("coordination/sentence.html", {"parts": row.parts}))
    number = column("Event", lambda row: link("event", row.event_id, str(row.event_id)), ordering="event_id")
    kind = column("Type", lambda row: records.text(row.type))
    who = column("Actor", lambda row: link("agent", row.actor_agent_id, row.actor_agent_id or ""))
    created_plain = column("When", lambda row: moment(row.created_at))
    audience = column("For", lambda row: audience(row.target) if row.visibility else "–")
    handoff = column("Handoff", lambda row: link("handoff", row.handoff_id, row.handoff_id or ""))
    content = column("Payload", lambda row: readable(row.payload))


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

    @admin.display(description="Limits")
    def limits(self, row: AgentLimits) -> str:
        return (
            ", ".join(f"{TITLES.get(name, name)}: {value or 'no limit'}" for name, value in row.values.items()) or "–"
        )

    may_use = column("May use", lambda row: plain(", ".join(row.allowed or ())) or "–")
    may_not_use = column("May not use", lambda row: plain(", ".join(row.refused or ())) or "–")
    updated = column("Changed", lambda row: moment(row.updated_at))

    @admin.display(description="Change")
    def change(self, row: AgentLimits) -> str:
        if row.scope == LimitScope.AGENT:
            return link("agent", "On its page", row.name)
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
