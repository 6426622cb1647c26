"""The webhooks, and addresses for notices, that an operator must look at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from coordination.attention import agent_names, the_agent
from coordination.paths import workspace_id_of
from inbox.monitoring import Inbox, Picture
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Items
from nexus.core.harness_events import Activity
from nexus.hooks import problems
from nexus.hooks.forms import NoticeForm
from nexus.hooks.models import NoticeAddress, Webhook


def _failing_webhooks(picture: Picture, each: int) -> Items:
    """Find webhooks to which an event could not be sent more than once in a row."""
    rows = list(Webhook.objects.filter(failures__gt=1).order_by("created_at"))
    rows = [row for row in rows if picture.includes(row.workspace_id)]
    needs = [AttentionItem(f"{row.url[:120]} fails", row.last_error or "", row.pk) for row in rows[:each]]
    return Items(len(rows), needs)


def _silent_addresses(picture: Picture, each: int) -> Items:
    """Find addresses to which notices failed more than once in a row."""
    rows = list(NoticeAddress.objects.filter(failures__gt=1).order_by("created_at"))
    rows = [row for row in rows if picture.includes(row.workspace_id)]
    needs = [AttentionItem(f"Notices to {row.name} fail", row.last_error or "", row.pk) for row in rows[:each]]
    return Items(len(rows), needs)


def _failing_hooks(picture: Picture, each: int) -> Items:
    """Find hooks that fail, or that a client does not run."""
    rows = [row for row in problems.list_problems() if picture.includes(workspace_id_of(row.project_root))]
    needs = [AttentionItem(row.title, row.advice, row.hook_id, since=row.since) for row in rows[:each]]
    return Items(len(rows), needs)


ASKED_FOR = timedelta(minutes=1)  # an agent's person may be answering it right now


def _attached(picture: Picture, each: int) -> Items:
    """Find agents in people's terminals that cannot go on without their person."""
    needs = [
        AttentionItem(
            f"{state.agent_id} is {found.title}",
            f"{found.evidence}; {picture.inboxes.get(state.agent_id, Inbox()).unread} unread",
            state.agent_id,
            "",
            found.since,
            found.until,
        )
        for state in picture.agents
        if state.agent_id in picture.team
        and (found := state.activity)
        and found.needs_person
        and not found.has_question
        and (found.state is not Activity.ASKS or picture.moment - found.since >= ASKED_FOR)
    ]
    return Items(len(needs), needs[:each])


KINDS = (
    AttentionKind(
        "attached",
        "Agents that wait for their person",
        "person_alert",
        4,
        _attached,
        page="agent",
        actions=("message_create", "agent_mute"),
        command="nexus agents",
    ),
    AttentionKind(
        "hooks",
        "Hooks that fail, or do not run",
        "link_off",
        42,
        _failing_hooks,
        actions=("hook_dismiss",),
        command="nexus setup --check",
    ),
    AttentionKind(
        "notices",
        "Notices that fail",
        "notifications_off",
        41,
        _silent_addresses,
        page="hooks_noticeaddress_change",
        actions=("notice_test",),
        command="nexus notices",
    ),
    AttentionKind(
        "webhooks",
        "Webhooks that fail",
        "webhook",
        40,
        _failing_webhooks,
        page="hooks_webhook_change",
        actions=("webhook_redeliver",),
        command="nexus webhooks",
    ),
)


def _urls(webhook_ids: Sequence[str]) -> dict[str, str]:
    return dict(Webhook.objects.filter(pk__in=webhook_ids).values_list("pk", "url"))


def _addresses(notice_ids: Sequence[str]) -> dict[str, str]:
    return dict(NoticeAddress.objects.filter(pk__in=notice_ids).values_list("pk", "name"))


def _hooks(hook_ids: Sequence[str]) -> dict[str, str]:
    return {each.hook_id: each.title for each in problems.list_problems() if each.hook_id in hook_ids}


def _changed_address(notice_id: str, data: Any) -> NoticeForm:
    return NoticeForm(data, NoticeAddress.objects.filter(pk=notice_id).first())


ACTIONS = (
    Action(
        "agent_mute",
        "Mute…",
        "muted",
        ("agent", "agents"),
        the_agent,
        agent_names,
        asks={"lasting": "For how long nothing wakes it, such as 1h, 30m or 2d; 0 ends it"},
        needed=["lasting"],
    ),
    Action(
        "hook_dismiss",
        "Dismiss",
        "dismissed",
        ("hook", "hooks"),
        lambda hook_id: {"hook_id": hook_id},
        _hooks,
    ),
    Action(
        "notice_test",
        "Send a test",
        "sent a test, and took it",
        ("address", "addresses"),
        lambda notice_id: {"notice_id": notice_id},
        _addresses,
    ),
    Action(
        "notice_update",
        "Change…",
        "changed",
        ("address", "addresses"),
        lambda notice_id: {"notice_id": notice_id},
        _addresses,
        form=_changed_address,
    ),
    Action(
        "notice_remove",
        "Remove",
        "removed",
        ("address", "addresses"),
        lambda notice_id: {"notice_id": notice_id},
        _addresses,
        danger=True,
    ),
    Action(
        "webhook_redeliver",
        "Try again",
        "told to try again",
        ("webhook", "webhooks"),
        lambda webhook_id: {"webhook_id": webhook_id},
        _urls,
    ),
    Action(
        "webhook_remove",
        "Remove",
        "removed",
        ("webhook", "webhooks"),
        lambda webhook_id: {"webhook_id": webhook_id},
        _urls,
        danger=True,
    ),
)
