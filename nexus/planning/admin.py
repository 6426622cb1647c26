"""The admin's records of tasks and closed cycles."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from coordination.admin import InWorkspace, WorkspaceFilter
from handoffs import check_runs
from handoffs.lifecycle import describe_verifier
from handoffs.models import Handoff
from nexus.planning import monitoring
from nexus.planning.models import Cycle, Task, TaskStatus
from nexus.planning.trouble import trouble
from nexus.web import records
from nexus.web.forms import searched
from nexus.web.records import NONE, column, link, moment

CARRIED, SHOWN = 20, 200  # handoffs of a task; issues, and tasks, of a cycle


@admin.register(Task)
class TaskAdmin(InWorkspace):
    list_display_links = None  # the title is the link
    list_display = ("number", "title_text", "status", "owner", "held_by", "workspace_link", "created")
    list_filter = ("status", ("closed_at", admin.EmptyFieldListFilter), WorkspaceFilter)
    search_fields = ("title", "task_key")
    operations = ("task_approve", "task_send_back", "task_update:complete", "task_update:begin", "task_update")
    ordering = ("-task_key",)
    sortable_by = ()
    rare = (
        *("verified", "submitted", "issue", "reuse", "closed", "acceptance_text", "criteria", "approach_text"),
        *("risk_text", "checks", "waited_for_by"),
    )
    fieldsets = (
        (None, {"fields": (
            *("state", "owned", "holder", "verified", "submitted", "issue", "reuse", "workspace_link", "plan"),
            *("added_at", "changed", "closed"),
        )}),
        ("Work", {"fields": ("about", "acceptance_text", "criteria", "approach_text", "risk_text")}),
        ("Result", {"fields": ("checks", "handoffs")}),
        ("Order", {"fields": ("waits_for", "waited_for_by")}),
    )  # fmt: skip
    readonly_fields = tuple(name for _, options in fieldsets for name in options["fields"])

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the task as its file has it now; why that cannot be read stands at the top."""
        row = super().get_object(request, object_id, from_field)
        if row is None or row.closed_at is not None:
            return row
        if problem := trouble(request, row.workspace):
            messages.error(request, f"The project's files cannot be read: {problem}")
        row = super().get_object(request, object_id, from_field)
        row.standing = monitoring.standing(row) if row and row.closed_at is None else None
        return row

    def operations_on(self, row: Task) -> tuple[str, ...]:
        if row.closed_at is not None:
            return ()
        same = {
            TaskStatus.PENDING: {"task_update"},
            TaskStatus.IN_PROGRESS: {"task_update:begin"},
            TaskStatus.COMPLETED: {"task_update:complete"},
        }[TaskStatus(row.status)]
        verdicts = set() if row.is_submitted else {"task_approve", "task_send_back"}
        return tuple(name for name in self.operations if name not in same | verdicts)

    def subject(self, row: Task) -> str:
        """Return its claim: what somebody began anew since is left alone."""
        return f"{row.pk}.{row.claim_epoch}"

    title_text = column("Task", lambda row: link("planning_task_change", row.title, row.pk))
    owned = column("Owner", lambda row: records.text(row.owner or "nobody"))
    holder = column("Held by", lambda row: link("agent", row.held_by, row.held_by or ""))
    verified = column("Verifier", lambda row: describe_verifier(row.verifier) if row.verifier else NONE)
    issue = column("From issue", lambda row: NONE if row.plan_issue is None else row.plan_issue)
    reuse = column("Reuse", lambda row: row.owner_reuse_policy or NONE)
    plan = column("Plan", lambda row: link("plan", "All tasks of the project", workspace=row.workspace_id))
    added_at = column("Added", lambda row: _by(row.created_at, row.created_by))
    submitted = column("Submitted", lambda row: _by(row.submitted_at, row.submitted_by) if row.is_submitted else NONE)
    changed = column("Changed", lambda row: moment(row.updated_at))
    about = column("Context", lambda row: records.body(row.context))
    acceptance_text = column("When it is done", lambda row: _body(row.acceptance))
    approach_text = column("Approach", lambda row: _body(row.approach))
    risk_text = column("Risk", lambda row: _body(row.risk))

    criteria = column("Checked before it counts", lambda row: records.each(row.acceptance_criteria))

    @admin.display(description="State")
    def state(self, row: Any) -> SafeString:
        standing = getattr(row, "standing", None)
        return _drawn("task_state", task=row, state=standing.work.state if standing else row.status)

    @admin.display(description="Closed")
    def closed(self, row: Task) -> str:
        if row.closed_at is None:
            return NONE
        said = "with its cycle, or when it was removed from its file: it can no longer be changed"
        return format_html("{}, {}", moment(row.closed_at), said)

    @admin.display(description="Checks")
    def checks(self, row: Task) -> str:
        found = check_runs.summaries(row.check_runs.all())
        return render_to_string("handoffs/check_runs.html", found) if found["checks"] else NONE

    @admin.display(description="Waits for")
    def waits_for(self, row: Any) -> str:
        standing = getattr(row, "standing", None)
        if standing is None:
            return ", ".join(f"task {number}" for number in row.deps) or NONE
        if not (standing.needs or standing.work.unknown):
            return "nothing"
        return _drawn("task_links", rows=standing.needs, unknown=standing.work.unknown, stuck=standing.work.stuck)

    @admin.display(description="Waited for by")
    def waited_for_by(self, row: Any) -> str:
        standing = getattr(row, "standing", None)
        return _drawn("task_links", rows=standing.needed_by) if standing and standing.needed_by else NONE

    @admin.display(description="Handoffs that carry it")
    def handoffs(self, row: Task) -> str:
        carried = Handoff.objects.filter(task_key=row.pk).defer("payload", "result").order_by("-created_event_id")
        found = (
            (link("handoffs_handoff_change", each.title, each.pk), each.get_status_display(), moment(each.created_at))
            for each in carried[:CARRIED]
        )
        return format_html_join("", "<div>{}, {}, {}</div>", found) or "none"


@admin.register(Cycle)
class CycleAdmin(InWorkspace):
    intro = "A cycle is one plan with its tasks, from its start until somebody closes it. Closed cycles are kept here."
    list_display_links = None  # its page tells it all
    list_display = ("ended", "plan", "workspace_link", "on", "task_count")
    search_fields = ("words",)
    ordering = ("-completed_at", "-pk")
    sortable_by = ()
    fieldsets = (
        (None, {"fields": ("ended", "begun", "workspace_link", "on", "completed_tasks", "research")}),
        ("Plan", {"fields": ("topic_text", "issues")}),
        ("Tasks", {"fields": ("tasks",)}),
    )
    rare = ("begun", "research", "issues", "tasks")
    readonly_fields = tuple(name for _, options in fieldsets for name in options["fields"])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Cycle]:
        found: QuerySet[Cycle] = super().get_queryset(request).in_history().defer("words")
        return found.defer("words", "document") if request.path.endswith("/cycle/") else found

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        if row := super().get_object(request, object_id, from_field):
            row.entry = monitoring.document(row)
        return row

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Cycle], search_term: str) -> Any:
        return queryset.filter(words__contains=searched(search_term).lower()), False

    @admin.display(description="Closed")
    def ended(self, row: Cycle) -> str:
        ended = monitoring.moment_of(row.completed_at)
        return records.text(row.completed_at or "at no time") if ended is None else moment(ended)

    plan = column("Plan", lambda row: link("planning_cycle_change", row.topic or "no plan", str(row.pk)))
    on = column("Branch", lambda row: records.text(row.branch))
    topic_text = column("What is decided", lambda row: records.lines(row.topic or "no plan"))

    @admin.display(description="Begun")
    def begun(self, row: Any) -> str:
        stamp = (row.entry["plan"] or {}).get("created_at")
        begun = monitoring.moment_of(stamp)
        return records.text(stamp or NONE) if begun is None else moment(begun)

    @admin.display(description="Tasks")
    def completed_tasks(self, row: Any) -> str:
        done = sum(each["status"] == TaskStatus.COMPLETED for each in row.entry["tasks"])
        return f"{done} of {row.task_count} completed"

    @admin.display(description="What was found out")
    def research(self, row: Any) -> str:
        return _body((row.entry["plan"] or {}).get("research_summary"))

    @admin.display(description="Issues")
    def issues(self, row: Any) -> str:
        found = (row.entry["plan"] or {}).get("issues", [])
        shown = [(issue, _asked(issue)) for issue in found[:SHOWN]]
        return _drawn("cycle_issues", issues=shown, beyond=len(found) - len(shown)) if found else NONE

    @admin.display(description="Tasks")
    def tasks(self, row: Any) -> str:
        found = row.entry["tasks"]
        return _drawn("cycle_tasks", tasks=found[:SHOWN], beyond=max(len(found) - SHOWN, 0)) if found else NONE


def _asked(issue: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """Return who was asked, with each answer."""
    said = issue.get("how_summary", {})
    return [(name, said.get(name, "")) for name in dict.fromkeys([*issue.get("how_agents", []), *said])]


def _by(at: datetime | None, who: str | None) -> str:
    return format_html("{} by {}", moment(at), records.text(who)) if who else moment(at)


def _body(text: str | None) -> str:
    return records.body(text) if text else NONE


def _drawn(template: str, **context: Any) -> SafeString:
    return render_to_string(f"planning/{template}.html", context)
