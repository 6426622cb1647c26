from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import WakeKind


class PlanningConfig(NexusAppConfig):
    name = "nexus.planning"
    declared_in = ("toolset", "shared_md")
    clock_columns = {"plan_tasks": "updated_at"}
    commands = {
        "plan_status": "nexus plan",
        "history_search": "nexus plan history",
        "task_list": "nexus tasks",
        "task_add": "nexus tasks create",
        "task_update": "nexus tasks update",
        "task_get": "nexus tasks show",
        "task_edit": "nexus tasks edit",
        "task_approve": "nexus tasks accept",
        "task_send_back": "nexus tasks return",
    }
    words = {"task_close": "an agent", "plan_start": "an agent", "plan_decide": "an agent"}

    def ready(self) -> None:
        from coordination import debts
        from handoffs import transitions, verification
        from nexus.planning.selectors import task_debts, verdicts

        verification.register("task", lambda: import_module("nexus.planning.services.verdicts").TASKS)
        debts.register("task", task_debts)
        debts.register("task_verdict", verdicts)
        transitions.register_work(lambda: import_module("nexus.planning.handoff_tasks"))
        super().ready()

    def wake_kinds(self) -> Sequence[WakeKind]:
        from nexus.planning.attention import WAKES

        return (WAKES,)
