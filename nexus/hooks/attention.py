"""The webhooks that an operator must look at."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Max, Q

from inbox.monitoring import Picture
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Found
from nexus.hooks.models import Webhook, WebhookDelivery


def _given_up(picture: Picture, each: int) -> Found:
    """Find webhooks with dead letters: deliveries that failed the maximum number of times."""
    dead = WebhookDelivery.objects.dead().values("webhook_id", "webhook__url")
    if picture.workspace:
        dead = dead.filter(Q(webhook__workspace=None) | Q(webhook__workspace=picture.workspace))
    rows = list(dead.annotate(letters=Count("pk"), error=Max("last_error")).order_by("-letters", "webhook_id"))
    return Found(
        len(rows),
        [
            AttentionItem(
                f"{row['webhook__url'][:120]} failed", f"{row['letters']} given up: {row['error']}", row["webhook_id"]
            )
            for row in rows[:each]
        ],
    )


KINDS = (
    AttentionKind(
        "webhooks",
        "Webhooks that fail",
        "webhook",
        12,
        _given_up,
        page="webhook",
        actions=("webhook_redeliver",),
        command="nexus webhooks",
    ),
)


def _urls(webhook_ids: Sequence[str]) -> dict[str, str]:
    return dict(Webhook.objects.filter(pk__in=webhook_ids).values_list("pk", "url"))


ACTIONS = (
    Action(
        "webhook_redeliver",
        "Try again",
        "told to try again",
        ("webhook", "webhooks"),
        lambda webhook_id: {"webhook_id": webhook_id},
        _urls,
    ),
)
