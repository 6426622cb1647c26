"""What an agent does in its open session: one state, with its evidence. Its client's hooks tell the store of each
change; whether an idle session can be woken, and whether it is still there, is looked up on each read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Q

from coordination import sql
from coordination.config import CoordinationSettings
from coordination.models import Session, SessionStatus
from nexus.core.harness_events import Activity

REMEMBERED = timedelta(days=1)  # for so long a closed session shows that its agent is gone
ORDER = list(Activity)
TITLES = {Activity.ASKS: "waiting for you", Activity.ASLEEP: "idle, cannot be woken"}


class AgentActivity(NamedTuple):
    """The state of an agent's session."""

    state: Activity
    since: datetime
    evidence: str
    until: datetime | None = None  # of a quota that runs out, where the client tells it
    has_question: bool = False  # it asked the operators, who see its question

    @property
    def title(self) -> str:
        """The state for people."""
        return TITLES.get(self.state, self.state.replace("_", " "))

    @property
    def sees_mail(self) -> bool:
        """Whether the agent notices what comes without its person."""
        return self.state in (Activity.WORKING, Activity.COMPACTING, Activity.IDLE)

    @property
    def needs_person(self) -> bool:
        """Whether the agent cannot go on without its person."""
        return self.state in (Activity.ASKS, Activity.OUT_OF_QUOTA)


# Given open sessions: whether each can be woken, and why so, by session_id.
Wakers = Callable[[Collection[Session]], Mapping[str, tuple[bool, str]]]
_wakers: list[Wakers] = []


# Given agents and a moment: since when each waits for an answer of the operators, by agent_id.
Askers = Callable[[Collection[str], datetime], Mapping[str, datetime]]
_askers: list[Askers] = []


def register(wakers: Wakers) -> None:
    """Register the function that knows which sessions can be woken."""
    _wakers[:] = [wakers]


def register_askers(askers: Askers) -> None:
    """Register the function that knows which agents wait for an answer of the operators."""
    _askers[:] = [askers]


COLUMNS = (
    *("agent__connected_at", "agent__last_seen_at", "agent__muted_until", "workspace__root_realpath"),
    *("activity", "activity_at", "activity_until", "closed_at", "last_heartbeat_at", "metadata"),
)


def activities(agent_ids: Collection[str], moment: datetime) -> dict[str, AgentActivity]:
    """Return what agents do, by agent_id; those that do not ask, and whose client tells nothing, are left out."""
    recent = Q(status=SessionStatus.ACTIVE) | Q(closed_at__gte=moment - REMEMBERED)
    told = Session.objects.filter(recent, agent__in=agent_ids, activity__isnull=False)
    # Of two like states the later counts.
    sessions = list(told.select_related("agent", "workspace").only(*COLUMNS).order_by("-activity_at"))
    opened = [session for session in sessions if session.closed_at is None]
    woken = {pk: found for wakers in _wakers if opened for pk, found in wakers(opened).items()}
    states: dict[str, list[AgentActivity]] = defaultdict(list)
    for session in sessions:
        can_wake, why = woken.get(session.pk, (False, "no waiter runs"))
        if state := _state(session, can_wake, why, moment):
            states[session.agent_id].append(state)
    doing = {name: min(found, key=lambda each: ORDER.index(each.state)) for name, found in states.items()}
    for askers in _askers:
        for name, since in askers(agent_ids, moment).items():
            doing[name] = AgentActivity(Activity.ASKS, since, "it asked a question", has_question=True)
    return doing


def _state(session: Session, can_wake: bool, why: str, moment: datetime) -> AgentActivity | None:
    assert session.activity is not None and session.activity_at is not None  # `activities` reads no others
    agent, since = session.agent, session.activity_at
    by = f"hook of {(session.metadata or {}).get('client', 'its client')}"
    last_sign = max(filter(None, (session.last_heartbeat_at, agent.connected_at, agent.last_seen_at)))
    if session.closed_at is not None:  # what it did since then is not of this session
        gone = AgentActivity(Activity.GONE, session.closed_at, "its session was closed")
        return gone if last_sign <= session.closed_at else None
    if not can_wake and moment - last_sign > timedelta(seconds=CoordinationSettings.current().presence_ttl_seconds):
        return AgentActivity(Activity.GONE, last_sign, "no sign of life")
    over = session.activity_until is not None and session.activity_until <= moment
    if session.activity != Activity.IDLE and not over:
        return AgentActivity(Activity(session.activity), since, by, session.activity_until)
    if agent.muted_until is not None and agent.muted_until > moment:
        return AgentActivity(Activity.ASLEEP, since, "an operator muted it", agent.muted_until)
    return AgentActivity(Activity.IDLE if can_wake else Activity.ASLEEP, since, f"{by}; {why}")


WAITS = {
    Activity.ASKS: "{agent} waits for its person's answer; what you sent waits until then.",
    Activity.OUT_OF_QUOTA: "{agent} is out of quota{until}; what you sent waits. handoff_create with the target "
    "direct_with_fallback lets another agent take it.",
    Activity.ASLEEP: "{agent} is idle and cannot be woken{until} ({evidence}): its person must type something.",
    Activity.GONE: "{agent} is gone ({evidence}); what you sent waits for its next session.",
}


def why_it_waits(recipients: Collection[str], moment: datetime) -> str | None:
    """Return why what was sent waits for its only recipient; None if that one sees it soon, or nothing is known."""
    if len(recipients) != 1 or not any(sql.tells(agent_id=each) for each in recipients):
        return None
    for agent_id, found in activities(recipients, moment).items():
        if found.state in WAITS:
            until = f" until {found.until:%Y-%m-%d %H:%M} UTC" if found.until else ""
            return WAITS[found.state].format(agent=agent_id, until=until, evidence=found.evidence)
    return None
