"""REST resources of this app, and what those of the bus share."""

from __future__ import annotations

from typing import Any, ClassVar

from django.urls import path
from django.utils.functional import cached_property
from django_filters.rest_framework import ChoiceFilter
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from coordination import selectors
from coordination.errors import CoordinationCode
from coordination.log import selectors as log
from coordination.log.sse import stream
from coordination.log.streams import streams
from coordination.models import Agent, Artifact, Channel, Event, Session, Workspace
from coordination.services.sessions import derived_status
from coordination.toolset import COORDINATION
from core.clock import iso, now
from core.operations.errors import NexusError
from core.rest import schema, viewsets
from core.rest.pagination import page_size

OBJECT = {"type": "object"}
IN_WORKSPACE = OpenApiParameter("workspace", str, description="The workspace_id to look from; needed with a key.")


def body_of(name: str, *in_path: str) -> dict[str, Any]:
    """The request body of an operation of the bus, less the parameters that the path holds."""
    return schema.body_of(COORDINATION.find(name), *in_path)


class Endpoint(viewsets.Endpoint):
    """A path of the bus."""

    toolset = COORDINATION


class Resource(viewsets.Resource):
    """A table of the bus."""

    toolset = COORDINATION
    needs_workspace = False  # an agent's key must name the workspace it looks from, as it does over MCP

    def get_queryset(self) -> Any:
        described = getattr(self, "swagger_fake_view", False)  # by the schema's generator: nobody calls
        keyed = self.needs_workspace and not described and self.caller.agent_id is not None
        if keyed and not self.request.query_params.get("workspace"):
            raise NexusError(
                CoordinationCode.WORKSPACE_REQUIRED, "Pass ?workspace= with the workspace_id you look from."
            )
        return super().get_queryset()

    def query_parameters(self) -> list[Any]:
        return [IN_WORKSPACE] if self.needs_workspace and self.action == "retrieve" else []


class WorkspaceSerializer(serializers.ModelSerializer[Workspace]):
    class Meta:
        model = Workspace
        fields = ["workspace_id", "display_name", "root_realpath", "created_at", "last_seen_at"]
        read_only_fields = fields


class Workspaces(Resource):
    """Project directories and what is coordinated in them."""

    queryset = Workspace.objects.all()
    serializer_class = WorkspaceSerializer
    filterset_fields = {"display_name": ["exact"], "created_at": ["gte", "lt"], "last_seen_at": ["gte", "lt"]}
    ordering = ["-created_at", "last_seen_at", "workspace_id"]
    lookup_value_regex = "[0-9a-f]{64}"


class AgentSerializer(serializers.ModelSerializer[Agent]):
    key = serializers.SerializerMethodField(help_text="Operators see when the key was issued and whether it works.")

    class Meta:
        model = Agent
        fields = [
            "agent_id",
            "role",
            "capabilities",
            "metadata",
            "created_at",
            "updated_at",
            "last_seen_at",
            "key",
        ]
        read_only_fields = fields

    @extend_schema_field({"type": ["object", "null"]})
    def get_key(self, agent: Agent) -> dict[str, Any] | None:
        key = getattr(agent, "key", None)
        if key is None or self.context["request"].auth.operator is None:
            return None
        return {"active": key.is_active, "issued_at": iso(key.created_at)}


class Agents(Resource):
    """Identities: global, in every workspace the same."""

    queryset = Agent.objects.select_related("key")
    serializer_class = AgentSerializer
    filterset_fields = {"role": ["exact"], "created_at": ["gte", "lt"], "last_seen_at": ["gte", "lt"]}
    ordering = ["created_at", "updated_at", "agent_id"]

    @extend_schema(request=body_of("agent_create"), responses={201: OBJECT})
    def create(self, request: Request) -> Response:
        """Create an agent. The answer shows its api_key this once."""
        return self.operate("agent_create", self.body, success=201)

    @extend_schema(request=body_of("agent_update", "agent_id"), responses={200: OBJECT})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change what the body names of role, capabilities and metadata."""
        return self.operate("agent_update", {**self.body, "agent_id": pk})

    @extend_schema(responses={200: OBJECT})
    def destroy(self, request: Request, pk: str) -> Response:
        """Take an agent out of the team; its mail and history stay."""
        return self.operate("agent_delete", {"agent_id": pk})

    @extend_schema(request=None, responses={201: OBJECT})
    @action(detail=True, methods=["post"])
    def key(self, request: Request, pk: str) -> Response:
        """Issue a key, shown this once; the one there was dies at once."""
        return self.operate("agent_key_issue", {"agent_id": pk}, success=201)

    @extend_schema(request=body_of("agent_key_set_active", "agent_id"), responses={200: OBJECT})
    @key.mapping.patch
    def switch_key(self, request: Request, pk: str) -> Response:
        """Deactivate the key, or take it back into service."""
        return self.operate("agent_key_set_active", {**self.body, "agent_id": pk})


class SessionSerializer(serializers.ModelSerializer[Session]):
    agent_id = serializers.CharField(read_only=True)
    workspace_id = serializers.CharField(read_only=True)
    status = serializers.SerializerMethodField()

    class Meta:
        model = Session
        fields = [
            "session_id",
            "agent_id",
            "workspace_id",
            "status",
            "metadata",
            "started_at",
            "last_heartbeat_at",
            "closed_at",
        ]
        read_only_fields = fields

    def get_status(self, session: Session) -> str:
        return derived_status(session, now())


class Sessions(Resource):
    """Live instances of agents in workspaces; an agent sees its own."""

    queryset = Session.objects.all()
    serializer_class = SessionSerializer
    filterset_fields = {
        "workspace": ["exact"],
        "agent": ["exact"],
        "status": ["exact"],
        "last_heartbeat_at": ["gte", "lt"],
    }
    ordering = ["-session_id", "started_at", "last_heartbeat_at"]

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        return rows.filter(agent_id=agent_id)

    @extend_schema(request=None, responses={200: OBJECT})
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        """End a session; closing it twice is fine."""
        return self.operate("session_close", {"session_id": pk})


class ChannelSerializer(serializers.ModelSerializer[Channel]):
    workspace_id = serializers.CharField(read_only=True)

    class Meta:
        model = Channel
        fields = ["channel_id", "workspace_id", "name", "created_at"]
        read_only_fields = fields


class Channels(Resource):
    """Labels that messages are filed under."""

    queryset = Channel.objects.all()
    serializer_class = ChannelSerializer
    filterset_fields = {"workspace": ["exact"], "name": ["exact"]}
    ordering = ["channel_id", "name", "created_at"]
    needs_workspace = True


class ArtifactSerializer(serializers.ModelSerializer[Artifact]):
    workspace_id = serializers.CharField(read_only=True)
    stored = serializers.SerializerMethodField()

    class Meta:
        model = Artifact
        fields = [
            "artifact_id",
            "workspace_id",
            "artifact_type",
            "name",
            "path",
            "stored",
            "metadata",
            "size_bytes",
            "content_type",
            "created_at",
        ]
        read_only_fields = fields

    def get_stored(self, artifact: Artifact) -> str:
        return artifact.stored


class ArtifactWithContentSerializer(ArtifactSerializer):
    class Meta(ArtifactSerializer.Meta):
        fields = [*ArtifactSerializer.Meta.fields, "content"]
        read_only_fields = fields


class Artifacts(Resource):
    """What agents made; one alone comes with its content where that is inline, and never with a file's bytes."""

    queryset = Artifact.objects.all()
    filterset_fields = {
        "workspace": ["exact"],
        "artifact_type": ["exact"],
        "name": ["exact"],
        "created_at": ["gte", "lt"],
    }
    ordering = ["-artifact_id", "created_at", "size_bytes"]
    needs_workspace = True

    def get_serializer_class(self) -> Any:
        return ArtifactWithContentSerializer if self.action == "retrieve" else ArtifactSerializer


class EventSerializer(serializers.ModelSerializer[Event]):
    workspace_id = serializers.CharField(
        read_only=True, allow_null=True, help_text="null: it concerns the hub as a whole."
    )

    class Meta:
        model = Event
        fields = [
            "event_id",
            "workspace_id",
            "stream",
            "type",
            "payload",
            "actor_agent_id",
            "task_id",
            "handoff_id",
            "created_at",
        ]
        read_only_fields = fields


class EventFilters(viewsets.Filters):
    stream = ChoiceFilter(choices=lambda: [(name, name) for name in streams()])

    class Meta(viewsets.Filters.Meta):
        model = Event
        fields: ClassVar = {
            "workspace": ["exact"],
            "stream": ["exact"],
            "type": ["exact"],
            "actor_agent_id": ["exact"],
            "task_id": ["exact"],
            "handoff_id": ["exact"],
            "created_at": ["gte", "lt"],
        }


class Events(Resource):
    """The append-only log; an agent sees what its visibility allows. Follow it with `stream`, `/ws/events/` or
    `ordering=event_id`."""

    queryset = Event.objects.all()
    serializer_class = EventSerializer
    filterset_class = EventFilters
    ordering = ["-event_id"]
    needs_workspace = True
    lookup_value_regex = "[0-9]{1,18}"

    def admits(self, row: Event) -> bool:
        return self.caller.agent_id is None or log.event_visible(row, *self.onlooker)

    @cached_property
    def onlooker(self) -> Any:
        """The caller's profile and the moment of the look."""
        assert self.caller.agent_id is not None
        return selectors.profile_of(self.caller.agent_id), now()


class Capabilities(Endpoint):
    """Every advertised capability with the agents that have it."""

    @extend_schema(
        parameters=[OpenApiParameter("limit", int), OpenApiParameter("cursor", str), OpenApiParameter("agent", str)],
        responses={200: OBJECT},
    )
    def page(self, request: Request) -> Response:
        """A page, by name; `agent` narrows it to what one agent advertises."""
        limit, agent = page_size(request.query_params.get("limit")), request.query_params.get("agent")
        after = request.query_params.get("cursor", "")
        response = self.operate("capability_list", {})
        if response.exception:
            return response
        rows = [row for row in response.data["data"]["capabilities"] if row["capability"] > after]
        rows = [row for row in rows if agent is None or agent in row["agents"]]
        more = len(rows) > limit
        cursor = rows[limit - 1]["capability"] if more else None
        return Response({"results": rows[:limit], "next_cursor": cursor, "has_more": more})


class Settings(Endpoint):
    """The settings in force. What a flag or a variable pins is shown so and refuses edits."""

    @extend_schema(responses={200: OBJECT})
    def show(self, request: Request) -> Response:
        """Every setting: value, source, bounds, description, and whether a change applies at once."""
        return self.operate("settings_list", {})

    @extend_schema(request={"application/json": OBJECT}, responses={200: OBJECT})
    def partial_update(self, request: Request) -> Response:
        """Store settings, `{name: value}`: all of them or none; null takes one back to its default."""
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
