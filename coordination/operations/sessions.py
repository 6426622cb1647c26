"""Operations on sessions: presence in a workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from coordination import debts
from coordination.debts import DebtRow, debt_row
from coordination.errors import CoordinationCode
from coordination.parameters import WorkspaceId
from coordination.rows import SessionRow, SessionState, session_row
from coordination.services import sessions
from coordination.toolset import operation
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params
from nexus.core.operations.schemas import Time


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
    """Stay present. Send one between turns; broadcasts skip agents silent for 30 minutes (default)."""
    session = sessions.heartbeat(session_id=p.session_id, workspace_id=p.workspace_id, bound_to=caller.agent_id)
    return {
        "session_id": session.session_id,
        "status": sessions.derived_status(session, now()),
        "last_heartbeat_at": iso(session.last_heartbeat_at),
    }


class ClosedSession(SessionRow):
    closed_at: Time | None
    owes: Annotated[list[DebtRow], Field(description="What the agent took and has not brought, or was asked.")]


@operation(SessionRef, *SESSION_ERRORS, idempotent=True)
def session_close(p: SessionRef, caller: Caller) -> ClosedSession:
    """End a session; closing twice is fine. `owes`: what you took and have not brought."""
    session = sessions.close(
        session_id=p.session_id, workspace_id=p.workspace_id, bound_to=caller.agent_id, operator=caller.operator
    )
    owes = [debt_row(debt) for debt in debts.owed_by(session.agent_id)]
    return {**session_row(session), "closed_at": iso(session.closed_at), "owes": owes}
