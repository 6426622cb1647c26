from __future__ import annotations

from nexus.core.apps import NexusAppConfig


class InboxConfig(NexusAppConfig):
    name = "inbox"
    clock_columns = {"messages": "created_at", "message_deliveries": "created_at"}
    commands = {
        "message_create": "nexus send",
        "inbox_peek": "nexus inbox",
        "inbox_pull": "nexus inbox pull",
        "inbox_ack": "nexus inbox ack",
        "inbox_history": "nexus inbox history",
        "message_receipts": "nexus mail status",
        "dead_letter_list": "nexus dead-letters",
        "dead_letter_acknowledge": "nexus dead-letters ack",
        "dead_letter_requeue": "nexus dead-letters requeue",
        "dead_letter_forward": "nexus dead-letters forward",
        "dead_letter_park": "nexus dead-letters park",
    }

    def ready(self) -> None:
        from coordination import clock_repair, debts, join_answer
        from inbox.config import InboxSettings
        from inbox.lifecycle import MAX_LEASE_SECONDS
        from inbox.selectors import delivery_debts, lane_sizes

        clock_repair.register(
            "deliveries",
            "message_deliveries",
            "lease_expires_at",
            lambda: max(MAX_LEASE_SECONDS, InboxSettings.current().inbox_lease_ttl_seconds),
            among="status = 'delivered'",
        )
        debts.register("message", delivery_debts)
        join_answer.register("mail", lambda agent_id, workspace_id, moment: lane_sizes(agent_id, moment))
        super().ready()
