"""The part of a hook that needs the whole store: the agent's session, and what waits for the agent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Min

from coordination import debts, toolset
from coordination.debts import debt_row
from coordination.models import Agent
from coordination.paths import workspace_id_of
from coordination.provenance import roles_of
from coordination.routing import is_directed
from coordination.services import sessions
from handoffs.selectors import next_change
from inbox import receipts
from inbox.models import Delivery, DeliveryStatus
from nexus.core.clock import now
from nexus.core.coding_clients import STOP
from nexus.core.config import CoreSettings
from nexus.core.database.store import store, unless_busy
from nexus.core.harness_events import Activity
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller, process_connection
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.registry import TOOLSETS
from nexus.hooks import hook_state, texts
from nexus.hooks.harness import HookCall
from nexus.hooks.quick_check import PendingWork
from nexus.hooks.signals import notice_kinds

LIMIT = 200  # rows of one page; more than one notice shows


def refresh(
    call: HookCall, *, activity: str | None = None, at: float | None = None, until: float | None = None
) -> None:
    """Register the agent and open its session, or send a heartbeat for the open one, with what the agent does since
    `at`, and when its quota is there again (unix times). Close the session of one that is gone. Raises NexusError."""
    store().prepare()
    home = CoreSettings.current().home
    session = hook_state.credentials(home, call)
    told = None
    if activity is not None and at is not None:
        told = sessions.ToldActivity(Activity(activity), _moment(at), None if until is None else _moment(until))
    if activity == Activity.GONE:
        if session is not None:
            _data(call, "session_close", session_id=session.session_id)
        return
    if session is not None and _heartbeat(call, session.session_id, told):
        return
    workspace = _data(call, "workspace_resolve", project_root=call.root)
    _data(call, "agent_register", agent_id=call.agent_id)
    opened = _data(
        call,
        "session_open",
        agent_id=call.agent_id,
        workspace_id=workspace["workspace_id"],
        metadata={"client": call.client},
    )
    hook_state.keep_credentials(home, call, hook_state.Credentials(opened["session_id"], opened["session_secret"]))
    if told is not None:
        _heartbeat(call, opened["session_id"], told)


def _heartbeat(call: HookCall, session_id: str, told: sessions.ToldActivity | None) -> bool:
    """Send a heartbeat; return whether the session is still open, or was closed after this was told."""
    try:
        session = sessions.heartbeat(session_id=session_id, workspace_id=None, bound_to=call.agent_id, told=told)
    except NexusError as error:
        if error.code in (Code.NOT_FOUND, Code.NOT_OWNER):
            return False
        raise
    return session.closed_at is None or (told is not None and told.at < session.closed_at)


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)


def seen(call: HookCall) -> PendingWork:
    """Return what `glance` returns, for a store that is not a file. Raises NexusError if it cannot be reached."""
    if store().pending():
        return PendingWork(set(), 0)  # the store does not exist yet: check again soon
    _, waits, _, personal = _waiting(call, ())
    leases = Delivery.objects.filter(recipient_id=call.agent_id, status=DeliveryStatus.DELIVERED)
    lapse = leases.aggregate(lapse=Min("lease_expires_at"))["lapse"]
    muted = Agent.objects.filter(pk=call.agent_id, muted_until__gt=now()).values_list("muted_until", flat=True).first()
    changes = [moment for moment in (lapse, next_change(workspace_id_of(call.root)), muted) if moment]
    changes_at = min((moment.timestamp() for moment in changes), default=float("inf")) + 0.001
    owes = debts.owed_by(call.agent_id) if call.event == STOP else []
    return PendingWork(waits, changes_at, frozenset(debt.key for debt in owes), frozenset() if muted else personal)


def owed(call: HookCall, keys: Collection[str]) -> str:
    """Return a text for the agent about these debts; empty if they are settled."""
    found = [debt_row(debt) for debt in debts.owed_by(call.agent_id) if debt.key in keys]
    return texts.debts_text(call.agent_id, found) if found else ""


def waiting(call: HookCall, known: Collection[str]) -> tuple[str, set[str]]:
    """Return a text about what is new to the agent, and its ids; the text is empty if there is nothing. Record which
    mail it names."""
    text, fresh, named, _ = _waiting(call, known)
    if named:
        with unless_busy(), store().without_waiting():  # no notice waits for its record
            receipts.notice(call.agent_id, named, f"hook of {call.client}, {call.event}")
    return text, fresh


def _waiting(call: HookCall, known: Collection[str]) -> tuple[str, set[str], list[str], frozenset[str]]:
    unread = _data(call, "inbox_count", agent_id=call.agent_id)["unread"]
    mail = _data(call, "inbox_peek", agent_id=call.agent_id, limit=LIMIT)["messages"] if unread else []
    open_ones = _data(call, "handoff_list_available", project_root=call.root, agent_id=call.agent_id, limit=LIMIT)[
        "handoffs"
    ]
    messages = [row for row in mail if row["status"] == "unread" and row["message_id"] not in known]
    handoffs = [row for row in open_ones if row["handoff_id"] not in known]
    others = {
        news: fresh_ones
        for news in notice_kinds()
        if (fresh_ones := [each for each in news.waiting(call.agent_id) if each.identifier not in known])
    }
    fresh = {row["message_id"] for row in messages} | {row["handoff_id"] for row in handoffs}
    fresh |= {each.identifier for fresh_ones in others.values() for each in fresh_ones}
    if not fresh:
        return "", fresh, [], frozenset()
    personal = {row["message_id"] for row in messages if is_directed(row["target"], call.agent_id)}
    personal |= {row["handoff_id"] for row in handoffs if is_directed(row["target"], call.agent_id)}
    personal |= {each.identifier for fresh_ones in others.values() for each in fresh_ones if each.personal}
    shown = [*messages[: texts.SHOWN], *handoffs[: texts.SHOWN]]
    text = texts.waiting_text(
        agent_id=call.agent_id,
        project_root=call.root,
        messages=messages,
        handoffs=handoffs,
        unread=unread,
        others=others,
        roles=roles_of([row["from_agent_id"] for row in shown]),
    )
    return text, fresh, [row["message_id"] for row in messages[: texts.SHOWN]], frozenset(personal)


def perform(call: HookCall, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call an operation of any toolset as the hook's agent; return its data. Raises NexusError."""
    store().prepare()
    owner = next((each for each in TOOLSETS.values() if operation in each.operations), toolset.COORDINATION)
    return dispatch.perform(owner, _caller(call), operation, arguments).result()


QUESTIONS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (refresh, seen, owed, waiting, perform)}


def answer(name: str, call: HookCall, **arguments: Any) -> Any:
    """Return the answer to a query of the hook. Raises NexusError."""
    return QUESTIONS[name](call, **arguments)


def _data(call: HookCall, name: str, **arguments: Any) -> Mapping[str, Any]:
    caller = replace(_caller(call), vouched=True)  # the hook may read before it has opened a session
    return toolset.call(caller, name, arguments)


def _caller(call: HookCall) -> Caller:
    return Caller(transport="hook", agent_id=call.agent_id, connection=call.connection or process_connection("hook"))
