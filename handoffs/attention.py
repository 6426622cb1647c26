"""The handoffs that a person must look at: stuck, without a claim, or waiting for a verdict. And the actions on one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

from coordination import debts
from coordination.debts import Debt
from coordination.models import Event, Workspace
from coordination.presence import Presence
from coordination.routing import Strategy, Target, describe, eligible_agents
from handoffs import verifiers
from handoffs.debts import PATIENCE
from handoffs.events import titles
from handoffs.lifecycle import STEPS, Party
from handoffs.models import (
    HELD,
    STREAM,
    CheckRun,
    Handoff,
    HandoffQuerySet,
    HandoffStatus,
    can_start,
)
from inbox.monitoring import Picture
from nexus.core.clock import iso
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Items

RECENT = timedelta(days=1)  # since a deadline passed: who has not offered the work again by then does not want to
UNTAKEN = timedelta(minutes=10)  # without progress on an open handoff, although an agent may take it
EXAMINED = 200  # open handoffs looked at, the oldest
NAMED = 3  # agents, or debts of one, that a line names


class UnclaimedReason(NamedTuple):
    """The reason why nobody claims an open handoff."""

    handoff: Handoff
    why: str
    ever: bool  # whether some agent might yet


def _submitted(picture: Picture, each: int) -> Items:
    """Find submitted handoffs that an operator must decide about, and those that nobody else decided about in time."""
    rows = _rows(picture, HandoffStatus.SUBMITTED).select_related("workspace")
    found, or_more = verifiers.for_person(CheckRun, "handoff", rows, picture)
    needs = [AttentionItem(row.title, why, row.pk, since=row.since) for row, why in found[:each]]
    return Items(len(found), needs, or_more)


def _blocked(picture: Picture, each: int) -> Items:
    rows = _rows(picture, HandoffStatus.BLOCKED).filter(lease_expires_at__gte=picture.moment)
    return _find_items(rows, each, lambda row: f"{row.claimed_by} cannot go on: {(row.blocked_reason or '')[:300]}")


def _lapsed(picture: Picture, each: int) -> Items:
    """Find handoffs whose lease expired and that nobody has claimed since."""
    lapsed = Handoff.objects.lapsed(picture.moment)
    if picture.workspace:
        lapsed = lapsed.filter(workspace=picture.workspace)
    unrecorded = [
        AttentionItem(row.title, f"the lease of {row.claimed_by} ran out", row.pk, since=row.lease_expires_at)
        for row in _light(lapsed).order_by("lease_expires_at")[:EXAMINED]
    ]
    came_back = [row for row in picture.once(_open) if row.updated_at > row.created_at]
    events = Event.objects.filter(handoff_id__in=[row.pk for row in came_back], stream=STREAM)
    acts = events.exclude(type="handoff.remarked").order_by("event_id")  # what comes too late takes no work
    last = {event.handoff_id: event for event in acts} if came_back else {}
    recorded = [
        AttentionItem(
            row.title, f"the lease of {event.payload.get('claimed_by')} ran out", row.pk, since=event.created_at
        )
        for row in came_back
        if (event := last.get(row.pk)) is not None and event.type == "handoff.expired"
    ]
    needs = unrecorded + recorded
    return Items(len(needs), needs[:each], or_more=len(picture.once(_open)) == EXAMINED)


def _overdue(picture: Picture) -> list[Debt]:
    return [debt for debt in debts.overdue(PATIENCE) if picture.includes(debt.workspace_id)]


def _away(picture: Picture) -> set[str]:
    return {state.agent_id for state in picture.agents if state.presence is Presence.OFFLINE}


def _idle(picture: Picture, each: int) -> Items:
    """Find handoffs whose holders do nothing, present or not. A blocked one is listed as that."""
    held = {debt.identifier: debt for debt in picture.once(_overdue) if debt.kind == "handoff"}
    blocked = Handoff.objects.filter(pk__in=list(held), status=HandoffStatus.BLOCKED) if held else ()
    elsewhere = {row.pk for row in blocked}
    away = picture.once(_away)
    needs = [
        AttentionItem(
            debt.what,
            f"{debt.agent_id} has it and {'is away' if debt.agent_id in away else 'does nothing'}",
            handoff_id,
            since=debt.since,
        )
        for handoff_id, debt in held.items()
        if handoff_id not in elsewhere
    ]
    return Items(len(needs), needs[:each])


def debtors(picture: Picture) -> Mapping[str, Sequence[Debt]]:
    """Return, by agent, the overdue debts of agents that are present and idle, oldest first, without the handoffs that
    they hold. For `Picture.once`."""
    away = picture.once(_away)
    there = (debt for debt in picture.once(_overdue) if debt.kind != "handoff" and debt.agent_id not in away)
    return {agent_id: list(its) for agent_id, its in groupby(there, key=lambda debt: debt.agent_id)}


def _debts(picture: Picture, each: int) -> Items:
    found = picture.once(debtors)
    needs = [
        AttentionItem(f"{agent_id} has work to do and does nothing", _describe(its), agent_id, since=its[0].since)
        for agent_id, its in list(found.items())[:each]
    ]
    return Items(len(found), needs)


def _describe(owed: Sequence[Debt]) -> str:
    """Describe the oldest debts, each with its creditor, and how many more there are."""
    names = [f"{debt.kind} {debt.what[:120]}{f' to {debt.to}' if debt.to else ''}" for debt in owed[:NAMED]]
    return "; ".join([*names, f"{len(owed) - NAMED} more"] if len(owed) > NAMED else names)


def _missed(picture: Picture, each: int) -> Items:
    may_be = (HandoffStatus.EXPIRED, HandoffStatus.OPEN, *HELD)  # as it is stored
    missed = _here(picture, Handoff.objects.in_state(HandoffStatus.EXPIRED, picture.moment)).filter(status__in=may_be)
    rows = _light(missed).filter(deadline_at__gte=picture.moment - RECENT).order_by("deadline_at")
    found = list(rows[:EXAMINED])
    again = Event.objects.filter(handoff_id__in=[row.pk for row in found], type="handoff.reoffered")
    done = set(again.values_list("handoff_id", flat=True)) if found else set()
    needs = [
        AttentionItem(row.title, f"nobody had it by its deadline; it was for {describe(row.target)[:120]}", row.pk,
             since=row.deadline_at)
        for row in found
        if row.pk not in done
    ]  # fmt: skip
    return Items(len(needs), needs[:each], or_more=len(found) == EXAMINED)


def _orphans(picture: Picture, each: int) -> Items:
    return _untakeable(picture, each, ever=False)


def _untaken(picture: Picture, each: int) -> Items:
    return _untakeable(picture, each, ever=True)


def _untakeable(picture: Picture, each: int, *, ever: bool) -> Items:
    these = [verdict for verdict in picture.once(_verdicts) if verdict.ever is ever]
    needs = [AttentionItem(row.title, why, row.pk, since=row.updated_at) for row, why, _ in these[:each]]
    return Items(len(these), needs, or_more=len(picture.once(_open)) == EXAMINED)


def _verdicts(picture: Picture) -> list[UnclaimedReason]:
    """Return the open handoffs that nobody claims, oldest first, each with the reason. Each distinct target is
    compared with the agents once, however many handoffs have it."""
    profiles = [state.agent.profile for state in picture.agents]
    away = {state.agent_id for state in picture.agents if state.presence is Presence.OFFLINE}
    admitted: dict[str, list[str]] = {}
    verdicts = []
    for row in picture.once(_open):
        key = json.dumps([row.target, iso(row.created_at) if _timed(row.target) else None])
        if key not in admitted:
            these = eligible_agents(row.target, profiles, created_at=row.created_at, now=picture.moment)
            admitted[key] = [agent.agent_id for agent in these]
        may = admitted[key]
        if not may:
            verdicts.append(UnclaimedReason(row, _why_nobody(row.target), False))
        elif row.updated_at <= picture.moment - UNTAKEN:  # it may have been given to another since
            if away.issuperset(may):
                verdicts.append(
                    UnclaimedReason(row, f"{_comma_separated(may)} {'is' if len(may) == 1 else 'are'} offline", True)
                )
            elif row.target["strategy"] == Strategy.DIRECT:
                verdicts.append(UnclaimedReason(row, f"{may[0]} has not taken it", True))
    return verdicts


def _timed(target: Target) -> bool:
    return Strategy.DIRECT_WITH_FALLBACK.value in json.dumps(target)


def _why_nobody(target: Target) -> str:
    match target["strategy"]:
        case Strategy.CAPABILITY:
            wanted = target["capability"]
            names = [wanted] if isinstance(wanted, str) else wanted
            return f"nobody has the capability {' or '.join(names)[:200]}"
        case Strategy.ROLE:
            return f"nobody has the role {target['role']}"
        case Strategy.TAG:
            return f"nobody is {describe(target)[:200]}"
        case Strategy.DIRECT:
            return f"there is no agent {target['agent_id']}"
        case Strategy.DIRECT_WITH_FALLBACK:
            return f"there is no agent {target['agent_id']}, and nobody whom its fallback admits now"
        case Strategy.BROADCAST:
            return "there is no agent"
    return f"nobody is among {describe(target)[:200]}"


def _comma_separated(names: Sequence[str]) -> str:
    """Join names with commas; of many, name the first ones and count the rest."""
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _open(picture: Picture) -> list[Handoff]:
    """Return the open handoffs to look at, oldest first, without those that wait for others and those whose deadline
    has passed."""
    rows = _here(picture, Handoff.objects.open().filter(can_start())).only(
        "title", "target", "created_at", "updated_at"
    )
    return list(rows.exclude(deadline_at__lt=picture.moment).order_by("created_event_id")[:EXAMINED])


def _rows(picture: Picture, status: HandoffStatus) -> HandoffQuerySet:
    return _light(_here(picture, Handoff.objects.filter(status=status))).order_by("updated_at")


def _here(picture: Picture, rows: HandoffQuerySet) -> HandoffQuerySet:
    """Restrict to the picture's workspace, or to all by name: so the indexes by workspace serve, and settled handoffs
    are not read."""
    workspaces = Workspace.objects.filter(pk=picture.workspace.pk) if picture.workspace else Workspace.objects.all()
    return rows.filter(workspace__in=workspaces.values("pk"))


def _light(rows: HandoffQuerySet) -> HandoffQuerySet:
    return rows.defer("payload", "result")


def _find_items(rows: HandoffQuerySet, each: int, said: Callable[[Handoff], str]) -> Items:
    count = rows.count()
    shown = rows[:each] if count else []
    return Items(count, [AttentionItem(row.title, said(row), row.pk, since=row.updated_at) for row in shown])


def _kind(name: str, title: str, icon: str, rank: int, find: Callable[[Picture, int], Items], *actions: str,
          command: str = "nexus handoffs") -> AttentionKind:  # fmt: skip
    return AttentionKind(
        name, title, icon, rank, find, page="handoffs_handoff_change", actions=actions, command=command
    )


KINDS = (
    _kind("submitted", "Waits for your word", "rule", 21, _submitted, "handoff_approve", "handoff_send_back",
          command="nexus handoffs --status submitted"),
    _kind("blocked", "Blocked", "block", 36, _blocked, "handoff_release", "handoff_reassign",
          command="nexus handoffs --status blocked"),
    _kind("orphans", "Nobody may take it", "person_off", 37, _orphans, "handoff_reassign", "handoff_withdraw"),
    _kind("missed", "Deadline missed", "event_busy", 38, _missed, "handoff_reoffer",
          command="nexus handoffs --status expired"),
    _kind("lapsed", "Lease ran out", "timer_off", 39, _lapsed, "handoff_reassign", "handoff_withdraw"),
    _kind("idle", "Held, and nobody works on it", "hourglass_bottom", 50, _idle,
          "handoff_release", "handoff_reassign", command="nexus handoffs --status claimed"),
    AttentionKind("debts", "Has work to do, and does nothing", "sms_failed", 51, _debts, page="agent",
          actions=("message_create",), command="nexus agents"),
    _kind("untaken", "Not taken for long", "hourglass_empty", 55, _untaken, "handoff_reassign", "handoff_withdraw"),
)  # fmt: skip


def _handoff(handoff_id: str) -> dict[str, str]:
    return {"handoff_id": handoff_id}


def _action(
    operation: str,
    label: str,
    done: str,
    asks: Mapping[str, str] = {},  # never changed
    *,
    needed: Sequence[str] = (),
    danger: bool = False,
) -> Action:
    things = ("handoff", "handoffs")
    return Action(operation, label, done, things, _handoff, titles, asks, needed, danger=danger)


WHY = "Why (sent to the agents concerned)"

ACTIONS = (
    _action("handoff_approve", "Accept", "accepted"),
    _action("handoff_send_back", "Return…", "returned", {"reasons": "What is wrong with it"}, needed=["reasons"]),
    _action("handoff_release", "Release…", "released", {"reason": WHY}),
    _action(
        "handoff_reassign",
        "Reassign…",
        "reassigned",
        {"agent_id": "To which agent", "reason": WHY},
        needed=["agent_id"],
    ),
    _action("handoff_prolong", "Extend", "extended"),
    _action(
        "handoff_reoffer", "Offer again…", "offered again", {"agent_id": "For which agent alone (nobody: as before)"}
    ),
    _action("handoff_withdraw", "Cancel…", "cancelled", {"reason": "Reason (optional)"}, danger=True),
)

VERBS = {  # by step of the lifecycle, the action that takes it; the likeliest first
    "accept": "handoff_approve",
    "return": "handoff_send_back",
    "extend": "handoff_prolong",
    "release": "handoff_release",
    "reassign": "handoff_reassign",
    "reoffer": "handoff_reoffer",
    "cancel": "handoff_withdraw",
}


def possible(status: str) -> list[Action]:
    """Return the actions that an operator can take on a handoff in a state."""
    by_name = {action.operation: action for action in ACTIONS}
    steps = ((operation, STEPS.get((verb, status))) for verb, operation in VERBS.items())
    return [by_name[operation] for operation, step in steps if step is not None and Party.OPERATOR in step.who]
