"""Operations for operators only: agents, keys, settings, accounts, limits. They are not tools for agents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.models import Agent, AgentLimits, LimitScope
from coordination.parameters import IN_WORKSPACE, ProjectRoot
from coordination.rows import AgentProfile, WorkspaceRow, agent_row, workspace_row
from coordination.services import agent_limits, keys, operators, roster, settings, tags, workspaces
from coordination.toolset import operation
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.parameters import MAX_INTEGER, Id, Label, Nothing, Params, Time, one_of
from nexus.core.operations.registry import OPERATORS_ONLY, Operation, Requirement

PROFILE_ERRORS = (Code.VALIDATION_ERROR, Code.CONTENT_TOO_LARGE, Code.CONFIG_ERROR)


class ProfileGiven(Params):
    agent_id: Id
    role: Label | None = None
    capabilities: Annotated[Any, Field(description="List of names, or {name: true}.")] = None
    metadata: Any = None
    tags: Annotated[
        dict[str, Any] | None, Field(description='Of tag_list, for targets: {"team": ["core"]}; {} takes them away.')
    ] = None
    toolsets: Annotated[
        list[Label] | None,
        Field(max_length=100, description="Toolsets of its connections that choose none; none: the default ones."),
    ] = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters that the call named; an empty list of toolsets is None."""
        named = {name: getattr(self, name) for name in self.model_fields_set - {"agent_id"}}
        return {**named, "toolsets": self.toolsets or None} if "toolsets" in named else named


class ManagedAgent(AgentProfile):
    toolsets: list[str] | None


class CreatedAgent(ManagedAgent):
    api_key: str


@operation(ProfileGiven, *PROFILE_ERRORS, requires=(OPERATORS_ONLY,), tool=False)
def agent_create(p: ProfileGiven, caller: Caller) -> CreatedAgent:
    """Create an agent with an API key, or bring a deleted one back, mail and all. The answer shows the key, and nothing
    shows it again."""
    agent, key = roster.create(agent_id=p.agent_id, given=p.arguments, operator=operator_behind(caller))
    return {**_managed(agent), "api_key": key}


@operation(ProfileGiven, *PROFILE_ERRORS, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, idempotent=True)
def agent_update(p: ProfileGiven, caller: Caller) -> ManagedAgent:
    """Change an agent's role, capabilities, metadata or toolsets. What is left out keeps its value."""
    return _managed(roster.update(agent_id=p.agent_id, given=p.arguments, operator=operator_behind(caller)))


class TagNamed(Params):
    key: Id
    value: Annotated[Id | None, Field(description="Omitted: the key itself.")] = None


class TagCreate(TagNamed):
    description: Annotated[str | None, Field(max_length=2000)] = None


class TagData(TypedDict):
    key: str
    value: str | None
    description: str | None
    created_at: Time


@operation(TagCreate, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def tag_create(p: TagCreate, caller: Caller) -> TagData:
    """Add a key to the catalog of tags, or a value to a key. agent_update gives tags of the catalog to agents."""
    tag = tags.create(
        key=p.key.strip(),
        value=(p.value or "").strip(),
        description=p.description,
        operator=operator_behind(caller),
    )
    return {
        "key": tag.key,
        "value": tag.value or None,
        "description": tag.description,
        "created_at": iso(tag.created_at),
    }


class DeletedTag(TypedDict):
    key: str
    value: str | None
    deleted: bool


@operation(
    TagNamed,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    CoordinationCode.TAG_IN_USE,
    requires=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
)
def tag_delete(p: TagNamed, caller: Caller) -> DeletedTag:
    """Delete a value from the catalog of tags, or a key with its values, unless an agent has it."""
    tags.delete(key=p.key.strip(), value=(p.value or "").strip(), operator=operator_behind(caller))
    return {"key": p.key, "value": p.value, "deleted": True}


class WorkspaceMove(Params):
    old_root: Annotated[str, Field(max_length=4096, description="The directory's path before it was renamed.")]
    project_root: ProjectRoot


class MovedWorkspace(WorkspaceRow):
    old_root: str
    left: Annotated[
        list[str], Field(description="Apps whose rows stay with the old path, as the new one has such rows already.")
    ]


class MovedWorkspaces(TypedDict):
    workspaces: list[MovedWorkspace]


@operation(WorkspaceMove, *IN_WORKSPACE, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def workspace_move(p: WorkspaceMove, caller: Caller) -> MovedWorkspaces:
    """Give a renamed directory all that belongs to its old path: mail, handoffs, plans, reservations, worktrees, rules
    and budgets, also of the projects below it. The log's events stay with the old path."""
    moved = workspaces.move(old_root=p.old_root, project_root=p.project_root, operator=operator_behind(caller))
    return {
        "workspaces": [
            {**workspace_row(each.workspace), "old_root": each.old_root, "left": each.left} for each in moved
        ]
    }


class AgentRef(Params):
    agent_id: Id


OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND)


class DeletedAgent(TypedDict):
    agent_id: str
    deleted: bool
    sessions_closed: int


@operation(AgentRef, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def agent_delete(p: AgentRef, caller: Caller) -> DeletedAgent:
    """Delete an agent: its key ends, its sessions are closed. Its mail and history stay; only an
    operator brings it back, with agent_create."""
    closed = roster.delete(agent_id=p.agent_id, operator=operator_behind(caller))
    return {"agent_id": p.agent_id, "deleted": True, "sessions_closed": closed}


class AgentMute(AgentRef):
    lasting: Annotated[str, Field(description="1h, 30m or 2d from now, 30 days at most; 0 ends it.")]


class MutedAgent(TypedDict):
    agent_id: str
    muted_until: Time | None


@operation(AgentMute, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, idempotent=True)
def agent_mute(p: AgentMute, caller: Caller) -> MutedAgent:
    """Let nothing wake an agent's idle session for some time. Its mail waits, and its hooks tell it when it works."""
    agent = roster.mute(agent_id=p.agent_id, lasting=p.lasting, operator=operator_behind(caller))
    return {"agent_id": agent.agent_id, "muted_until": iso(agent.muted_until)}


class IssuedKey(TypedDict):
    agent_id: str
    api_key: str


@operation(AgentRef, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def agent_key_issue(p: AgentRef, caller: Caller) -> IssuedKey:
    """Give an agent a new API key, shown only this once. The old key ends at once."""
    return {"agent_id": p.agent_id, "api_key": keys.issue(agent_id=p.agent_id, operator=operator_behind(caller))}


class AgentKeySetActive(AgentRef):
    active: bool


class KeyState(TypedDict):
    agent_id: str
    active: bool


@operation(AgentKeySetActive, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, idempotent=True)
def agent_key_set_active(p: AgentKeySetActive, caller: Caller) -> KeyState:
    """Deactivate an agent's API key, or take the same key back into service."""
    key = keys.set_active(agent_id=p.agent_id, active=p.active, operator=operator_behind(caller))
    return {"agent_id": p.agent_id, "active": key.is_active}


class SettingList(TypedDict):
    settings: list[settings.SettingRow]


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def settings_list(p: Nothing, caller: Caller) -> SettingList:
    """Every setting: its value, where it comes from, its bounds, and whether a change applies at once."""
    return {"settings": settings.described()}


class SettingsUpdate(Params):
    values: Annotated[dict[str, Any], Field(min_length=1, max_length=100, description="By name; null: the default.")]


class UpdatedSettings(TypedDict):
    updated: list[str]


@operation(
    SettingsUpdate, Code.VALIDATION_ERROR, Code.CONFIG_ERROR, requires=(OPERATORS_ONLY,), tool=False, idempotent=True
)
def settings_update(p: SettingsUpdate, caller: Caller) -> UpdatedSettings:
    """Store settings, all of them or none. They take effect in every process within about a second."""
    settings.update(values=p.values, operator=operator_behind(caller))
    return {"updated": sorted(p.values)}


def _must_be_at_the_machine(operation: Operation[Any], params: Any, caller: Caller) -> None:
    if caller.transport != "cli":
        raise NexusError(
            Code.NOT_OWNER, f"{operation.name} is for whoever runs `nexus operators` on the hub's machine."
        )


# An account is permanent access to the hub: an operator with temporary access must not create one.
AT_THE_MACHINE = Requirement("at the command line of the hub's machine", _must_be_at_the_machine)
ACCOUNTS = (OPERATORS_ONLY, AT_THE_MACHINE)


class OperatorRow(TypedDict):
    operator: str
    active: bool
    viewer: bool
    last_login_at: Time | None
    created_at: Time


class OperatorList(TypedDict):
    operators: list[OperatorRow]


@operation(Nothing, Code.NOT_OWNER, requires=ACCOUNTS, tool=False, read_only=True)
def operator_list(p: Nothing, caller: Caller) -> OperatorList:
    """List the dashboard's accounts."""
    return {
        "operators": [
            {
                "operator": user.get_username(),
                "active": user.is_active and user.is_staff,
                "viewer": not user.is_superuser,
                "last_login_at": iso(user.last_login),
                "created_at": iso(user.date_joined),
            }
            for user in operators.accounts()
        ]
    }


class OperatorRef(Params):
    operator: Annotated[Id, Field(description="The login.")]


class OperatorPassword(TypedDict):
    operator: str
    password: str


class OperatorCreate(OperatorRef):
    viewer: Annotated[bool, Field(description="It sees everything and does nothing.")] = False


@operation(OperatorCreate, Code.VALIDATION_ERROR, Code.NOT_OWNER, requires=ACCOUNTS, tool=False)
def operator_create(p: OperatorCreate, caller: Caller) -> OperatorPassword:
    """Create an account of the dashboard. The answer shows its password, only this once."""
    password = operators.create(name=p.operator, viewer=p.viewer, operator=operator_behind(caller))
    return {"operator": p.operator, "password": password}


@operation(OperatorRef, *OF_ONE, Code.NOT_OWNER, requires=ACCOUNTS, tool=False, destructive=True)
def operator_password_reset(p: OperatorRef, caller: Caller) -> OperatorPassword:
    """Give an account a new password, shown only this once. All its logins end."""
    return {
        "operator": p.operator,
        "password": operators.reset_password(name=p.operator, operator=operator_behind(caller)),
    }


def _managed(agent: Agent) -> ManagedAgent:
    return {**agent_row(agent), "toolsets": agent.toolsets, "updated_at": iso(agent.updated_at)}


Names = Annotated[list[Label] | None, Field(min_length=1, max_length=1_000)]


class LimitsRow(TypedDict):
    scope: Annotated[str, one_of(LimitScope)]
    name: Annotated[str, Field(description="The agent, or the role.")]
    limits: dict[str, int]
    allowed: list[str] | None
    refused: list[str] | None


class LimitsList(TypedDict):
    for_all: Annotated[dict[str, int], Field(description="The settings limit_…; 0 is no limit.")]
    stored: list[LimitsRow]


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def limits_list(p: Nothing, caller: Caller) -> LimitsList:
    """Every limit: for all, and what is stored for roles and agents."""
    stored = AgentLimits.objects.order_by("scope", "name")
    return {
        "for_all": {name: agent_limits.for_all(name) for name in agent_limits.names()},
        "stored": [_limits_row(row) for row in stored],
    }


class LimitsUpdate(Params):
    agent_id: Id | None = None
    role: Label | None = None
    limits: Annotated[
        dict[str, Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None],
        Field(max_length=100, description="By name; 0: none, null: what holds for the role, or for all."),
    ] = {}
    allowed: Annotated[Names, Field(description="Toolsets and verbs that may be used, and no others.")] = None
    refused: Annotated[Names, Field(description="Toolsets and verbs that may not.")] = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters that the call named."""
        named = {name: getattr(self, name) for name in self.model_fields_set & {"allowed", "refused"}}
        return {"values": self.limits, **named}


@operation(LimitsUpdate, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, idempotent=True)
def limits_update(p: LimitsUpdate, caller: Caller) -> LimitsRow:
    """Set what an agent, or whoever has a role, may do at most and which verbs it may use. What is left out keeps its
    value. It counts in every process within about a second."""
    if (p.agent_id is None) == (p.role is None):
        raise invalid("Name an agent_id or a role.", field="agent_id")
    scope = LimitScope.AGENT if p.agent_id is not None else LimitScope.ROLE
    row = agent_limits.update(
        scope=scope, name=p.agent_id or p.role or "", given=p.arguments, operator=operator_behind(caller)
    )
    return _limits_row(row)


def _limits_row(row: AgentLimits) -> LimitsRow:
    return {
        "scope": row.scope,
        "name": row.name,
        "limits": row.values,
        "allowed": row.allowed,
        "refused": row.refused,
    }
