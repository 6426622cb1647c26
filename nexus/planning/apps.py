from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import AttentionKind, EntityRef, ExportKind, Sentence, WakeKind


class PlanningConfig(NexusAppConfig):
    name = "nexus.planning"

    def ready(self) -> None:
        from coordination import debts
        from handoffs import work
        from nexus.planning.debts import owed

        import_module("nexus.planning.toolset")  # imports the modules that declare the operations
        import_module("nexus.planning.shared_md")  # registers its section
        debts.register("task", owed)
        work.register(lambda: import_module("nexus.planning.work"))

    def streams(self) -> Mapping[str, str]:
        from nexus.planning.models import STREAM

        return {STREAM: "plans, tasks and cycles"}

    def event_types(self) -> Sequence[str]:
        return [
            *("plan.started", "plan.updated", "plan.reopened", "plan.decided", "plan.removed"),
            *("task.added", "task.updated", "task.ready", "task.completed", "task.removed"),
            *("cycle.closed", "history.changed", "artifact.written"),
        ]

    def sentences(self) -> Mapping[str, Sentence]:
        from nexus.planning.sentences import SENTENCES

        return SENTENCES

    def entity_refs(self) -> Mapping[str, EntityRef]:
        from nexus.planning.sentences import THINGS

        return THINGS

    def export_kinds(self) -> Sequence[ExportKind]:
        from nexus.planning.maintenance import KINDS

        return KINDS

    def clock_columns(self) -> Mapping[str, str]:
        return {"plan_tasks": "updated_at"}

    def commands(self) -> Mapping[str, str]:
        return {
            "plan_status": "nexus plan",
            "history_search": "nexus plan history",
            "task_list": "nexus tasks",
            "task_add": "nexus tasks create",
            "task_update": "nexus tasks update",
        }

    def wake_kinds(self) -> Sequence[WakeKind]:
        from nexus.planning.waking import WAKES

        return (WAKES,)

    def attention_kinds(self) -> Sequence[AttentionKind]:
        from nexus.planning.attention import KINDS

        return KINDS

    def words(self) -> Mapping[str, str]:
        return {"task_close": "an agent", "plan_start": "an agent", "plan_decide": "an agent"}
