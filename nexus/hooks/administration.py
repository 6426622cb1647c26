"""The operations on webhooks and notices, for operators only."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import ProjectRoot
from coordination.toolset import operation
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Nothing, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.hooks import notices, problems, webhooks
from nexus.hooks.models import NoticeAddress, Webhook


class WebhookRow(TypedDict):
    webhook_id: str
    url: str
    agent_id: str | None
    workspace_id: str | None
    types: list[str] | None
    allow_private: bool
    created_at: Time
    last_delivered_at: Time | None
    last_error: str | None
    given_up: Annotated[int, Field(description="Events whose attempts all failed.")]


def webhook_row(webhook: Webhook) -> WebhookRow:
    return {
        "webhook_id": webhook.webhook_id,
        "url": webhook.url,
        "agent_id": webhook.agent_id,
        "workspace_id": webhook.workspace_id,
        "types": webhook.types,
        "allow_private": webhook.allow_private,
        "created_at": iso(webhook.created_at),
        "last_delivered_at": iso(webhook.last_delivered_at),
        "last_error": webhook.last_error,
        "given_up": webhook.given_up,
    }


class WebhookAdd(Params):
    url: Annotated[str, Field(description="http or https; called with POST.")]
    agent_id: Annotated[Id | None, Field(description="Only mail and handoffs of this agent.")] = None
    project_root: Annotated[ProjectRoot | None, Field(description="Only events of this project.")] = None
    types: Annotated[list[Id] | None, Field(min_length=1, max_length=100, description="Only these event types.")] = None
    allow_private: Annotated[bool, Field(description="The address may be private or loopback.")] = False


class AddedWebhook(WebhookRow):
    secret: str


@operation(
    WebhookAdd,
    Code.VALIDATION_ERROR,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.NOT_FOUND,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def webhook_add(p: WebhookAdd, caller: Caller) -> AddedWebhook:
    """Send every event from now on to a URL. Only this answer shows the signing secret."""
    webhook = webhooks.add(
        url=p.url,
        agent_id=p.agent_id,
        project_root=p.project_root,
        types=p.types,
        allow_private=p.allow_private,
        operator=operator_behind(caller),
    )
    return {**webhook_row(webhook), "secret": webhook.secret}


class WebhookList(TypedDict):
    webhooks: list[WebhookRow]


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def webhook_list(p: Nothing, caller: Caller) -> WebhookList:
    """Every webhook, and how its last attempt went."""
    return {"webhooks": [webhook_row(row) for row in Webhook.objects.order_by("created_at", "pk")]}


class WebhookRef(Params):
    webhook_id: Id


OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND)


class RemovedWebhook(TypedDict):
    webhook_id: str
    removed: bool


@operation(WebhookRef, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def webhook_remove(p: WebhookRef, caller: Caller) -> RemovedWebhook:
    """Send nothing to a webhook any more."""
    webhooks.remove(webhook_id=p.webhook_id, operator=operator_behind(caller))
    return {"webhook_id": p.webhook_id, "removed": True}


@operation(WebhookRef, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def webhook_redeliver(p: WebhookRef, caller: Caller) -> WebhookRow:
    """Try a failing webhook again now, instead of after its pause."""
    return webhook_row(webhooks.end_pause(webhook_id=p.webhook_id, operator=operator_behind(caller)))


# Notices


class NoticeRow(TypedDict):
    notice_id: str
    name: str
    kinds: list[str] | None
    workspace_id: str | None
    quiet: str | None
    timezone: str | None
    with_text: bool
    with_answers: bool
    allow_private: bool
    operator: str
    created_at: Time
    last_sent_at: Time | None
    last_error: str | None


def notice_row(row: NoticeAddress) -> NoticeRow:
    quiet = f"{row.quiet_from:%H:%M}-{row.quiet_until:%H:%M}" if row.quiet_from and row.quiet_until else None
    return {
        "notice_id": row.notice_id,
        "name": row.name,
        "kinds": row.kinds,
        "workspace_id": row.workspace_id,
        "quiet": quiet,
        "timezone": row.timezone,
        "with_text": row.with_text,
        "with_answers": row.with_answers,
        "allow_private": row.allow_private,
        "operator": row.operator,
        "created_at": iso(row.created_at),
        "last_sent_at": iso(row.last_sent_at),
        "last_error": row.last_error,
    }


Url = Annotated[str, Field(description="A service's address as apprise writes it, such as ntfys://ntfy.sh/topic.")]


class OfNotice(Params):
    url: Url | None = None
    kinds: Annotated[list[Id] | None, Field(min_length=1, max_length=100, description="Only these kinds of needs.")] = (
        None
    )
    quiet: Annotated[Id | None, Field(description="When nothing is sent, such as 22:00-07:00.")] = None
    timezone: Annotated[Id | None, Field(description="Of the quiet hours, such as Europe/Berlin; else the hub's.")] = (
        None
    )
    with_text: Annotated[bool, Field(description="Send agents' words, too, and not only what kind of need it is.")] = (
        False
    )
    with_answers: Annotated[
        bool, Field(description="Send links that show a question and answer it without a login (public_url).")
    ] = False
    allow_private: Annotated[bool, Field(description="The service may be on a private network or this machine.")] = (
        False
    )


class NoticeAdd(OfNotice):
    url: Url
    project_root: Annotated[ProjectRoot | None, Field(description="Only what this project needs.")] = None


@operation(
    NoticeAdd,
    Code.VALIDATION_ERROR,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def notice_add(p: NoticeAdd, caller: Caller) -> NoticeRow:
    """Send what needs a person to an address outside of Nexus, beginning with a test. No answer shows the address
    again: it may hold a password."""
    given = p.model_dump(exclude={"project_root"})
    return notice_row(notices.add(given=given, project_root=p.project_root, operator=operator_behind(caller)))


class NoticeUpdate(OfNotice):
    notice_id: Id


@operation(NoticeUpdate, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, idempotent=True)
def notice_update(p: NoticeUpdate, caller: Caller) -> NoticeRow:
    """Change what is sent to an address, when, or the address itself. An omitted field keeps its value; null clears
    it, except the address."""
    named = p.model_fields_set - {"notice_id"} - ({"url"} if p.url is None else set())
    given = {name: getattr(p, name) for name in named}
    return notice_row(notices.change(notice_id=p.notice_id, given=given, operator=operator_behind(caller)))


class NoticeList(TypedDict):
    notices: list[NoticeRow]


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def notice_list(p: Nothing, caller: Caller) -> NoticeList:
    """Every address to which notices are sent, and how its last one went."""
    return {"notices": [notice_row(row) for row in NoticeAddress.objects.order_by("created_at", "pk")]}


class NoticeRef(Params):
    notice_id: Id


class RemovedNotice(TypedDict):
    notice_id: str
    removed: bool


@operation(NoticeRef, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def notice_remove(p: NoticeRef, caller: Caller) -> RemovedNotice:
    """Send nothing to an address any more. Links that were sent there answer nothing from now on."""
    notices.remove(notice_id=p.notice_id, operator=operator_behind(caller))
    return {"notice_id": p.notice_id, "removed": True}


@operation(
    NoticeRef,
    *OF_ONE,
    Code.CONFIG_ERROR,
    requires=(OPERATORS_ONLY,),
    tool=False,
    slow=True,
    takes_minutes=True,
    own_transaction=True,
)
def notice_test(p: NoticeRef, caller: Caller) -> NoticeRow:
    """Send a test to an address now, whatever the hour; an error says why it did not arrive."""
    return notice_row(notices.test(notice_id=p.notice_id))


class HookRef(Params):
    hook_id: Id


class HookProblemRow(TypedDict):
    hook_id: str
    agent_id: str
    project_root: str
    problem: str


@operation(HookRef, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def hook_dismiss(p: HookRef, caller: Caller) -> HookProblemRow:
    """Hide that a hook fails or does not run, until it fails again."""
    problem = problems.dismiss(p.hook_id)
    return {
        "hook_id": problem.hook_id,
        "agent_id": problem.agent_id,
        "project_root": problem.project_root,
        "problem": problem.title,
    }
