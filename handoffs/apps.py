from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import WakeKind


class HandoffsConfig(NexusAppConfig):
    name = "handoffs"
    declared_in = ("operations", "shared_md")
    clock_columns = {"handoffs": "updated_at"}
    commands = {
        "handoff_create": "nexus handoffs create",
        "handoff_cancel": "nexus handoffs cancel",
        "handoff_withdraw": "nexus handoffs cancel",
        "handoff_get": "nexus handoffs show",
        "handoff_list_available": "nexus handoffs --agent",
        "handoff_release": "nexus handoffs release",
        "handoff_reassign": "nexus handoffs reassign",
        "handoff_reoffer": "nexus handoffs reoffer",
        "handoff_prolong": "nexus handoffs extend",
        "handoff_approve": "nexus handoffs accept",
        "handoff_send_back": "nexus handoffs return",
        "checks_list": "nexus checks",
        "checks_approve": "nexus checks approve",
    }

    def ready(self) -> None:
        from coordination import clock_repair, debts, join_answer
        from coordination.services import agents
        from coordination.toolset import COORDINATION
        from handoffs import verification
        from handoffs.debts import handoff_debts, verdicts
        from handoffs.leases import LONGEST, renew, seconds
        from handoffs.selectors import naming
        from inbox import receipts

        clock_repair.register("handoffs", "handoffs", "lease_expires_at", lambda: max(LONGEST, seconds()))
        agents.register_renewal("handoffs", renew)
        join_answer.register("handoffs", lambda *asked: import_module("handoffs.offers").offered(*asked))
        verification.register("handoff", lambda: import_module("handoffs.verdicts").HANDOFFS)
        debts.register("handoff", handoff_debts)
        debts.register("verdict", verdicts)
        receipts.register(naming)
        COORDINATION.administered_in("handoffs.administration")
        super().ready()

    def wake_kinds(self) -> Sequence[WakeKind]:
        from handoffs.offers import WAKES

        return (WAKES,)
