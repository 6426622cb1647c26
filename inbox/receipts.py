"""Receipts: how far a message has come with each recipient, and what proves it.

No stage is inferred from a later one: mail that was pulled without a notice was never noticed, as far as anybody knows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Annotated, NamedTuple, NotRequired

from django.db.models import Q, QuerySet, TextChoices
from pydantic import Field
from typing_extensions import TypedDict

from coordination.log.emit import emit
from coordination.models import Event, Stream, Workspace
from coordination.routing import Strategy, Visibility
from inbox import search, services
from inbox.models import ARRIVALS, Delivery, DeliveryStatus, Message
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.caller import HUB_AGENT
from nexus.core.operations.parameters import Time, one_of

MOST = 50  # acts that are looked at for one message
SHOWN = 5  # of one recipient
MESSAGE_ID = re.compile(r"\bmsg_[0-9a-f]{32}\b")
LONGEST_WAIT = 7 * 24 * 3600  # seconds
DUE_AT_ONCE = 50  # messages whose sender waits
GIVEN_UP = timedelta(days=1)


class Stages(TextChoices):
    """The stages of a delivery, in their order."""

    STORED = "stored", "stored"
    NOTICED = "noticed", "noticed"  # a hook, a push or a wake-up showed it to the recipient
    HANDED_OVER = "handed_over", "handed over"
    ACKNOWLEDGED = "acknowledged", "acknowledged"
    ACTED_ON = "acted_on", "acted on"  # the recipient did something that refers to it


TIMES: Mapping[str, str] = {
    Stages.NOTICED: "noticed_at",
    Stages.HANDED_OVER: "delivered_at",
    Stages.ACKNOWLEDGED: "read_at",
}


class Act(NamedTuple):
    """What a recipient did that refers to a message."""

    agent_id: str
    what: str  # such as "reply msg_…"
    at: datetime


Finder = Callable[[Message, Collection[str]], Iterable[Act]]  # (message, recipients)
_finders: list[Finder] = []


def register(finder: Finder) -> None:
    """Register a function that finds an app's acts on a message. It must use indexes and return a few."""
    _finders.append(finder)


class ReceiptStage(NamedTuple):
    """A stage of one delivery."""

    stage: Stages
    at: datetime | None  # None: it was not reached
    evidence: list[str]
    since: datetime  # when the latest stage before it was reached
    awaits: str  # what would bring it on


class Stage(TypedDict):
    stage: Annotated[str, one_of(Stages)]
    reached: bool
    at: NotRequired[Time]
    evidence: NotRequired[list[str]]
    since: NotRequired[Time]
    awaits: NotRequired[str]


class Receipt(TypedDict):
    recipient: str
    stages: list[Stage]


def notice(agent_id: str, message_ids: Collection[str], by: str) -> None:
    """Record what first named mail to its recipient."""
    unnoticed = Delivery.objects.of(agent_id).filter(message_id__in=message_ids, noticed_at=None)
    if unnoticed.exists():
        with write(agent_id):
            unnoticed.update(noticed_at=now(), noticed_by=by)


class MentionedMessage(NamedTuple):
    """A message that a commit names."""

    commit: str
    message_id: str


def named_in(commits: Iterable[tuple[str, str]]) -> list[MentionedMessage]:
    """Return the messages that commits name, each with the text of its own message."""
    return [
        MentionedMessage(commit, named) for commit, text in commits for named in dict.fromkeys(MESSAGE_ID.findall(text))
    ]


def record_commits(agent_id: str, found: Collection[MentionedMessage], where: str) -> None:
    """Record commits in an agent's work that name mail to it, the first SHOWN for each message."""
    by_message: dict[str, list[str]] = defaultdict(list)
    for named in found:
        by_message[named.message_id].append(named.commit)
    if not by_message or not Delivery.objects.of(agent_id).filter(message_id__in=by_message).exists():
        return
    with write(agent_id):
        rows = Delivery.objects.select_for_update().of(agent_id).filter(message_id__in=by_message).order_by("pk")
        for delivery in rows:
            known = delivery.commits or []
            seen = {each["commit"] for each in known}
            more = [commit for commit in by_message[delivery.message_id] if commit not in seen]
            if more := more[: SHOWN - len(known)]:
                at = iso(now())
                delivery.commits = [*known, *({"commit": commit, "where": where, "at": at} for commit in more)]
                delivery.save(update_fields=["commits"])


class Expected(TypedDict):
    stage: Annotated[str, one_of(Stages)]
    by: NotRequired[Annotated[Time, Field(description="Left out once all recipients have reached it.")]]


def expected_row(message: Message) -> Expected:
    """Return the row of what a sender expects."""
    data: Expected = {"stage": str(message.expect)}
    return data if message.expect_by is None else {**data, "by": iso(message.expect_by)}


def receipt_row(delivery: Delivery, steps: Iterable[ReceiptStage]) -> Receipt:
    """Return the row of a receipt: of a stage that was not reached, what it waits for."""
    stages: list[Stage] = [
        {"stage": step.stage, "reached": False, "since": iso(step.since), "awaits": step.awaits}
        if step.at is None
        else {"stage": step.stage, "reached": True, "at": iso(step.at), "evidence": step.evidence}
        for step in steps
    ]
    return {"recipient": delivery.recipient_id, "stages": stages}


def steps(message: Message, deliveries: Collection[Delivery]) -> list[tuple[Delivery, list[ReceiptStage]]]:
    """Return each of the deliveries of a message with its stages."""
    acts: dict[str, list[Act]] = defaultdict(list)
    for act in sorted(_acts(message, {delivery.recipient_id for delivery in deliveries}), key=lambda act: act.at):
        acts[act.agent_id].append(act)
    return [(delivery, list(_steps(delivery, acts[delivery.recipient_id]))) for delivery in deliveries]


def _acts(message: Message, recipients: Collection[str]) -> Iterator[Act]:
    replies = message.replies.filter(from_agent_id__in=recipients).order_by("message_id")
    for sender, message_id, at in replies.values_list("from_agent_id", "message_id", "created_at")[:MOST]:
        yield Act(sender, f"reply {message_id}", at)
    named = search.documents(message.message_id, limit=MOST)
    events = Event.objects.filter(pk__in=named, actor_agent_id__in=recipients).exclude(type__in=ARRIVALS)
    for actor, type, event_id, at in events.values_list("actor_agent_id", "type", "event_id", "created_at"):
        yield Act(str(actor), f"{type}, event {event_id}", at)
    of_commits = Delivery.objects.filter(message=message, recipient__in=recipients, commits__isnull=False)
    for recipient, commits in of_commits.values_list("recipient_id", "commits")[:MOST]:
        for each in commits or ():
            what = f"commit {each['commit'][:12]} {each['where']}, as its text says"
            yield Act(recipient, what, datetime.fromisoformat(each["at"]))
    for finder in _finders:
        yield from finder(message, recipients)


def _steps(delivery: Delivery, acts: list[Act]) -> Iterator[ReceiptStage]:
    who = delivery.recipient_id
    handed = f"handed out {delivery.attempts} times" if delivery.attempts > 1 else None
    noticed = (
        "nothing more, because it was pulled without a notice"
        if delivery.delivered_at
        else f"a hook, a push over MCP or a wake-up of {who}"
    )
    parked = delivery.status == DeliveryStatus.PARKED
    settled = "an operator: it is a dead letter" if parked else f"inbox_ack by {who}"
    acted = f"a reply, or another act or a commit of {who} that names {delivery.message_id}"
    known: list[tuple[Stages, datetime | None, list[str | None], str]] = [
        (Stages.STORED, delivery.created_at, [delivery.delivery_id], ""),
        (Stages.NOTICED, delivery.noticed_at, [delivery.noticed_by], noticed),
        (Stages.HANDED_OVER, delivery.delivered_at, [delivery.delivered_to, handed], f"inbox_pull by {who}"),
        (Stages.ACKNOWLEDGED, delivery.read_at, [delivery.read_by], settled),
        (Stages.ACTED_ON, acts[0].at if acts else None, [act.what for act in acts[:SHOWN]], acted),
    ]
    since = delivery.created_at
    for stage, at, evidence, awaits in known:
        yield ReceiptStage(stage, at, [each for each in evidence if each], since, awaits)
        since = max(since, at or since)


# Deliveries that have not come as far as expected; who has acted is looked up afterwards.
BEHIND = reduce(
    or_,
    (Q(message__expect=stage, **{column: None}) for stage, column in TIMES.items()),
    Q(message__expect=Stages.ACTED_ON),
)


def behind(messages: Collection[Message]) -> dict[str, list[str]]:
    """Return the recipients that have not come as far as the sender expects, by message_id."""
    late = Delivery.objects.filter(BEHIND, message__in=messages).order_by("recipient_id")
    found: dict[str, list[str]] = {message.pk: [] for message in messages}
    for message_id, recipient in late.values_list("message_id", "recipient_id"):
        found[message_id].append(recipient)
    for message in messages:
        if message.expect == Stages.ACTED_ON:
            acted = {act.agent_id for act in _acts(message, found[message.pk])}
            found[message.pk] = [recipient for recipient in found[message.pk] if recipient not in acted]
    return found


def overdue(moment: datetime, limit: int, workspace: Workspace | None = None) -> list[tuple[Message, list[str]]]:
    """Return the messages that came overdue last, of one workspace or of all, each with the recipients that are behind:
    none where all got there late."""
    rows = _due(moment) if workspace is None else _due(moment).filter(workspace_id=workspace.pk)
    due = list(rows.order_by("-expect_by")[:limit])
    late = behind(due)
    return [(message, late[message.pk]) for message in due]


def _due(moment: datetime) -> QuerySet[Message]:
    return Message.objects.filter(expect_by__lt=moment).defer("body")


def notify_senders() -> None:
    """Notify senders, once, which recipients have not come as far as expected in time. A reaper calls it.

    After GIVEN_UP nobody looks any more whether they got there late.
    """
    moment = now()
    due = _due(moment)
    if due.filter(told_at__lt=moment - GIVEN_UP).exists():
        with write():
            due.filter(told_at__lt=moment - GIVEN_UP).update(expect_by=None)
    notified = due.filter(told_at__isnull=False).order_by("-told_at")[:DUE_AT_ONCE]
    messages = [*due.filter(told_at=None).order_by("expect_by")[:DUE_AT_ONCE], *notified]
    late = behind(messages)
    for message in messages:
        recipients = late[message.pk]
        if recipients and message.told_at:
            continue
        with write():
            same = Message.objects.filter(pk=message.pk, expect_by=message.expect_by, told_at=message.told_at)
            if same.update(**({"told_at": moment} if recipients else {"expect_by": None})) and recipients:
                _notify(message, recipients, moment)


def _notify(message: Message, recipients: list[str], moment: datetime) -> None:
    emit(
        workspace_id=message.workspace_id,
        stream=Stream.WORKSPACE,
        type="message.overdue",
        actor=None,
        payload={
            "message_id": message.message_id,
            "subject": message.subject,
            "expected": message.expect,
            "recipients": recipients,
        },
        moment=moment,
        visibility=Visibility.PRIVATE,
        target={"strategy": Strategy.DIRECT.value, "agent_id": message.from_agent_id},
    )
    services.notify(
        workspace_id=message.workspace_id,
        from_agent_id=HUB_AGENT,
        recipient=message.from_agent_id,
        subject=f"Not {Stages(str(message.expect)).label} in time: {message.subject[:120]}",
        body=f"You expected this of the message {message.message_id}, and these have not come so far: "
        f"{', '.join(recipients[:20])}. message_receipts says what each waits for.",
        moment=moment,
        trace_id=message.trace_id,
    )
