"""The events of plans, tasks and cycles, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import EntityRef, Sentence

THINGS = {  # events of planning refer to tasks by number; the plan of the project shows them all
    "plan": EntityRef("the plan", "plan", "workspace_id", argument="workspace", name="topic"),
    "issue": EntityRef("an issue", "plan", "workspace_id", argument="workspace", name="title"),
    "task": EntityRef("a task", "plan", "workspace_id", argument="workspace", name="title"),
    "history": EntityRef("history", "planning_cycle_changelist", "workspace_id", argument="workspace"),
}
SENTENCES = {
    "plan.started": Sentence("{actor} started the plan {plan}", "{count} plans started", mark=True),
    "plan.updated": Sentence("{actor} changed {issue} in the plan", "{count} changes of plans"),
    "plan.reopened": Sentence("{actor} reopened {issue}", "{count} issues reopened"),
    "plan.decided": Sentence("{actor} decided {issue}[: {decision}]", "{count} issues decided", mark=True),
    "plan.analysed": Sentence("{actor} ({role}) added an analysis to {issue}", "{count} analyses added"),
    "plan.commented": Sentence("{actor} commented on the plan {plan}[ for {to}]", "{count} comments on plans"),
    "plan.answered": Sentence("{actor} answered a comment: {outcome}", "{count} comments on plans answered"),
    "plan.removed": Sentence("{plan} was removed", "{count} plans removed"),
    "task.added": Sentence("{actor} added the task {task}", "{count} tasks added"),
    "task.updated": Sentence(
        "{actor} changed the task {task}[ to {status}][ ({changed})]", "{count} tasks changed", mark=True
    ),
    "task.ready": Sentence("the task {task} can begin", "{count} tasks can begin"),
    "task.completed": Sentence("{actor} finished the task {task}", "{count} tasks finished", mark=True),
    "task.submitted": Sentence("{actor} submitted the task {task}", "{count} tasks submitted", mark=True),
    "task.checked": Sentence("the checks of the task {task} {outcome}[: {reason}]", "{count} results of tasks checked"),
    "task.accepted": Sentence("{actor} accepted the task {task}", "{count} tasks accepted", mark=True),
    "task.returned": Sentence("{actor} returned the task {task}[ to {to}][: {reason}]", "{count} tasks returned"),
    "task.removed": Sentence("the task {task} was removed", "{count} tasks removed"),
    "cycle.closed": Sentence("{actor} closed the cycle {plan}", "{count} cycles closed", mark=True),
    "history.changed": Sentence("{history} was changed by its file", "{count} changes of histories"),
    "artifact.written": Sentence("{actor} wrote {filename} for {plan}", "{count} files written"),
}
