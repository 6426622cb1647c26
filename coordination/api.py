"""REST resources of this app, and what all REST resources of the bus share."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from django.urls import path
from django.utils.functional import cached_property
from django_filters import IsoDateTimeFilter
from django_filters.rest_framework import ChoiceFilter
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from typing_extensions import TypedDict

from coordination import selectors
from coordination.errors import CoordinationCode
from coordination.ids import id_floor
from coordination.log import selectors as log
from coordination.log.consumers import stream
from coordination.log.emit import streams
from coordination.models import Agent, Artifact, Channel, Event, Session, Workspace
from coordination.operations.agents import CapabilityRow
from coordination.rows import (
    AgentProfile,
    ArtifactRow,
    ChannelRow,
    EventRow,
    SessionRow,
    WorkspaceRow,
    agent_profile,
    artifact_row,
    channel_row,
    event_row,
    session_row,
    workspace_row,
)
from coordination.services.sessions import derived_status
from coordination.toolset import COORDINATION
from nexus.core.clock import iso, now
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Time
from nexus.core.rest import schema, viewsets
from nexus.core.rest.pagination import page_of, page_size

# a row has its id at most this long after its `created_at`, even if its writer waited
WRITTEN_WITHIN = timedelta(hours=1)
IN_WORKSPACE = OpenApiParameter("workspace", str, description="The workspace_id to look from; needed with a key.")


def answer_of(name: str) -> dict[str, Any]:
    """Return the schema of an operation's answer."""
    return schema.answer_of(COORDINATION.find(name))


def body_of(name: str, *in_path: str) -> dict[str, Any]:
    """Return the schema of an operation's request body, without the parameters that the path holds."""
    return schema.body_of(COORDINATION.find(name), *in_path)


class BusEndpoint(viewsets.Endpoint):
    """A path of the bus."""

    toolset = COORDINATION


class Resource(viewsets.Resource):
    """A table of the bus."""

    toolset = COORDINATION
    needs_workspace = False  # an agent's key must name its workspace, as over MCP

    def get_queryset(self) -> Any:
        described = getattr(self, "swagger_fake_view", False)  # called by the schema's generator, without a request
        keyed = self.needs_workspace and not described and self.caller.agent_id is not None
        if keyed and not self.request.query_params.get("workspace"):
            raise NexusError(
                CoordinationCode.WORKSPACE_REQUIRED, "Pass ?workspace= with the workspace_id you look from."
            )
        return super().get_queryset()

    def query_parameters(self) -> list[Any]:
        return [IN_WORKSPACE] if self.needs_workspace and self.action == "retrieve" else []


class Workspaces(Resource):
    """Project directories that agents work in."""

    same_as = "workspace_resolve"
    queryset = Workspace.objects.all()
    filterset_fields = {"display_name": ["exact"], "created_at": ["gte", "lt"], "last_seen_at": ["gte", "lt"]}
    ordering = ["-created_at", "last_seen_at", "workspace_id"]
    lookup_value_regex = "[0-9a-f]{64}"

    def show(self, row: Workspace) -> WorkspaceRow:
        return workspace_row(row)


class KeyInUse(TypedDict):
    active: bool
    issued_at: Time


class AgentRecord(AgentProfile):
    key: Annotated[KeyInUse | None, Field(description="For operators: when the key was issued, whether it works.")]


class Agents(Resource):
    """Agents. An agent is the same in every workspace."""

    same_as = "agent_list"
    queryset = Agent.objects.select_related("key")
    filterset_fields = {"role": ["exact"], "created_at": ["gte", "lt"], "last_seen_at": ["gte", "lt"]}
    ordering = ["created_at", "updated_at", "agent_id"]

    def show(self, row: Agent) -> AgentRecord:
        key = getattr(row, "key", None) if self.caller.operator is not None else None
        state: KeyInUse | None = {"active": key.is_active, "issued_at": iso(key.created_at)} if key else None
        return {**agent_profile(row), "key": state}

    @extend_schema(request=body_of("agent_create"), responses={201: answer_of("agent_create")})
    def create(self, request: Request) -> Response:
        """Create an agent. The answer shows its api_key this once."""
        return self.operate("agent_create", self.body, success=201)

    @extend_schema(request=body_of("agent_update", "agent_id"), responses={200: answer_of("agent_update")})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change role, capabilities or metadata: those that the body names."""
        return self.operate("agent_update", {**self.body, "agent_id": pk})

    @extend_schema(responses={200: answer_of("agent_delete")})
    def destroy(self, request: Request, pk: str) -> Response:
        """Take an agent out of the team; its mail and history stay."""
        return self.operate("agent_delete", {"agent_id": pk})

    @extend_schema(request=None, responses={201: answer_of("agent_key_issue")})
    @action(detail=True, methods=["post"])
    def key(self, request: Request, pk: str) -> Response:
        """Issue a key and show it, this once. The previous key ends at once."""
        return self.operate("agent_key_issue", {"agent_id": pk}, success=201)

    @extend_schema(
        request=body_of("agent_key_set_active", "agent_id"), responses={200: answer_of("agent_key_set_active")}
    )
    @key.mapping.patch
    def switch_key(self, request: Request, pk: str) -> Response:
        """Deactivate the key, or activate it again."""
        return self.operate("agent_key_set_active", {**self.body, "agent_id": pk})


class SessionRecord(SessionRow):
    metadata: Any
    closed_at: Time | None


class Sessions(Resource):
    """Runs of agents in workspaces; an agent sees its own."""

    same_as = "agent_list"
    queryset = Session.objects.all()
    filterset_fields = {
        "workspace": ["exact"],
        "agent": ["exact"],
        "status": ["exact"],
        "last_heartbeat_at": ["gte", "lt"],
    }
    ordering = ["-session_id", "started_at", "last_heartbeat_at"]

    def show(self, row: Session) -> SessionRecord:
        state = derived_status(row, now())
        return {**session_row(row), "status": state, "metadata": row.metadata, "closed_at": iso(row.closed_at)}

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        return rows.filter(agent_id=agent_id)

    @extend_schema(request=None, responses={200: answer_of("session_close")})
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        """End a session; closing it twice is fine."""
        return self.operate("session_close", {"session_id": pk})


class Channels(Resource):
    """Labels on messages."""

    same_as = "channel_list"
    queryset = Channel.objects.all()
    filterset_fields = {"workspace": ["exact"], "name": ["exact"]}
    ordering = ["channel_id", "name", "created_at"]
    needs_workspace = True

    def show(self, row: Channel) -> ChannelRow:
        return channel_row(row)


class ArtifactRecord(ArtifactRow):
    name: str | None
    path: str | None
    metadata: Any
    content_type: str | None


class WholeArtifact(ArtifactRecord):
    content: str | None


class MadeFilters(viewsets.ListFilters):
    """Filters by creation time. They use the ids, which `new_id` makes in order of time."""

    prefix: ClassVar[str]
    created_at__gte = IsoDateTimeFilter(method="made_since")
    created_at__lt = IsoDateTimeFilter(method="made_before")

    def made_since(self, rows: Any, name: str, moment: datetime) -> Any:
        return rows.filter(created_at__gte=moment, pk__gte=id_floor(self.prefix, moment))

    def made_before(self, rows: Any, name: str, moment: datetime) -> Any:
        rows = rows.filter(created_at__lt=moment)
        if moment < now() - WRITTEN_WITHIN:
            rows = rows.filter(pk__lt=id_floor(self.prefix, moment + WRITTEN_WITHIN))
        return rows


class ArtifactFilters(MadeFilters):
    prefix = "art"

    class Meta(viewsets.ListFilters.Meta):
        model = Artifact
        fields: ClassVar = {"workspace": ["exact"], "artifact_type": ["exact"], "name": ["exact"]}


class Artifacts(Resource):
    """Results of agents. A single artifact has its content if that is inline, never the bytes of a file."""

    same_as = "artifact_list"
    queryset = Artifact.objects.all()
    filterset_class = ArtifactFilters
    ordering = ["-artifact_id", "created_at", "size_bytes"]
    unindexed = frozenset({"name"})
    needs_workspace = True

    def show(self, row: Artifact) -> ArtifactRecord:
        return {
            **artifact_row(row),
            "name": row.name,
            "path": row.path,
            "metadata": row.metadata,
            "content_type": row.content_type,
        }

    def show_whole(self, row: Artifact) -> WholeArtifact:
        return {**self.show(row), "content": row.content}


class EventListFilters(viewsets.ListFilters):
    stream = ChoiceFilter(choices=lambda: [(name, name) for name in streams()])
    created_at__gte = IsoDateTimeFilter(method="written_since")
    created_at__lt = IsoDateTimeFilter(method="written_before")

    def written_since(self, rows: Any, name: str, moment: datetime) -> Any:
        first = log.first_event_at(moment)
        return rows.none() if first is None else rows.filter(created_at__gte=moment, event_id__gte=first)

    def written_before(self, rows: Any, name: str, moment: datetime) -> Any:
        first = log.first_event_at(moment)
        return rows.filter(created_at__lt=moment, **({} if first is None else {"event_id__lt": first}))

    class Meta(viewsets.ListFilters.Meta):
        model = Event
        fields: ClassVar = {
            "workspace": ["exact"],
            "stream": ["exact"],
            "type": ["exact"],
            "actor_agent_id": ["exact"],
            "task_id": ["exact"],
            "handoff_id": ["exact"],
            "trace_id": ["exact"],
        }


class Events(Resource):
    """The append-only log; an agent sees what its visibility allows. Follow it with `stream`, `/ws/events/` or
    `ordering=event_id`."""

    same_as = "event_wait"
    queryset = Event.objects.all()
    filterset_class = EventListFilters
    ordering = ["-event_id"]
    unindexed = frozenset({"type", "actor_agent_id", "task_id"})
    needs_workspace = True
    lookup_value_regex = "[0-9]{1,18}"

    def show(self, row: Event) -> EventRow:
        return event_row(row)

    def admits(self, row: Event) -> bool:
        return self.caller.agent_id is None or log.event_visible(row, *self.viewer)

    @cached_property
    def viewer(self) -> Any:
        """The caller's profile and the time of the request."""
        assert self.caller.agent_id is not None
        return selectors.profile_of(self.caller.agent_id), now()


class Capabilities(BusEndpoint):
    """Every advertised capability with the agents that have it."""

    @extend_schema(
        parameters=[OpenApiParameter("limit", int), OpenApiParameter("cursor", str), OpenApiParameter("agent", str)],
        responses={200: schema.page_of(CapabilityRow)},
    )
    def page(self, request: Request) -> Response:
        """Capabilities, by name; with `agent`, those of one agent."""
        limit, agent = page_size(request.query_params.get("limit")), request.query_params.get("agent")
        after = request.query_params.get("cursor", "")
        response = self.operate("capability_list", {})
        if response.exception:
            return response
        rows = [row for row in response.data["data"]["capabilities"] if row["capability"] > after]
        rows = [row for row in rows if agent is None or agent in row["agents"]]
        cursor = rows[limit - 1]["capability"] if len(rows) > limit else None
        return Response(page_of(rows[:limit], cursor))


class Settings(BusEndpoint):
    """The settings in force. What a flag or a variable pins is shown so and refuses edits."""

    @extend_schema(responses={200: answer_of("settings_list")})
    def show(self, request: Request) -> Response:
        """Every setting: value, source, bounds, description, and whether a change applies at once."""
        return self.operate("settings_list", {})

    @extend_schema(request={"application/json": {"type": "object"}}, responses={200: answer_of("settings_update")})
    def partial_update(self, request: Request) -> Response:
        """Store settings, `{name: value}`: all of them or none; null restores the default."""
        return self.operate("settings_update", {"values": self.body})


router = SimpleRouter(trailing_slash=False)
router.register("workspaces", Workspaces, basename="workspace")
router.register("agents", Agents, basename="agent")
router.register("sessions", Sessions, basename="session")
router.register("channels", Channels, basename="channel")
router.register("artifacts", Artifacts, basename="artifact")
router.register("events", Events, basename="event")

routes = [
    path("stream", stream),
    path("capabilities", Capabilities.as_view({"get": "page"})),
    path("settings", Settings.as_view({"get": "show", "patch": "partial_update"})),
    *router.urls,
]
