"""Joining: an agent's first call, whose answer has what the agent needs to begin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from coordination import arrivals, debts
from coordination.arrivals import Present
from coordination.debts import DebtRow, debt_row
from coordination.errors import CoordinationCode
from coordination.parameters import MOUNTED
from coordination.services import agents, sessions, workspaces
from coordination.toolset import operation
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations import connections
from nexus.core.operations.caller import Caller
from nexus.core.operations.connections import OfConnection
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Id, Label, Params, Shown

OWED = 10  # the most debts in the answer


class Join(Params):
    agent_id: Annotated[Id, Field(description="Stable, and yours alone: builder-1.")]
    project_root: Annotated[
        str | None,
        OfConnection(),
        MOUNTED,
        Field(max_length=4096, description="Absolute path; left out: where your client was started."),
    ] = None
    role: Label | None = None
    capabilities: Annotated[Any, Shown({"type": "array", "items": {"type": "string"}})] = None


class JoinedTeam(TypedDict):
    agent_id: str
    workspace_id: str
    project_root: str
    session_id: str
    session_secret: str
    here: list[Present]
    owes: list[DebtRow]
    waiting: Annotated[dict[str, Any], Field(description="By app: mail, open handoffs, reserved files.")]
    next: Annotated[list[str], Field(description="The calls that are useful now.")]


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
    with write():
        workspace = workspaces.resolve(project_root=p.project_root or _started_in(caller), display_name=None)
        agents.register(agent_id=p.agent_id, given=given, by_operator=caller.operator is not None)
        session, secret = sessions.open_session(agent_id=p.agent_id, workspace_id=workspace.workspace_id, metadata=None)
    connections.remember(caller, connections.Joined(p.agent_id, workspace.root_realpath))
    moment = now()
    owed = debts.owed_by(p.agent_id)
    waiting = arrivals.waiting(p.agent_id, workspace.workspace_id, moment)
    return {
        "agent_id": p.agent_id,
        "workspace_id": workspace.workspace_id,
        "project_root": workspace.root_realpath,
        "session_id": session.session_id,
        "session_secret": secret,
        "here": arrivals.present(p.agent_id, workspace.workspace_id, moment),
        "owes": [debt_row(debt) for debt in owed[:OWED]],
        "waiting": waiting,
        "next": _next(waiting, owes=bool(owed)),
    }


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
    calls = [
        *(["inbox_pull"] if waiting.get("mail", {}).get("unread") else []),
        *(["handoff_mine"] if owes else []),
        *(["handoff_list_available"] if waiting.get("handoffs") else []),
        *(["files_who"] if waiting.get("reserved") else []),
        *("message_create", "inbox_count", "session_heartbeat"),
    ]
    return calls[:5]
