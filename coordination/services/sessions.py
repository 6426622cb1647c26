"""Sessions: an agent in a workspace, its presence and its credentials."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q

from coordination import sql
from coordination.config import CoordinationSettings
from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.models import Agent, Session, SessionStatus, Stream
from coordination.selectors import require_agent
from coordination.services import agents, workspaces
from nexus.core.clock import now
from nexus.core.database.store import store, write
from nexus.core.harness_events import Activity
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.size_limits import json_within_limit

REAPED_AT_ONCE = 100  # an opening session must not close a year of dead ones
NOTED_AT_ONCE = 50  # agents in a transaction, which takes the lock of each; with very many it would take that of all


def open_session(*, agent_id: str, workspace_id: str, metadata: Any) -> tuple[Session, str]:
    """Open a session and return it with its secret, which is stored only as a hash.

    Raises NOT_FOUND for an unknown workspace or agent, CONTENT_TOO_LARGE for oversized metadata.
    """
    json_within_limit(metadata, "metadata")
    secret, moment = str(uuid.uuid4()), now()
    with write(workspace_id, agent_id):
        workspaces.require(workspace_id)
        require_agent(agent_id)
        session = Session(
            session_id=new_id("ses"),
            agent_id=agent_id,
            workspace_id=workspace_id,
            metadata=metadata,
            secret_hash=agents.hash_secret(secret),
            started_at=moment,
            last_heartbeat_at=moment,
        )
        _reap(workspace_id, moment)
        with store().batch():
            session.save(force_insert=True)
            _emit(session, "session.opened", moment)
            agents.touch(agent_id, moment)
    return session, secret


class ToldActivity(NamedTuple):
    """What a client's hook tells of its agent."""

    activity: Activity
    at: datetime
    until: datetime | None = None


def heartbeat(
    *, session_id: str, workspace_id: str | None, bound_to: str | None, told: ToldActivity | None = None
) -> Session:
    """Update a session's heartbeat, and with `told` its activity; a closed session stays as it is.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, and NOT_OWNER when the connection is bound to another agent.
    """
    session = _find(session_id, workspace_id, bound_to)
    with write(session.workspace_id, session.agent_id):
        moment = now()
        if sql.beat(session_id=session_id, moment=moment):
            session.last_heartbeat_at = moment
        else:
            session = _find(session_id, workspace_id, bound_to)
        _reap(session.workspace_id, moment)
        if session.status == SessionStatus.ACTIVE:
            changed = {"activity": told.activity} if told and _change_activity(session_id, told, moment) else {}
            with store().batch():
                _emit(session, "session.heartbeat", moment, **changed)
                agents.touch(session.agent_id, moment)
    return session


def _change_activity(session_id: str, told: ToldActivity, moment: datetime) -> bool:
    """Store the activity, unless it is known, or a later call was quicker; return whether it changed."""
    earlier = Q(activity_at=None) | Q(activity_at__lte=told.at) | Q(activity_at__gt=moment)  # a clock that was set back
    other = Session.objects.filter(earlier, pk=session_id).exclude(activity=told.activity)
    since = min(told.at, moment)
    return bool(other.update(activity=told.activity, activity_at=since, activity_until=told.until))


def keep_present(agent_ids: Collection[str], session_ids: Collection[str]) -> None:
    """Note that agents have an open connection, and update the heartbeats of the sessions that belong to it: agents may
    think for minutes between two calls. It is no act of theirs, so it renews no lease. An agent that closed its last
    session has left, although its connection is open."""
    moment = now()
    due = moment - timedelta(seconds=CoordinationSettings.current().session_stale_ttl_seconds) / 2
    rows = Session.objects.filter(pk__in=session_ids, status=SessionStatus.ACTIVE, last_heartbeat_at__lt=due)
    own = Session.objects.filter(agent=OuterRef("pk"))
    left = own.filter(status=SessionStatus.CLOSED, closed_at__gte=OuterRef("last_seen_at"))
    gone = Exists(left) & ~Exists(own.filter(status=SessionStatus.ACTIVE))
    silent = Q(connected_at=None) | Q(connected_at__lt=due)
    connected = Agent.objects.filter(silent, ~gone, pk__in=agent_ids)
    if rows.exists():
        with write("presence"):  # the update looks again at rows that others changed meanwhile
            rows.update(last_heartbeat_at=moment)
    silent_ids = list(connected.order_by().values_list("pk", flat=True))
    for start in range(0, len(silent_ids), NOTED_AT_ONCE):
        some = silent_ids[start : start + NOTED_AT_ONCE]
        with write(*some):  # as a close of their sessions, which the update must see whole or not at all
            connected.filter(pk__in=some).update(connected_at=now())


def close(*, session_id: str, workspace_id: str | None, bound_to: str | None, operator: str | None = None) -> Session:
    """Close a session; closing it again changes nothing. Raises as `heartbeat` does.

    With `operator`, the event names the operator, and the close does not count as an act of the agent.
    """
    session = _find(session_id, workspace_id, bound_to)
    with write(session.workspace_id, session.agent_id):
        moment, session = now(), _find(session_id, workspace_id, bound_to)
        if session.status == SessionStatus.ACTIVE:
            end(session, "closed", moment, operator)
            if operator is None:
                agents.touch(session.agent_id, moment)
    return session


def reap_everywhere() -> None:
    """Close dead sessions of every workspace, at most REAPED_AT_ONCE a call. The reaper calls it."""
    dead = Session.objects.filter(status=SessionStatus.ACTIVE, last_heartbeat_at__lt=_horizon(now()))
    if not dead.exists():
        return
    with write():
        moment = now()
        for session in dead.order_by("last_heartbeat_at")[:REAPED_AT_ONCE]:
            end(session, "stale", moment)


def derived_status(session: Session, moment: datetime) -> str:
    """Return `active`, `stale` or `closed`: staleness is computed on each read and never stored."""
    if session.status == SessionStatus.CLOSED:
        return "closed"
    stale = moment - session.last_heartbeat_at > timedelta(
        seconds=CoordinationSettings.current().session_stale_ttl_seconds
    )
    return "stale" if stale else "active"


def check_credentials(*, agent_id: str, session_id: str | None, secret: str | None, required: bool) -> None:
    """Check the credentials that prove that `agent_id` makes a sensitive call (docs/explanation/trust.md).

    Raises VALIDATION_ERROR when credentials are required, or half of them given; NOT_FOUND for an unknown session;
    NOT_OWNER for another agent's session, a closed one or a wrong secret.
    """
    if required and (session_id is None or secret is None):
        raise invalid("This server runs in strict trust: pass session_id and session_secret from your session_open.")
    if session_id is None:
        if secret is not None:
            raise invalid("session_secret needs the session_id it belongs to.", field="session_secret")
        return
    session = _find(session_id, None, agent_id)
    if secret is None:
        return
    if not secrets.compare_digest(session.secret_hash, agents.hash_secret(secret)):
        raise NexusError(Code.NOT_OWNER, "session_secret does not fit this session.", {"session_id": session_id})
    if session.status == SessionStatus.CLOSED:
        raise NexusError(Code.NOT_OWNER, "That session is closed; open a new one.", {"session_id": session_id})


def _find(session_id: str, workspace_id: str | None, bound_to: str | None) -> Session:
    session = sql.session.first(session_id=session_id)
    if session is None:
        raise not_found("session", session_id)
    if workspace_id is not None and session.workspace_id != workspace_id:
        raise workspaces.mismatch("session", session_id)
    if bound_to is not None and session.agent_id != bound_to:
        raise NexusError(Code.NOT_OWNER, f"That session is not one of {bound_to!r}.", {"session_id": session_id})
    return session


def end(session: Session, reason: str, moment: datetime, operator: str | None = None) -> None:
    """Close an active session inside the caller's transaction."""
    session.status, session.closed_at = SessionStatus.CLOSED, moment
    session.save(update_fields=["status", "closed_at"])
    _emit(session, "session.closed", moment, reason=reason, **({"operator": operator} if operator else {}))


def _horizon(moment: datetime) -> datetime:
    """Return the time since which a session that is not dead had a heartbeat."""
    return moment - timedelta(seconds=CoordinationSettings.current().session_reap_seconds)


def _reap(workspace_id: str, moment: datetime) -> None:
    """Close the workspace's dead sessions as part of another write, which has the workspace's name."""
    for session in sql.silent_in(workspace_id=workspace_id, horizon=_horizon(moment), limit=REAPED_AT_ONCE):
        end(session, "stale", moment)


def _emit(session: Session, type: str, moment: datetime, **more: Any) -> None:
    emit(
        workspace_id=session.workspace_id,
        stream=Stream.WORKSPACE,
        type=type,
        actor=None if "operator" in more else session.agent_id,
        payload={"session_id": session.session_id, "agent_id": session.agent_id, **more},
        moment=moment,
    )
