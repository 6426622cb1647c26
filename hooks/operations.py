"""What this app offers, to operators alone: webhooks."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from coordination.errors import CoordinationCode
from coordination.parameters import ProjectRoot
from coordination.toolset import operation
from core.clock import iso
from core.operations.caller import Caller
from core.operations.errors import Code
from core.operations.parameters import Id, Nothing, Params
from core.operations.registry import OPERATORS_ONLY
from core.operations.replies import Data
from hooks import selectors, services
from hooks.models import Webhook


class WebhookAdd(Params):
    url: Annotated[str, Field(description="http or https; called with POST.")]
    agent_id: Annotated[Id | None, Field(description="Only mail and handoffs of this agent.")] = None
    project_root: Annotated[ProjectRoot | None, Field(description="Only events of this project.")] = None
    types: Annotated[list[Id] | None, Field(min_length=1, max_length=100, description="Only these event types.")] = None
    allow_private: Annotated[bool, Field(description="The address may be private or loopback.")] = False


@operation(
    WebhookAdd,
    Code.VALIDATION_ERROR,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.NOT_FOUND,
    guards=(OPERATORS_ONLY,),
    tool=False,
)
def webhook_add(p: WebhookAdd, caller: Caller) -> Data:
    """Have an address called with every event from now on. The answer shows the signing secret, and nothing shows it
    again."""
    webhook = services.add(
        url=p.url,
        agent_id=p.agent_id,
        project_root=p.project_root,
        types=p.types,
        allow_private=p.allow_private,
        operator=_operator(caller),
    )
    return {**webhook_data(webhook), "secret": webhook.secret}


@operation(Nothing, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def webhook_list(p: Nothing, caller: Caller) -> Data:
    """Every webhook, with how many deliveries wait and how many are dead letters."""
    return {
        "webhooks": [
            {
                **webhook_data(listed.webhook),
                "pending": listed.pending,
                "dead": listed.dead,
                "last_error": listed.last_error,
            }
            for listed in selectors.webhooks()
        ]
    }


class WebhookRef(Params):
    webhook_id: Id


OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND)


@operation(WebhookRef, *OF_ONE, guards=(OPERATORS_ONLY,), tool=False, destructive=True)
def webhook_remove(p: WebhookRef, caller: Caller) -> Data:
    """Remove a webhook with what it still had to deliver."""
    dropped = services.remove(webhook_id=p.webhook_id, operator=_operator(caller))
    return {"webhook_id": p.webhook_id, "removed": True, "deliveries_dropped": dropped}


@operation(WebhookRef, *OF_ONE, guards=(OPERATORS_ONLY,), tool=False)
def webhook_redeliver(p: WebhookRef, caller: Caller) -> Data:
    """Try a webhook's dead letters again, from now."""
    return {
        "webhook_id": p.webhook_id,
        "redelivered": services.redeliver(webhook_id=p.webhook_id, operator=_operator(caller)),
    }


def webhook_data(webhook: Webhook) -> dict[str, Any]:
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


def _operator(caller: Caller) -> str:
    assert caller.operator is not None, "the runner lets operators alone come here"
    return caller.operator
