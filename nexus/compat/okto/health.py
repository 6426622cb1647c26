"""The health of a workspace's coordination, as okto-nexus 0.3.1 reports it: counts, and what is over its threshold."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Annotated, Literal

from django.db.models import Count, Min, Q, QuerySet
from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.ids import id_floor
from coordination.log.selectors import first_event_at
from coordination.models import Agent, Event
from coordination.parameters import MOUNTED
from coordination.presence import Presence, agents_in, states_of
from coordination.services import workspaces
from coordination.toolset import operation
from handoffs.models import Handoff, HandoffStatus
from inbox.models import Delivery, DeliveryStatus, Message
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Id, OfConnection, Params, Time

WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
THRESHOLDS = {
    "unclaimed_handoff_age_seconds": 1800,
    "avg_claim_to_complete_seconds": 3600,
    "rejection_rate": 0.25,
    "per_agent_unread": 25,
    "stale_agents": 0,
}
FEWEST_CREATED = 4  # handoffs, that a rate of rejections tells something
AGENTS = 20  # whose unread mail is listed; that of the others is one number
STEPS = 5_000  # events of handoffs that one look reads


class CoordinationHealth(Params):
    project_root: Annotated[
        str | None, OfConnection(unless="workspace_id"), MOUNTED, Field(max_length=4096, description="Absolute path.")
    ] = None
    window: Annotated[Literal["1h", "24h", "7d"], Field(description="How far back counts go.")] = "24h"
    workspace_id: Annotated[Id | None, Field(description="In place of project_root.")] = None
    agent_id: Annotated[Id | None, Field(description="You.")] = None


class Metric(TypedDict):
    scope: Literal["windowed", "snapshot"]
    status: Literal["ok", "warn"]


class Volume(Metric):
    count: int


class Unclaimed(Volume):
    oldest_age_seconds: float | None


class Completion(Metric):
    completed_pairs: int
    avg_claim_to_complete_seconds: float | None
    truncated: bool


class Rejections(Metric):
    created: int
    rejected: int
    rejection_rate: float | None
    truncated: bool


class Unread(TypedDict):
    agent_id: str
    unread: int


class Backlog(Metric):
    total_unread: int
    per_agent: list[Unread]
    others_unread: int


class PresenceCounts(Metric):
    present: int
    stale: int
    offline: int


class Metrics(TypedDict):
    message_volume: Volume
    event_volume: Volume
    unclaimed_handoffs: Unclaimed
    handoff_completion: Completion
    handoff_rejections: Rejections
    inbox_backlog: Backlog
    agent_presence: PresenceCounts


class Health(TypedDict):
    workspace_id: str
    window: str
    window_seconds: int
    generated_at: Time
    status: Literal["ok", "warn"]
    metrics: Metrics
    thresholds: dict[str, float]


@operation(
    CoordinationHealth,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    acts_as="agent_id",
    read_only=True,
    slow=True,
    advertised=False,
)
def coordination_health(p: CoordinationHealth, caller: Caller) -> Health:
    """How a workspace's coordination goes: messages, events, handoffs that nobody takes, how long they take, how many
    are rejected, unread mail and presence, each ok or warn. For clients of okto-nexus; it changes nothing."""
    if p.workspace_id is None and p.project_root is None:
        raise NexusError(CoordinationCode.WORKSPACE_REQUIRED, "Pass project_root, or workspace_id.")
    workspace_id = workspaces.require(p.workspace_id or workspaces.locate(str(p.project_root)).workspace_id).pk
    moment, window = now(), WINDOWS[p.window]
    since = moment - window
    first = first_event_at(since)
    log = (
        Event.objects.none() if first is None else Event.objects.filter(workspace_id=workspace_id, event_id__gte=first)
    )
    sent = Message.objects.filter(workspace_id=workspace_id, pk__gte=id_floor("msg", since))
    completion, rejections = _work(log.filter(stream="handoff"))
    metrics: Metrics = {
        "message_volume": {"scope": "windowed", "status": "ok", "count": sent.count()},
        "event_volume": {"scope": "windowed", "status": "ok", "count": log.count()},
        "unclaimed_handoffs": _unclaimed(workspace_id, moment),
        "handoff_completion": completion,
        "handoff_rejections": rejections,
        "inbox_backlog": _backlog(workspace_id, moment),
        "agent_presence": _presence(workspace_id, moment),
    }
    warned = any(metric["status"] == "warn" for metric in metrics.values())  # type: ignore[index]
    return {
        "workspace_id": workspace_id,
        "window": p.window,
        "window_seconds": int(window.total_seconds()),
        "generated_at": iso(moment),
        "status": "warn" if warned else "ok",
        "metrics": metrics,
        "thresholds": THRESHOLDS,
    }


def _status(value: float | None, threshold: str) -> Literal["ok", "warn"]:
    return "warn" if value is not None and value > THRESHOLDS[threshold] else "ok"


def _unclaimed(workspace_id: str, moment: datetime) -> Unclaimed:
    waiting = Handoff.objects.filter(workspace_id=workspace_id).in_state(HandoffStatus.OPEN, moment)
    count, oldest = waiting.aggregate(count=Count("pk"), oldest=Min("created_at")).values()
    age = None if oldest is None else round(max((moment - oldest).total_seconds(), 0.0), 1)
    return {
        "scope": "snapshot",
        "status": _status(age, "unclaimed_handoff_age_seconds"),
        "count": count,
        "oldest_age_seconds": age,
    }


def _work(log: QuerySet[Event]) -> tuple[Completion, Rejections]:
    """Return how long work took from its last claim to its end, where both are in the window, and what was rejected."""
    steps = log.filter(
        type__in=("handoff.created", "handoff.claimed", "handoff.completed", "handoff.rejected")
    ).order_by("event_id")
    read = list(steps.values_list("handoff_id", "type", "created_at")[: STEPS + 1])
    truncated = len(read) > STEPS
    claimed: dict[str | None, datetime] = {}
    took: dict[str | None, float] = {}
    counts: Counter[str] = Counter()
    for handoff_id, type, at in read[:STEPS]:
        counts[type] += 1
        if type == "handoff.claimed":
            claimed[handoff_id] = at
        elif type == "handoff.completed" and handoff_id in claimed:
            took.setdefault(handoff_id, (at - claimed[handoff_id]).total_seconds())
    average = round(sum(took.values()) / len(took), 1) if took else None
    created, rejected = counts["handoff.created"], counts["handoff.rejected"]
    rate = round(rejected / created, 4) if created else None
    completion: Completion = {
        "scope": "windowed",
        "status": _status(average, "avg_claim_to_complete_seconds"),
        "completed_pairs": len(took),
        "avg_claim_to_complete_seconds": average,
        "truncated": truncated,
    }
    return completion, {
        "scope": "windowed",
        "status": _status(rate if created >= FEWEST_CREATED else None, "rejection_rate"),
        "created": created,
        "rejected": rejected,
        "rejection_rate": rate,
        "truncated": truncated,
    }


def _backlog(workspace_id: str, moment: datetime) -> Backlog:
    unread = Q(status=DeliveryStatus.UNREAD) | Q(status=DeliveryStatus.DELIVERED, lease_expires_at__lt=moment)
    rows = Delivery.objects.filter(unread, message__workspace=workspace_id).values_list("recipient_id")
    counted = list(rows.annotate(count=Count("pk")).order_by("-count", "recipient_id"))
    return {
        "scope": "snapshot",
        "status": _status(counted[0][1] if counted else None, "per_agent_unread"),
        "total_unread": sum(count for _, count in counted),
        "per_agent": [{"agent_id": agent_id, "unread": count} for agent_id, count in counted[:AGENTS]],
        "others_unread": sum(count for _, count in counted[AGENTS:]),
    }


def _presence(workspace_id: str, moment: datetime) -> PresenceCounts:
    team = Agent.objects.filter(pk__in=agents_in(workspace_id))
    counted = Counter(state.presence for state in states_of(list(team), moment))
    return {
        "scope": "snapshot",
        "status": _status(counted[Presence.STALE], "stale_agents"),
        "present": counted[Presence.PRESENT],
        "stale": counted[Presence.STALE],
        "offline": counted[Presence.OFFLINE],
    }
