"""What this app offers: identity, workspaces, sessions, events, channels, artifacts and shared.md."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import Field

from coordination import selectors, shared_md
from coordination.clock import iso, now
from coordination.errors import Code, invalid, not_found
from coordination.models import Agent, Artifact, Channel, Event, Session, Workspace
from coordination.operation import (
    IN_WORKSPACE,
    Caller,
    Cursor,
    Data,
    Fault,
    Id,
    Label,
    Limit,
    Params,
    ProjectRoot,
    Wait,
    operation,
)
from coordination.services import agents, artifacts, channels, sessions, workspaces
from coordination.store import schema_version

SURFACE_REVISION = 1  # rises with every change of a tool's name, parameters, defaults or meaning
DEFAULT_EVENT_LIMIT = 100

StreamName = Annotated[
    Literal["workspace", "agent", "handoff"],
    Fault(absent=Code.INVALID_STREAM, malformed=Code.INVALID_STREAM),
    Field(description="workspace: sessions, messages, artifacts; handoff: handoffs."),
]
WorkspaceId = Annotated[Id, Fault(absent=Code.WORKSPACE_REQUIRED), Field(description="From workspace_resolve.")]


class Nothing(Params):
    """No parameters."""


@operation(Nothing, read_only=True)
def nexus_info(p: Nothing, caller: Caller) -> Data:
    """Versions of package, schema and tool surface. Call it when tools behave unlike your cached schemas."""
    return {
        "package_version": package_version(),
        "schema_version": schema_version(),
        "surface_revision": SURFACE_REVISION,
    }


def package_version() -> str:
    """The installed distribution's version; `dev` for a source checkout that is not installed."""
    try:
        return version("nexus-hub")
    except PackageNotFoundError:
        return "dev"


# Workspaces


class WorkspaceResolve(Params):
    project_root: Annotated[str, Field(max_length=4096, description="Absolute path of the project.")]
    display_name: Label | None = None


@operation(WorkspaceResolve, Code.VALIDATION_ERROR, Code.WORKSPACE_UNRESOLVED, idempotent=True)
def workspace_resolve(p: WorkspaceResolve, caller: Caller) -> Data:
    """Get the workspace_id of a project directory, creating the workspace on first sight. Same real path, same id."""
    return workspace_data(workspaces.resolve(project_root=p.project_root, display_name=p.display_name))


@operation(Nothing, read_only=True)
def workspace_list(p: Nothing, caller: Caller) -> Data:
    """List all workspaces of this store."""
    return {"workspaces": [workspace_data(row) for row in Workspace.objects.order_by("created_at", "workspace_id")]}


def workspace_data(workspace: Workspace) -> Data:
    return {
        "workspace_id": workspace.workspace_id,
        "display_name": workspace.display_name,
        "root_realpath": workspace.root_realpath,
        "created_at": iso(workspace.created_at),
        "last_seen_at": iso(workspace.last_seen_at),
    }


# Agents


class AgentRegister(Params):
    agent_id: Annotated[Id, Field(description="Stable, and yours alone: builder-1. Matched exactly.")]
    role: Annotated[Label | None, Field(description="What a role target can address: reviewer.")] = None
    capabilities: Annotated[
        Any, Field(description="What a capability target can address: a list of names, or {name: true}.")
    ] = None
    metadata: Annotated[Any, Field(description="Any JSON, shown to others.")] = None


@operation(AgentRegister, Code.VALIDATION_ERROR, Code.CONTENT_TOO_LARGE, acts_as="agent_id", idempotent=True)
def agent_register(p: AgentRegister, caller: Caller) -> Data:
    """Create or update your identity; agents are global, across workspaces. What you leave out keeps its value."""
    given = {name: getattr(p, name) for name in p.model_fields_set - {"agent_id"}}
    agent = agents.register(agent_id=p.agent_id, given=given)
    return {**agent_data(agent), "updated_at": iso(agent.updated_at)}


@operation(Nothing, read_only=True)
def agent_list(p: Nothing, caller: Caller) -> Data:
    """List all agents with role, capabilities and last action: find whom to address."""
    return {"agents": [agent_data(agent) for agent in Agent.objects.order_by("created_at", "agent_id")]}


class AgentGet(Params):
    agent_id: Id


@operation(AgentGet, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
def agent_get(p: AgentGet, caller: Caller) -> Data:
    """One agent's profile and last action."""
    agent = Agent.objects.filter(pk=p.agent_id).first()
    if agent is None:
        raise not_found("agent", p.agent_id)
    return agent_data(agent)


@operation(Nothing, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
def agent_whoami(p: Nothing, caller: Caller) -> Data:
    """The profile of the agent this connection is bound to by its key; an error when it is bound to none."""
    if caller.agent_id is None:
        raise invalid("This connection is bound to no agent. Start it with an API key, or pass agent_id yourself.")
    return agent_get(AgentGet(agent_id=caller.agent_id), caller)


@operation(Nothing, read_only=True)
def capability_list(p: Nothing, caller: Caller) -> Data:
    """All advertised capabilities and who has them: what a capability target can address."""
    return {
        "capabilities": [
            {"capability": name, "agent_count": len(holders), "agents": holders}
            for name, holders in selectors.capabilities().items()
        ]
    }


def agent_data(agent: Agent) -> dict[str, Any]:
    return {
        "agent_id": agent.agent_id,
        "role": agent.role,
        "capabilities": agent.capabilities,
        "metadata": agent.metadata,
        "created_at": iso(agent.created_at),
        "last_seen_at": iso(agent.last_seen_at),
    }


# Sessions


class SessionOpen(Params):
    agent_id: Id
    workspace_id: WorkspaceId
    metadata: Any = None


@operation(
    SessionOpen,
    Code.WORKSPACE_REQUIRED,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    acts_as="agent_id",
)
def session_open(p: SessionOpen, caller: Caller) -> Data:
    """Open a session in a workspace: it makes you present, so that broadcasts reach you. Keep session_secret, which is
    shown once."""
    session, secret = sessions.open_session(agent_id=p.agent_id, workspace_id=p.workspace_id, metadata=p.metadata)
    return {**session_data(session), "session_secret": secret}


class SessionRef(Params):
    session_id: Annotated[Id, Field(description="From session_open.")]
    workspace_id: Id | None = None


SESSION_ERRORS = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.WORKSPACE_MISMATCH)


@operation(SessionRef, *SESSION_ERRORS)
def session_heartbeat(p: SessionRef, caller: Caller) -> Data:
    """Stay present. Send one between turns; broadcasts skip agents silent for 30 minutes (default)."""
    session = sessions.heartbeat(session_id=p.session_id, workspace_id=p.workspace_id, bound_to=caller.agent_id)
    return {
        "session_id": session.session_id,
        "status": sessions.derived_status(session, now()),
        "last_heartbeat_at": iso(session.last_heartbeat_at),
    }


@operation(SessionRef, *SESSION_ERRORS, idempotent=True)
def session_close(p: SessionRef, caller: Caller) -> Data:
    """End a session; closing twice is fine."""
    session = sessions.close(
        session_id=p.session_id, workspace_id=p.workspace_id, bound_to=caller.agent_id, operator=caller.operator
    )
    return {**session_data(session), "closed_at": iso(session.closed_at)}


def session_data(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "agent_id": session.agent_id,
        "workspace_id": session.workspace_id,
        "status": session.status,
        "started_at": iso(session.started_at),
        "last_heartbeat_at": iso(session.last_heartbeat_at),
    }


# Events


class EventCursor(Params):
    project_root: ProjectRoot
    agent_id: Id
    stream: StreamName


class EventFilters(Params):
    """Equality, all of them."""

    type: Label | None = None
    agent_id: Label | None = None
    task_id: Label | None = None
    handoff_id: Label | None = None


class EventGet(EventCursor):
    cursor: Annotated[Cursor | None, Field(description="Read after this event_id; none: from the start.")] = None
    limit: Annotated[Limit | None, Field(description=f"{DEFAULT_EVENT_LIMIT} by default, 1000 at most.")] = None
    filters: Annotated[EventFilters | None, Field(description="Equalities, all at once; agent_id is who acted.")] = None

    @property
    def chosen(self) -> dict[str, str]:
        """The filters that were given."""
        return self.filters.model_dump(exclude_none=True) if self.filters else {}


class EventWait(EventGet):
    timeout_seconds: Annotated[
        int | None, Field(description="Wait so long at most; the server caps it, at 30 by default.")
    ] = 0


EVENT_ERRORS = (Code.WORKSPACE_REQUIRED, Code.INVALID_STREAM, Code.VALIDATION_ERROR, Code.WORKSPACE_UNRESOLVED)


@operation(EventCursor, *EVENT_ERRORS, acts_as="agent_id", read_only=True)
def event_cursor(p: EventCursor, caller: Caller) -> Data:
    """The newest event_id of a stream, to follow from now on with event_get or event_wait."""
    workspace_id = workspaces.locate(p.project_root).workspace_id
    return {"cursor": selectors.newest_event_id(workspace_id=workspace_id, stream=p.stream)}


@operation(EventGet, *EVENT_ERRORS, acts_as="agent_id", read_only=True)
def event_get(p: EventGet, caller: Caller) -> Data:
    """Read events after cursor, oldest first; go on from next_cursor. For observing; your mail comes by inbox_pull."""
    workspace_id = workspaces.locate(p.project_root).workspace_id
    agents.touch_in_passing(p.agent_id)
    return {**_events(p, workspace_id), "timed_out": False}


@operation(
    EventWait,
    *EVENT_ERRORS,
    acts_as="agent_id",
    read_only=True,
    wait=Wait[EventWait](
        timeout=lambda p: p.timeout_seconds or 0,
        interested=lambda p: selectors.event_interest(
            workspaces.locate(p.project_root).workspace_id, p.stream, p.chosen
        ),
        done=lambda data: bool(data["events"]),
        expired=lambda p, data: {**data, "next_cursor": p.cursor or 0, "timed_out": True},
        resume=lambda p, data: p.model_copy(update={"cursor": data["next_cursor"]}),
    ),
)
def event_wait(p: EventWait, caller: Caller) -> Data:
    """Like event_get, but with timeout_seconds > 0 it waits for the first matching event."""
    return event_get(p, caller)


def _events(p: EventGet, workspace_id: str) -> dict[str, Any]:
    page = selectors.event_page(
        workspace_id=workspace_id,
        agent_id=p.agent_id,
        stream=p.stream,
        cursor=p.cursor or 0,
        limit=min(p.limit or DEFAULT_EVENT_LIMIT, settings.NEXUS.max_event_limit),
        filters=p.chosen,
    )
    return {
        "events": [event_data(event) for event in page.events],
        "next_cursor": page.next_cursor,
        "has_more": page.has_more,
    }


def event_data(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "workspace_id": event.workspace_id,
        "stream": event.stream,
        "type": event.type,
        "payload": event.payload,
        "actor_agent_id": event.actor_agent_id,
        "task_id": event.task_id,
        "handoff_id": event.handoff_id,
        "created_at": iso(event.created_at),
    }


# Channels


class ChannelCreate(Params):
    project_root: ProjectRoot
    name: str


@operation(ChannelCreate, *IN_WORKSPACE, idempotent=True)
def channel_create(p: ChannelCreate, caller: Caller) -> Data:
    """Create a channel, or get the one of that name. Channels are labels; they decide neither access nor delivery."""
    channel, created = channels.create(project_root=p.project_root, name=p.name)
    return {"channel": channel_data(channel), "created": created}


class ChannelList(Params):
    project_root: ProjectRoot


@operation(ChannelList, *IN_WORKSPACE, idempotent=True)
def channel_list(p: ChannelList, caller: Caller) -> Data:
    """List the workspace's channels; `general` always exists."""
    return {"channels": [channel_data(channel) for channel in channels.list_and_seed(project_root=p.project_root)]}


def channel_data(channel: Channel) -> Data:
    return {
        "channel_id": channel.channel_id,
        "workspace_id": channel.workspace_id,
        "name": channel.name,
        "created_at": iso(channel.created_at),
    }


# Artifacts


class ArtifactPut(Params):
    project_root: ProjectRoot
    artifact_type: Annotated[Label, Field(description="file, text, json or markdown.")]
    name: Label | None = None
    path: Annotated[
        str | None, Field(min_length=1, max_length=4096, description="A file below project_root, instead of content.")
    ] = None
    content: Annotated[str | None, Field(description="The text itself, up to 64 KiB; larger: a file and path.")] = None
    metadata: Any = None


@operation(ArtifactPut, *IN_WORKSPACE, Code.CONTENT_TOO_LARGE, Code.PATH_OUTSIDE_WORKSPACE)
def artifact_put(p: ArtifactPut, caller: Caller) -> Data:
    """Publish an artifact: inline content, or the path of a file in the project. Cite its artifact_id in messages."""
    artifact = artifacts.put(
        project_root=p.project_root,
        artifact_type=p.artifact_type,
        name=p.name,
        path=p.path,
        content=p.content,
        metadata=p.metadata,
        actor=caller.agent_id,
    )
    place = {"path": artifact.path} if artifact.stored == "path" else {}
    return {**artifact_data(artifact), **place}


class ArtifactGet(Params):
    project_root: ProjectRoot
    artifact_id: Id


@operation(ArtifactGet, *IN_WORKSPACE, Code.NOT_FOUND, read_only=True)
def artifact_get(p: ArtifactGet, caller: Caller) -> Data:
    """Get an artifact: its content when inline, its path (never the file's bytes) otherwise."""
    artifact = artifacts.get(project_root=p.project_root, artifact_id=p.artifact_id)
    place = {"path": artifact.path} if artifact.stored == "path" else {"content": artifact.content}
    return {**artifact_data(artifact), "name": artifact.name, "metadata": artifact.metadata, **place}


def artifact_data(artifact: Artifact) -> dict[str, Any]:
    return {
        "artifact_id": artifact.artifact_id,
        "workspace_id": artifact.workspace_id,
        "artifact_type": artifact.artifact_type,
        "stored": artifact.stored,
        "size_bytes": artifact.size_bytes,
        "created_at": iso(artifact.created_at),
    }


# shared.md


class SharedMdRender(Params):
    workspace_id: WorkspaceId
    limit_events: Annotated[int, Field(description="How many of the newest events.")] = 50


@operation(
    SharedMdRender,
    Code.WORKSPACE_REQUIRED,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    Code.RENDER_ERROR,
    idempotent=True,
)
def shared_md_render(p: SharedMdRender, caller: Caller) -> Data:
    """Write the workspace's shared.md, a readable snapshot of agents, tasks, handoffs and recent events."""
    rendered = shared_md.render(workspace_id=p.workspace_id, limit_events=p.limit_events)
    return {
        "path": str(rendered.path),
        "workspace_id": p.workspace_id,
        "bytes_written": rendered.size,
        "sections_rendered": rendered.sections,
        "limit_events": p.limit_events,
        "generated_at": iso(now()),
    }
