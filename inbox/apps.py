from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import (
        Action,
        AttentionKind,
        EntityRef,
        ExportKind,
        Figure,
        ImpossibleState,
        RetentionLane,
        Sentence,
    )


class InboxConfig(NexusAppConfig):
    name = "inbox"

    def ready(self) -> None:
        from coordination import arrivals, debts, overlong
        from inbox.config import InboxSettings
        from inbox.lanes import MAX_LEASE_SECONDS
        from inbox.models import Delivery, DeliveryStatus
        from inbox.selectors import lane_sizes, owed

        overlong.register(
            "deliveries",
            lambda: Delivery.objects.filter(status=DeliveryStatus.DELIVERED),
            "lease_expires_at",
            lambda: max(MAX_LEASE_SECONDS, InboxSettings.current().inbox_lease_ttl_seconds),
        )
        debts.register("message", owed)
        arrivals.register("mail", lambda agent_id, workspace_id, moment: lane_sizes(agent_id, moment))
        super().ready()

    def retention_lanes(self) -> Sequence[RetentionLane]:
        from inbox.maintenance import LANES

        return LANES

    def export_kinds(self) -> Sequence[ExportKind]:
        from inbox.maintenance import KINDS

        return KINDS

    def impossible_states(self) -> Sequence[ImpossibleState]:
        from inbox.maintenance import IMPOSSIBLE

        return IMPOSSIBLE

    def event_types(self) -> Sequence[str]:
        from inbox.models import ARRIVALS

        return [*sorted(ARRIVALS), "message.acknowledged", "message.parked"]

    def sentences(self) -> Mapping[str, Sentence]:
        from inbox.sentences import SENTENCES

        return SENTENCES

    def entity_refs(self) -> Mapping[str, EntityRef]:
        from inbox.sentences import THINGS

        return THINGS

    def clock_columns(self) -> Mapping[str, str]:
        return {"messages": "created_at", "message_deliveries": "created_at"}

    def database_objects(self, vendor: str) -> Mapping[str, str]:
        from inbox.triggers import TRIGGERS

        return TRIGGERS[vendor]

    def commands(self) -> Mapping[str, str]:
        return {
            "message_create": "nexus send",
            "inbox_peek": "nexus inbox",
            "inbox_pull": "nexus inbox pull",
            "inbox_ack": "nexus inbox ack",
            "inbox_history": "nexus inbox history",
            "dead_letter_list": "nexus dead-letters",
            "dead_letter_acknowledge": "nexus dead-letters ack",
            "dead_letter_requeue": "nexus dead-letters requeue",
            "dead_letter_forward": "nexus dead-letters forward",
            "dead_letter_park": "nexus dead-letters park",
        }

    def attention_kinds(self) -> Sequence[AttentionKind]:
        from inbox.attention import KINDS

        return KINDS

    def actions(self) -> Sequence[Action]:
        from inbox.attention import ACTIONS

        return ACTIONS

    def metrics(self) -> Iterable[Any]:
        from inbox.metrics import collect

        return collect()

    def figures(self) -> Sequence[Figure]:
        from inbox.metrics import FIGURES

        return FIGURES

    def routes(self) -> Sequence[Any]:
        from inbox.api import routes

        return routes
