"""The mail that a person must look at, and the actions on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from coordination.attention import agent_names
from coordination.models import Workspace
from coordination.presence import AgentState, Presence
from inbox import dead_letters, receipts
from inbox.models import Delivery, DeliveryStatus
from inbox.monitoring import Inbox, Picture
from nexus.core.coding_clients import WAKE
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Items
from nexus.core.operations.caller import OPERATOR_AGENT

MOST_OVERDUE = 200  # messages that are looked at
WOKEN_FOR = timedelta(minutes=5)  # in which an agent that was woken pulls its mail
LETTERS = ("dead letter", "dead letters")


def _dead_letters(picture: Picture, each: int) -> Items:
    parked, workspace = sum(inbox.parked for inbox in picture.inboxes.values()), picture.workspace
    if parked and workspace:
        parked = dead_letters.parked(workspace=workspace).count()
    letters = dead_letters.list_dead_letters(agent_id=None, limit=each, workspace=workspace) if parked else []
    return Items(
        parked,
        [
            AttentionItem(
                f"Dead letter of {letter.recipient_id}: {letter.message.subject[:120]}",
                f"from {letter.message.from_agent_id}, handed out {letter.attempts} times, never acknowledged",
                letter.delivery_id,
                letter.message_id,
                letter.created_at,
            )
            for letter in letters
        ],
    )


def _answers(picture: Picture, each: int) -> Items:
    mine = picture.inboxes.get(OPERATOR_AGENT, Inbox()).unread
    unread = Delivery.objects.of(OPERATOR_AGENT).with_status(DeliveryStatus.UNREAD, picture.moment)
    if mine and picture.workspace:
        unread = unread.filter(message__workspace_id=picture.workspace.pk)
        mine = unread.count()
    rows = unread.select_related("message").defer("message__body").order_by("delivery_id")[:each] if mine else []
    return Items(
        mine,
        [
            AttentionItem(
                f"{row.message.from_agent_id} wrote to you: {row.message.subject[:120]}",
                "unread",
                row.message_id,
                since=row.created_at,
            )
            for row in rows
        ],
    )


def _overdue(picture: Picture, each: int) -> Items:
    late = [
        (message, behind)
        for message, behind in receipts.overdue(picture.moment, MOST_OVERDUE, picture.workspace)
        if behind
    ]
    return Items(
        len(late),
        [
            AttentionItem(
                f"Not {receipts.Stages(str(message.expect)).label} in time: {message.subject[:120]}",
                f"{message.from_agent_id} expects it of {', '.join(behind[:5])}",
                message.message_id,
                since=message.expect_by,
            )
            for message, behind in late[:each]
        ],
    )


def _silent(picture: Picture, each: int) -> Items:
    """Find agents that do not see their mail, or whom a wake did not bring to pull it. One that needs its person stands
    among those."""
    unread = Delivery.objects.with_status(DeliveryStatus.UNREAD, picture.moment)
    told = unread.filter(noticed_at__lt=picture.moment - WOKEN_FOR, noticed_by__endswith=f", {WAKE}")
    woken = set(told.order_by().values_list("recipient_id", flat=True))
    waiting = [
        (state, inbox)
        for state in picture.agents
        if not (state.activity and state.activity.needs_person)
        and (state.agent_id in woken or not _sees_mail(state))
        and state.agent_id != OPERATOR_AGENT
        and state.agent_id in picture.team
        and (inbox := picture.inboxes.get(state.agent_id, Inbox())).unread
    ]
    fullest = sorted(waiting, key=lambda pair: -pair[1].unread)[:each]
    return Items(
        len(waiting),
        [
            AttentionItem(
                _why_silent(state, state.agent_id in woken),
                f"{inbox.unread} unread, the oldest",
                state.agent_id,
                since=inbox.oldest_unread,
            )
            for state, inbox in fullest
        ],
    )


def _sees_mail(state: AgentState) -> bool:
    return state.activity.sees_mail if state.activity else state.presence is Presence.PRESENT


def _why_silent(state: AgentState, is_woken: bool) -> str:
    if is_woken:
        return f"{state.agent_id} was woken, and did not pull its mail"
    return f"{state.agent_id} is {state.activity.title if state.activity else state.presence.label} with unread mail"


KINDS = (
    AttentionKind(
        "dead-letters",
        "Dead letters",
        "unsubscribe",
        34,
        _dead_letters,
        bad=True,
        page="inbox_message_change",
        look="Read",
        actions=("dead_letter_requeue", "dead_letter_forward", "dead_letter_acknowledge"),
        command="nexus dead-letters",
    ),
    AttentionKind(
        "answers",
        "Agents wrote to you",
        "mark_chat_unread",
        10,
        _answers,
        page="inbox_message_change",
        look="Read and answer",
        actions=("inbox_ack",),
        command="nexus inbox",
    ),
    AttentionKind(
        "overdue",
        "Not as far as its sender expects",
        "schedule",
        56,
        _overdue,
        page="inbox_message_change",
    ),
    AttentionKind(
        "silent",
        "Unread mail that nobody pulls",
        "mark_email_unread",
        70,
        _silent,
        page="agent",
        actions=("message_create",),
        command="nexus agents",
    ),
)


def _letter(delivery_id: str) -> dict[str, str]:
    return {"delivery_id": delivery_id}


def _answered(message_ids: Sequence[str]) -> dict[str, str]:
    mine = Delivery.objects.of(OPERATOR_AGENT).filter(message_id__in=message_ids)
    return dict(mine.values_list("message_id", "message__subject"))


def _letter_to(agent_id: str) -> dict[str, Any]:
    """Return what a message to an agent has, in the workspace where it was at work last."""
    there = Workspace.objects.filter(sessions__agent_id=agent_id).order_by("-sessions__started_at").first()
    workspace = there or Workspace.objects.order_by("-last_seen_at").first()
    return {
        "from_agent_id": OPERATOR_AGENT,
        "project_root": workspace and workspace.root_realpath,
        "subject": "From the operator",
        "target": {"strategy": "direct", "agent_id": agent_id},
    }


ACTIONS = (
    Action(
        "message_create",
        "Write…",
        "written to",
        ("agent", "agents"),
        _letter_to,
        agent_names,
        asks={"body": "Your message"},
        needed=["body"],
    ),
    Action(
        "dead_letter_requeue", "Requeue", "requeued", LETTERS, _letter, dead_letters.subjects, undo="dead_letter_park"
    ),
    Action(
        "dead_letter_acknowledge",
        "Acknowledge",
        "acknowledged",
        LETTERS,
        _letter,
        dead_letters.subjects,
        undo="dead_letter_park",
    ),
    Action(
        "dead_letter_forward",
        "Forward…",
        "forwarded",
        LETTERS,
        _letter,
        dead_letters.subjects,
        asks={"agent_id": "To which agent"},
        needed=["agent_id"],
    ),
    Action("dead_letter_park", "Undo", "parked again", LETTERS, _letter, dead_letters.subjects),
    Action(
        "inbox_ack",
        "Mark as read",
        "marked as read",
        ("message", "messages"),
        lambda message_id: {"agent_id": OPERATOR_AGENT, "message_ids": message_id},
        _answered,
    ),
)
