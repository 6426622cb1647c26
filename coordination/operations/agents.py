"""Operations on workspaces, agents and their sessions; and how an agent joins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination import debts, join_answer, selectors
from coordination.debts import DebtRow, debt_row
from coordination.errors import CoordinationCode
from coordination.join_answer import Present
from coordination.models import Agent, Tag, Workspace
from coordination.parameters import MOUNTED, WorkspaceId
from coordination.rows import (
    AgentProfile,
    ListedAgent,
    SessionRow,
    SessionState,
    WorkspaceRow,
    agent_profile,
    listed_agents,
    session_row,
    workspace_row,
)
from coordination.services import agents, sessions, workspaces
from coordination.toolset import operation
from nexus.core.clock import iso, now
from nexus.core.config import CoreSettings, package_version
from nexus.core.database.migrations import schema_version
from nexus.core.database.store import write
from nexus.core.operations.caller import Caller, Joined, remember
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.pages import Paged, PageEnd, page
from nexus.core.operations.parameters import Id, Label, Nothing, OfConnection, Params, ShownAs, Time

SURFACE_REVISION = 4  # rises with every change of a tool's name, parameters, defaults or meaning


class HubInfo(TypedDict):
    package_version: str
    schema_version: int
    surface_revision: int


@operation(Nothing, read_only=True)
def nexus_info(p: Nothing, caller: Caller) -> HubInfo:
    """Versions of package, schema and tools: call it when tools do not behave as described."""
    return {
        "package_version": package_version(),
        "schema_version": schema_version(),
        "surface_revision": SURFACE_REVISION,
    }


OWED = 10  # the most debts in the answer
UNBOUND = "No key came with this connection: you act unbound, in the store {place}."


class Join(Params):
    agent_id: Annotated[Id, Field(description="Stable, and yours alone: builder-1.")]
    project_root: Annotated[
        str | None,
        OfConnection(),
        MOUNTED,
        Field(max_length=4096, description="Absolute path; left out: where your client was started."),
    ] = None
    role: Label | None = None
    capabilities: Annotated[Any, ShownAs({"type": "array", "items": {"type": "string"}})] = None


class JoinedTeam(TypedDict):
    agent_id: str
    workspace_id: str
    project_root: str
    session_id: str
    session_secret: str
    here: list[Present]
    owes: list[DebtRow]
    waiting: Annotated[dict[str, Any], Field(description="By app: mail, open handoffs, reserved files, your topics.")]
    next: Annotated[list[str], Field(description="The calls that are useful now.")]
    warning: NotRequired[str]


@operation(
    Join,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_OWNER,
    acts_as="agent_id",
)
def join(p: Join, caller: Caller) -> JoinedTeam:
    """Your first call: registers you, makes you present, and answers who is here, what waits, what you owe and what to
    call next."""
    given: dict[str, Any] = {name: getattr(p, name) for name in p.model_fields_set & {"role", "capabilities"}}
    project_root = p.project_root or _started_in(caller)
    with write(workspaces.locate_absolute(project_root).workspace_id, p.agent_id):
        workspace = workspaces.resolve(project_root=project_root, display_name=None)
        agents.register(agent_id=p.agent_id, given=given, by_operator=caller.operator is not None)
        session, secret = sessions.open_session(agent_id=p.agent_id, workspace_id=workspace.workspace_id, metadata=None)
    remember(caller.connection, Joined(p.agent_id, workspace.root_realpath, session.session_id))
    moment = now()
    owed = debts.owed_by(p.agent_id)
    waiting = join_answer.answers_to_join(p.agent_id, workspace.workspace_id, moment, caller)
    joined: JoinedTeam = {
        "agent_id": p.agent_id,
        "workspace_id": workspace.workspace_id,
        "project_root": workspace.root_realpath,
        "session_id": session.session_id,
        "session_secret": secret,
        "here": join_answer.present(p.agent_id, workspace.workspace_id, moment),
        "owes": [debt_row(debt) for debt in owed[:OWED]],
        "waiting": waiting,
        "next": _next(waiting, owes=bool(owed)),
    }
    if _is_unbound(caller):
        joined["warning"] = UNBOUND.format(place=CoreSettings.current().location)
    return joined


def _is_unbound(caller: Caller) -> bool:
    """Return whether a client on this machine started the connection without a key, or without passing it on."""
    return caller.transport in ("stdio", "relay") and caller.agent_id is None and caller.operator is None


def _started_in(caller: Caller) -> str:
    """Return the directory where the client started the calling process. Raises WORKSPACE_REQUIRED where it is no
    project."""
    directory = caller.cwd or (str(Path.cwd()) if caller.transport == "stdio" else None)
    if directory is None or Path(directory) in (Path.home(), Path(directory).parent):
        raise NexusError(
            CoordinationCode.WORKSPACE_REQUIRED,
            "Pass project_root, the absolute path of the project: your client was not started in one.",
            {"field": "project_root"},
        )
    return directory


def _next(waiting: dict[str, Any], *, owes: bool) -> list[str]:
    return [
        *(["inbox_pull"] if waiting.get("mail", {}).get("unread") else []),
        *(["handoff_mine"] if owes else []),
        *(["handoff_list_available"] if waiting.get("handoffs") else []),
        *(["files_who"] if waiting.get("reserved") else []),
        "message_create",
    ]


class WorkspaceResolve(Params):
    project_root: Annotated[str, MOUNTED, Field(max_length=4096, description="Absolute path.")]
    display_name: Label | None = None


@operation(WorkspaceResolve, Code.VALIDATION_ERROR, CoordinationCode.WORKSPACE_UNRESOLVED, idempotent=True)
def workspace_resolve(p: WorkspaceResolve, caller: Caller) -> WorkspaceRow:
    """Get the workspace_id of a project directory, creating the workspace on first sight. Same real path, same id."""
    return workspace_row(workspaces.resolve(project_root=p.project_root, display_name=p.display_name))


class WorkspaceList(PageEnd):
    workspaces: list[WorkspaceRow]


@operation(Paged, Code.VALIDATION_ERROR, read_only=True)
def workspace_list(p: Paged, caller: Caller) -> WorkspaceList:
    """List all workspaces of this store."""
    rows, end = page(Workspace.objects.all(), p, by="created_at")
    return {"workspaces": [workspace_row(row) for row in rows], **end}


class AgentRegister(Params):
    agent_id: Annotated[Id, Field(description="Stable, and yours alone: builder-1. Matched exactly.")]
    role: Annotated[Label | None, Field(description="What a role target can address: reviewer.")] = None
    capabilities: Annotated[
        Any,
        ShownAs({"type": "array", "items": {"type": "string"}}),
        Field(description="What a capability target can address: a list of names, or {name: true}."),
    ] = None
    metadata: Annotated[Any, Field(description="Any JSON, shown to others.")] = None


@operation(
    AgentRegister,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_OWNER,
    acts_as="agent_id",
    idempotent=True,
)
def agent_register(p: AgentRegister, caller: Caller) -> AgentProfile:
    """Create or update your identity; agents are global, across workspaces. What you leave out keeps its value."""
    given = {name: getattr(p, name) for name in p.model_fields_set - {"agent_id"}}
    by_operator = caller.operator is not None
    return agent_profile(agents.register(agent_id=p.agent_id, given=given, by_operator=by_operator))


class AgentsPaged(Paged):
    present: Annotated[bool, Field(description="Only those that a broadcast could reach.")] = False


class AgentList(PageEnd):
    agents: list[ListedAgent]


@operation(AgentsPaged, Code.VALIDATION_ERROR, read_only=True)
def agent_list(p: AgentsPaged, caller: Caller) -> AgentList:
    """List agents with role, capabilities and what they do: find whom to address."""
    rows = Agent.objects.filter(pk__in=selectors.present_sessions(now()).values("agent_id"))
    agents, end = page(rows if p.present else Agent.objects.all(), p, by="created_at")
    return {"agents": listed_agents(agents), **end}


class AgentGet(Params):
    agent_id: Id


@operation(AgentGet, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
def agent_get(p: AgentGet, caller: Caller) -> ListedAgent:
    """One agent's profile, last action, and what it does."""
    return listed_agents([selectors.get_agent(p.agent_id)])[0]


@operation(Nothing, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
def agent_whoami(p: Nothing, caller: Caller) -> ListedAgent:
    """Your profile, where a key binds this connection to an agent; else an error."""
    if caller.agent_id is None:
        raise invalid("This connection is bound to no agent. Start it with an API key, or pass agent_id yourself.")
    return agent_get(AgentGet(agent_id=caller.agent_id), caller)


class CapabilityRow(TypedDict):
    capability: str
    agent_count: int
    agents: list[str]


class CapabilityList(TypedDict):
    capabilities: list[CapabilityRow]


@operation(Nothing, read_only=True)
def capability_list(p: Nothing, caller: Caller) -> CapabilityList:
    """All advertised capabilities and who has them: what a capability target can address."""
    return {
        "capabilities": [
            {"capability": name, "agent_count": len(holders), "agents": holders}
            for name, holders in selectors.capabilities().items()
        ]
    }


class TagValue(TypedDict):
    value: str
    description: str | None
    created_at: Time


class TagKey(TypedDict):
    key: str
    description: str | None
    created_at: Time
    values: list[TagValue]


class TagList(TypedDict):
    tags: list[TagKey]
    total: int


@operation(Nothing, read_only=True, advertised=False)
def tag_list(p: Nothing, caller: Caller) -> TagList:
    """The tags that agents may have and that a tag target can name, by key."""
    keys: dict[str, TagKey] = {}
    for tag in Tag.objects.order_by("key", "value"):  # the key itself first: its value is empty
        row: TagValue = {"value": tag.value, "description": tag.description, "created_at": iso(tag.created_at)}
        if tag.value:
            keys[tag.key]["values"].append(row)
        else:
            keys[tag.key] = {"key": tag.key, "description": row["description"], "created_at": row["created_at"],
                             "values": []}  # fmt: skip
    return {"tags": list(keys.values()), "total": len(keys)}


class SessionOpen(Params):
    agent_id: Id
    workspace_id: WorkspaceId
    metadata: Any = None


class OpenedSession(SessionRow):
    session_secret: str


@operation(
    SessionOpen,
    CoordinationCode.WORKSPACE_REQUIRED,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    acts_as="agent_id",
)
def session_open(p: SessionOpen, caller: Caller) -> OpenedSession:
    """Open a session in a workspace: it makes you present, so that broadcasts reach you. Keep session_secret, which is
    shown once."""
    session, secret = sessions.open_session(agent_id=p.agent_id, workspace_id=p.workspace_id, metadata=p.metadata)
    return {**session_row(session), "session_secret": secret}


class SessionRef(Params):
    session_id: Annotated[Id, Field(description="From session_open.")]
    workspace_id: Id | None = None


SESSION_ERRORS = (Code.VALIDATION_ERROR, Code.NOT_FOUND, CoordinationCode.WORKSPACE_MISMATCH)


class Heartbeat(TypedDict):
    session_id: str
    status: SessionState
    last_heartbeat_at: Time


@operation(SessionRef, *SESSION_ERRORS, sign_of_life=True)
def session_heartbeat(p: SessionRef, caller: Caller) -> Heartbeat:
    """Stay present without connection or hook; broadcasts skip agents silent for 30 minutes."""
    session = sessions.heartbeat(session_id=p.session_id, workspace_id=p.workspace_id, bound_to=caller.agent_id)
    return {
        "session_id": session.session_id,
        "status": sessions.derived_status(session, now()),
        "last_heartbeat_at": iso(session.last_heartbeat_at),
    }


class ClosedSession(SessionRow):
    closed_at: Time | None
    owes: Annotated[
        list[DebtRow],
        Field(description="Work that the agent took and has not finished; questions it has not answered."),
    ]


@operation(SessionRef, *SESSION_ERRORS, idempotent=True)
def session_close(p: SessionRef, caller: Caller) -> ClosedSession:
    """End a session; closing twice is fine. `owes`: what you took and did not finish."""
    session = sessions.close(
        session_id=p.session_id, workspace_id=p.workspace_id, bound_to=caller.agent_id, operator=caller.operator
    )
    owes = [debt_row(debt) for debt in debts.owed_by(session.agent_id)]
    return {**session_row(session), "closed_at": iso(session.closed_at), "owes": owes}
