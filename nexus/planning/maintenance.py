"""What the export of a workspace needs of this app: its kinds of rows."""

from __future__ import annotations

from nexus.core.contributions import ExportKind, rows_in_workspace
from nexus.planning.models import Board, Cycle, Issue, Plan, PlanComment, Task, TaskCheckRun

KINDS = (
    ExportKind("plan", Plan, 40, rows_in_workspace(Plan, "pk"), agents=("started_by",)),
    ExportKind("plan_issue", Issue, 41, rows_in_workspace(Issue, "plan_id"), agents=("decided_by",)),
    ExportKind("task_board", Board, 42, rows_in_workspace(Board, "pk")),
    ExportKind("plan_task", Task, 43, rows_in_workspace(Task), agents=("created_by", "held_by", "submitted_by")),
    ExportKind("plan_cycle", Cycle, 44, rows_in_workspace(Cycle)),
    ExportKind("plan_comment", PlanComment, 46, rows_in_workspace(PlanComment), agents=("recipient",)),
    ExportKind("plan_check_run", TaskCheckRun, 45, rows_in_workspace(TaskCheckRun, "task__workspace")),
)
