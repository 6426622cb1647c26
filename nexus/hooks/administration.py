"""The operations on webhooks, for operators only."""

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
from nexus.hooks import selectors, services
from nexus.hooks.models import Webhook


class WebhookRow(TypedDict):
    webhook_id: str
    url: str
    agent_id: str | None
    workspace_id: str | None
    types: list[str] | None
    allow_private: bool
    created_at: Time
    last_delivered_at: Time | None


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
    guards=(OPERATORS_ONLY,),
    tool=False,
)
def webhook_add(p: WebhookAdd, caller: Caller) -> AddedWebhook:
    """Send every event from now on to a URL. Only this answer shows the signing secret."""
    webhook = services.add(
        url=p.url,
        agent_id=p.agent_id,
        project_root=p.project_root,
        types=p.types,
        allow_private=p.allow_private,
        operator=operator_behind(caller),
    )
    return {**webhook_row(webhook), "secret": webhook.secret}


class WebhookState(WebhookRow):
    pending: int
    dead: int
    last_error: str | None


class WebhookList(TypedDict):
    webhooks: list[WebhookState]


@operation(Nothing, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def webhook_list(p: Nothing, caller: Caller) -> WebhookList:
    """Every webhook, with how many deliveries wait and how many are dead letters."""
    return {
        "webhooks": [
            {
                **webhook_row(found.webhook),
                "pending": found.pending,
                "dead": found.dead,
                "last_error": found.last_error,
            }
            for found in selectors.webhooks()
        ]
    }


class WebhookRef(Params):
    webhook_id: Id


OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND)


class RemovedWebhook(TypedDict):
    webhook_id: str
    removed: bool
    deliveries_dropped: int


@operation(WebhookRef, *OF_ONE, guards=(OPERATORS_ONLY,), tool=False, destructive=True)
def webhook_remove(p: WebhookRef, caller: Caller) -> RemovedWebhook:
    """Delete a webhook and its waiting deliveries."""
    dropped = services.remove(webhook_id=p.webhook_id, operator=operator_behind(caller))
    return {"webhook_id": p.webhook_id, "removed": True, "deliveries_dropped": dropped}


class RevivedDeliveries(TypedDict):
    webhook_id: str
    redelivered: int


@operation(WebhookRef, *OF_ONE, guards=(OPERATORS_ONLY,), tool=False)
def webhook_redeliver(p: WebhookRef, caller: Caller) -> RevivedDeliveries:
    """Deliver a webhook's dead letters again, starting now."""
    return {
        "webhook_id": p.webhook_id,
        "redelivered": services.redeliver(webhook_id=p.webhook_id, operator=operator_behind(caller)),
    }
