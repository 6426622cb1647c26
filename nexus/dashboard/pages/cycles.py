"""The history of a workspace's plans: its closed cycles, and one of them."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse

from nexus.dashboard.forms.filters import CycleFilters
from nexus.dashboard.page import render
from nexus.dashboard.pages.plan import picture
from nexus.dashboard.templatetags.nexus import plain
from nexus.planning import monitoring, selectors
from nexus.planning.models import Cycle

PAGE = 50
ISSUES, TASKS = 200, 200  # of a cycle that are shown


def history(request: HttpRequest) -> TemplateResponse:
    """The closed cycles, the latest first; `?workspace=` and `?q=` narrow them, `?page=`."""
    filters = CycleFilters(request.GET)
    words, page = filters.text("q"), max(filters.number("page") or 1, 1)
    found = selectors.cycles(filters.place.pk if filters.place else None, words).reverse()
    rows = list(found.select_related("workspace").defer("document", "words")[(page - 1) * PAGE : page * PAGE + 1])
    return render(
        request,
        "plan_history",
        "History of plans",
        filters=filters,
        rows=[(row, monitoring.moment_of(row.completed_at)) for row in rows[:PAGE]],
        more=len(rows) > PAGE,
        page=page,
        query=filters.query("page"),
        narrowed=bool(words) or filters.place is not None or page > 1,
    )


def cycle(request: HttpRequest, cycle_id: int) -> TemplateResponse:
    """A closed cycle: its plan with the decisions, and its tasks."""
    row = get_object_or_404(Cycle.objects.select_related("workspace").defer("words"), pk=cycle_id)
    entry = monitoring.document(row)
    plan = entry["plan"] or {}
    work = monitoring.past_work(entry["tasks"])
    return render(
        request,
        "plan_cycle",
        f"Cycle of {plain(row.workspace)}",
        cycle=row,
        ended=monitoring.moment_of(row.completed_at),
        begun=monitoring.moment_of(plan.get("created_at")),
        plan=plan,
        issues=[(issue, _asked(issue)) for issue in plan.get("issues", [])[:ISSUES]],
        issues_beyond=max(len(plan.get("issues", [])) - ISSUES, 0),
        work=work[:TASKS],
        work_beyond=max(len(work) - TASKS, 0),
        completed=sum(each.state == "completed" for each in work),
        **picture(work, {each.number: each.entry["deps"] for each in work}),
    )


def _asked(issue: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """Who was asked, and what each said."""
    said = issue.get("how_summary", {})
    return [(name, said.get(name, "")) for name in dict.fromkeys([*issue.get("how_agents", []), *said])]
