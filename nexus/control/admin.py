"""The admin's records of the pool; an agent, a question and the review of a worktree have pages of their own.

Django imports this as every process starts: what imports the pool itself is imported when a page needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from nexus.control.config import ControlSettings
from nexus.control.models import (
    Budget,
    Machine,
    MachineState,
    MergeState,
    Outage,
    PermissionRule,
    PoolAgent,
    PoolWorktree,
    Question,
    RunOutcome,
    Turn,
    TurnStatus,
    WorktreeMerge,
    WorktreeState,
)
from nexus.control.permissions import rules
from nexus.core.clock import now
from nexus.core.operations.registry import Operation
from nexus.core.quoting import visible
from nexus.web import records
from nexus.web.forms import OperationForm
from nexus.web.page import beside
from nexus.web.records import NONE, ChoiceFilter, OperationAdmin, badge, column, link, moment
from nexus.web.templatetags.nexus import duration, when

STEPS = 200  # entries on a run's page


class PoolRecords(OperationAdmin):
    """Base of the records of the pool; above the list stands how a pool is started, if none runs."""

    list_before_template = "control/above.html"

    def is_on(self) -> bool:
        """Return whether the hub runs a pool."""
        return ControlSettings.current().control


class Members(ChoiceFilter):
    """Filter by whether an agent ended; without a choice, those that live."""

    title = parameter_name = "state"
    choices_offered = (("ended", "Ended"), ("all", "Living or ended"))

    def choices(self, changelist: Any) -> Iterator[Any]:
        living, *others = super().choices(changelist)
        yield from ({**living, "display": "Living"}, *others)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        value = self.value()
        if value == "all":
            return queryset
        return queryset.exclude(ended_at=None) if value == "ended" else queryset.filter(ended_at=None)


@admin.register(PoolAgent)
class PoolAgentAdmin(PoolRecords):
    intro = (
        "The agents that the hub runs itself. A rehearsal, which plays a script, answers in place of a model until "
        "runners.toml in its home names a runner."
    )
    list_display_links = None  # its transcript is its page
    list_display = ("who", "condition", "directory", "runner_of", "may", "tokens", "at_what")
    list_select_related = ("parent",)
    list_filter = (Members,)
    operations = ("pool_compact", "pool_resume", "pool_destroy_agent")
    creates = "pool_create_agent"
    search_fields = ("agent_id", "runner", "cwd")
    search_help_text = "A name, a runner or a directory"
    sortable_by = ("who",)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Order those that ended by their end, latest first; those that live as they were created."""
        return ("-ended_at", "-pool_agent_id") if request.GET.get("state") == "ended" else ("pool_agent_id",)

    def change_view(self, request: HttpRequest, object_id: str, *rest: Any, **more: Any) -> HttpResponse:
        return redirect("admin:pool_agent", unquote(object_id))

    def completed(self, rows: list[PoolAgent]) -> list[PoolAgent]:
        from nexus.control.agents import monitoring

        for member in monitoring.members(rows):
            vars(member.agent)["member"] = member
        return rows

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and self.is_on()

    def get_urls(self) -> list[Any]:
        """Give *Add* threads of its own: it may wait for git."""
        add = path("add/", beside(self.admin_site.admin_view(self.add_view)), name="control_poolagent_add")
        return [add, *super().get_urls()]

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the form; without a pool, the list, which says how one is started."""
        return super().add_view(request, form_url, extra_context) if self.is_on() else redirect(self._list())

    def form_to_add(self, request: HttpRequest, operation: Operation[Any]) -> OperationForm:
        from nexus.control.views import new_agent_form

        return new_agent_form(request)

    def added(self, request: HttpRequest, data: dict[str, Any]) -> HttpResponse:
        """Lead to the new agent; one that has ended again is in the list."""
        from nexus.control.permissions import members

        if "warning" in data:
            messages.warning(request, data["warning"])
        made = members.find(data["agent_id"])
        return redirect("admin:pool_agent", made.pk) if made else redirect(self._list())

    def wrong(self) -> str:
        """Return what is wrong with runners.toml."""
        from nexus.control.runners_file import remarks

        return remarks()

    @admin.display(description="Agent", ordering="agent_id")
    def who(self, row: PoolAgent) -> SafeString:
        parent, ended = row.parent, ""
        if parent and parent.ended_at and not row.ended_at:
            ended = ", which ended"
        below = format_html("below {}{}", records.text(parent.agent_id), ended) if parent else ""
        return format_html("<div>{} {}</div>", link("pool_agent", row.agent_id, row.pk), below)

    @admin.display(description="State")
    def condition(self, row: Any) -> SafeString:
        of = row.member
        return _drawn("pool_state", agent=row, turn=of.turn, waiting=of.waiting, needs=of.needs, asks=of.asks)

    directory = column("Directory", lambda row: records.text(row.cwd))
    runner_of = column("Runner", lambda row: records.text(row.runner))

    @admin.display(description="Rights")
    def may(self, row: Any) -> SafeString:
        lines = format_html_join("", "<div>{}</div>", ((records.lines(line),) for line in row.member.permissions))
        return format_html('<details id="may-{}"><summary>{}</summary>{}</details>', row.pk, row.preset, lines)

    @admin.display(description="Tokens")
    def tokens(self, row: Any) -> str:
        used = f", {row.member.spent:,} used" if row.member.spent else ""
        return f"{row.member.context:,} in context{used}"

    @admin.display(description="Now")
    def at_what(self, row: Any) -> SafeString:
        of = row.member
        if row.ended_at:
            return format_html("<div>ended {}</div>", when(row.ended_at, "ago"))
        wait = f", {of.waiting} wait{'s' * (of.waiting == 1)}" if of.waiting else ""
        if of.turn:
            return format_html(
                "<div>{} – began {}{}</div>", records.text(of.turn.glimpse), when(of.turn.started_at, "ago"), wait
            )
        return format_html("<div>last {}{}</div>", when(row.last_action_at, "ago"), wait)


class Outcomes(ChoiceFilter):
    title, parameter_name = "outcome", "outcome"
    choices_offered = tuple(RunOutcome.choices)

    def chosen(self, queryset: Any, value: str) -> Any:
        return queryset.with_outcome(value)


class NeedsPerson(ChoiceFilter):
    title, parameter_name = "who needs it", "which"
    choices_offered = (("needing_person", "Needs a person"),)

    def chosen(self, queryset: Any, value: str) -> Any:
        return queryset.needing_person()


@admin.register(Turn)
class RunAdmin(PoolRecords):
    intro = "The turns of the pool's agents: why each ended, and what to do about those that failed."
    list_display_links = None  # the prompt is the link
    list_display = ("glimpse", "who", "state", "passed", "reason")
    list_select_related = ("agent",)
    list_filter = (Outcomes, NeedsPerson)
    operations = ("pool_retry_run", "pool_dismiss_run", "pool_cancel_run")
    search_fields = finds_by = ("turn_id", "agent__agent_id")
    search_help_text = "A run's id or an agent's name"
    ordering = ("-turn_id",)
    sortable_by = ()
    fields = (
        *("state", "explained", "changed", "who", "prompt", "steps", "asked_by", "served_by", "queued", "again"),
        *("began", "ended", "took", "tokens", "price", "traffic", "worktree", "retried", "take_over"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Any:
        from nexus.control.agents import monitoring

        rows = super().get_queryset(request)
        return monitoring.glimpses(rows) if request.path.endswith("/turn/") else rows.select_related("agent")

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return lookup in ("wakes__kind", "wakes__item") or super().lookup_allowed(lookup, value, request)

    def operations_on(self, row: Turn) -> list[str]:
        from nexus.control.agents import turns

        retry, dismiss, cancel = self.operations
        needs = row.needs_person_since is not None and row.agent.ended_at is None
        admitted = {
            retry: self.is_on() and not turns.why_no_retry(row),
            dismiss: needs,
            cancel: row.ended_at is None,
        }
        return [name for name, holds in admitted.items() if holds]

    glimpse = column("Run", lambda row: link("control_turn_change", row.glimpse or row.pk, row.pk))
    who = column("Agent", lambda row: link("pool_agent", row.agent.agent_id, row.agent.pk))
    state = column("Outcome", lambda row: _drawn("run_state", run=row))
    passed = column("When", lambda row: format_html("<span>{}</span>", _drawn("run_when", run=row)))
    reason = column("Why", lambda row: records.text(row.why) if row.why else NONE)
    prompt = column("Prompt", lambda row: records.body(row.content[:20_000]))

    @admin.display(description="Steps")
    def steps(self, row: Turn) -> SafeString:
        from nexus.control.agents import monitoring
        from nexus.control.views import transcript_context

        found = monitoring.steps(row, STEPS + 1)
        shown = transcript_context(row.agent, found[:STEPS])
        return _drawn("steps", run=row, agent=row.agent, more=len(found) > STEPS, **shown)

    @admin.display(description="Why")
    def explained(self, row: Turn) -> str:
        if not row.why and row.outcome == RunOutcome.LOST:
            return "The server or its worker ended in the middle."
        halted = "It was ended by the limit on iterations." if row.halted else NONE
        return records.lines(row.why) if row.why else halted

    @admin.display(description="Changed files")
    def changed(self, row: Turn) -> str:
        from nexus.control.agents import transcript

        if row.ended_at is None or not transcript.may_have_changed_files(row):
            return NONE
        return (
            "It called tools that do more than read before it ended. What they changed is not undone by a retry: look "
            "at it first."
        )

    @admin.display(description="Asked by")
    def asked_by(self, row: Turn) -> str:
        if row.retry_of:
            return link("control_turn_change", "a retry", row.retry_of)
        if row.depth:
            return records.text(f"woken by {row.source}")
        how = {"rpc": "", "dashboard": " on the dashboard"}.get(row.source, f" through {row.source}")
        return records.text(f"{row.source_agent_id or 'an operator'}{how}")

    @admin.display(description="Runner")
    def served_by(self, row: Turn) -> SafeString:
        fallback = f"{row.runner}, the fallback of {row.agent.runner}"
        return records.text(fallback if row.runner else row.agent.runner)

    queued = column("Queued", lambda row: moment(row.queued_at))

    @admin.display(description="Queued again")
    def again(self, row: Turn) -> str:
        if not row.put_back:
            return NONE
        times = f"after a fault of its provider, {row.put_back} time{'s' * (row.put_back > 1)}"
        if row.status != TurnStatus.QUEUED or row.due_at is None:
            return times
        return format_html("{}; it starts {}", times, when(row.due_at, "left"))

    began = column("Began", lambda row: moment(row.started_at))
    ended = column("Ended", lambda row: moment(row.ended_at))
    took = column("Took", lambda row: duration(row.took) if row.took else NONE)

    @admin.display(description="Tokens")
    def tokens(self, row: Turn) -> str:
        if not row.input_tokens and not row.output_tokens:
            return "unknown: its runner did not tell" if row.ended_at else "unknown"
        cached = f" ({row.cached_tokens:,} of the input from a cache)" if row.cached_tokens else ""
        return f"{row.input_tokens:,} in, {row.output_tokens:,} out{cached}"

    @admin.display(description="Cost")
    def price(self, row: Turn) -> str:
        if row.money:
            return records.text(f"{row.money}, by {row.cost_source}")
        return "unknown: its agent did not tell, and its model has no known price" if row.ended_at else "unknown"

    traffic = column(
        "Trace", lambda row: link("trace", "What was sent and received", row.pk) if row.started_at else NONE
    )

    @admin.display(description="Worktree")
    def worktree(self, row: Turn) -> str:
        tree = PoolWorktree.objects.filter(agent=row.agent).exclude(state=WorktreeState.DISCARDED).exists()
        return link("pool_review", "What its agent changed", row.agent.pk) if tree else NONE

    @admin.display(description="Retried")
    def retried(self, row: Turn) -> str:
        from nexus.control import selectors

        found = ((link("control_turn_change", each.outcome.label, each.pk), each) for each in selectors.retries(row))
        return format_html_join(", ", "{} {}", ((page, moment(each.queued_at)) for page, each in found)) or NONE

    @admin.display(description="Take over by hand")
    def take_over(self, row: Turn) -> str:
        """Return the command that continues its session in a terminal of the hub's machine, outside of the sandbox."""
        from nexus.control import selectors
        from nexus.control.views import known_runners

        command = selectors.resume_command(row) if known_runners()[0] else None
        return records.lines(command) if command else NONE


class Waiting(ChoiceFilter):
    title, parameter_name = "which", "which"
    choices_offered = (("asked", "Waits for an answer"), ("ended", "Answered, or asked no more"))

    def chosen(self, queryset: Any, value: str) -> Any:
        return queryset.waiting(now()) if value == "asked" else queryset.exclude(ended_at=None)


@admin.register(Question)
class QuestionAdmin(PoolRecords):
    """Only its own page allows: there it is read whole."""

    intro = "Agents' questions to the operators. No answer is a refusal. “Allow always” writes a rule of permissions."
    list_display_links = None  # its page tells it all
    list_display = ("question", "who", "standing", "answer", "asked", "ended")
    list_select_related = ("pool_agent__parent",)
    list_filter = (Waiting, "kind")
    operations = ("pool_refuse", "pool_dismiss_question")
    search_fields = ("question_id__exact", "agent_id__exact", "title")
    ordering = ("-question_id",)
    sortable_by = ("question",)

    def change_view(self, request: HttpRequest, object_id: str, *rest: Any, **more: Any) -> HttpResponse:
        return redirect("admin:question", unquote(object_id))

    question = column("Question", lambda row: link("question", visible(row.title), row.pk), ordering="question_id")

    @admin.display(description="Who asks")
    def who(self, row: Question) -> str:
        below = f", below {row.parent_name}" if row.parent_name else ""
        return link("agent", f"{row.agent_id}{below}", row.agent_id)

    standing = column("State", lambda row: _drawn("question_state", question=row))
    answer = column("In words", lambda row: records.text(row.words) if row.words else NONE)
    asked = column("Asked", lambda row: moment(row.asked_at))
    ended = column("Ended", lambda row: moment(row.ended_at))


class MachineStates(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_offered = tuple(MachineState.choices)

    def chosen(self, queryset: Any, value: str) -> Any:
        if value == MachineState.WORKING:
            return queryset.working()
        return queryset.exclude(ended_at=None).filter(is_lost=value == MachineState.LOST)


@admin.register(Machine)
class MachineAdmin(PoolRecords):
    intro = (
        "The machines that run the pool's agents. An agent and its directory stay with one machine. The hub runs "
        "agents itself, too; each other one is started with nexus run-pool."
    )
    list_display = ("called", "condition", "running", "queued", "members", "pressure", "offers", "heard")
    list_filter = (MachineStates,)
    search_fields = ("name", "host")
    ordering = (F("ended_at").desc(nulls_first=True), "name")
    sortable_by = ("called",)
    fields = (
        *("called", "condition", "running", "runs", "queued", "members", "pressure", "offers", "serves"),
        *("place", "nexus", "began", "heard", "stopped"),
    )
    readonly_fields = fields

    def completed(self, rows: list[Machine]) -> list[Machine]:
        from nexus.control import selectors

        for work in selectors.work_of(rows):
            vars(work.machine)["work"] = work
        return rows

    called = column("Machine", lambda row: records.text(row.name), ordering="name")
    condition = badge("State", {MachineState.WORKING: "success", MachineState.LOST: "danger"}, lambda row: row.state)
    running = column("Run", lambda row: f"{row.work.runs:,} of {row.capacity:,}")

    @admin.display(description="Runs")
    def runs(self, row: Any) -> str:
        """Return links to the oldest runs."""
        found = ((turn, link("control_turn_change", turn.agent.agent_id, turn.pk)) for turn in row.work.running)
        drawn = format_html_join(", ", "{} since {}", ((page, moment(turn.started_at)) for turn, page in found))
        return format_html("{}{}", drawn or NONE, " and more" if row.work.runs > len(row.work.running) else "")

    queued = column("Wait", lambda row: row.work.waiting)
    members = column("Agents", lambda row: row.work.agents)
    pressure = column("Load", lambda row: f"{row.load:.2f}")
    offers = column("Labels", lambda row: records.text(", ".join(row.labels)) if row.labels else NONE)
    serves = column("Runners", lambda row: records.lines(", ".join(row.runners)) if row.runners else NONE)
    place = column("Where", lambda row: records.text(f"{row.host}, process {row.pid}"))
    nexus = column("Nexus", lambda row: records.text(row.version))
    began = column("Began", lambda row: moment(row.started_at))
    heard = column("Sign of life", lambda row: moment(row.beat_at))
    stopped = column("Ended", lambda row: moment(row.ended_at))


@admin.register(PermissionRule)
class PermissionRuleAdmin(PoolRecords):
    intro = (
        "A rule that denies goes before one that asks, and this before one that allows. Where no rule matches, the "
        "agent's permissions decide, and you where they ask. A rule holds from the next call on. The sandbox is the "
        "wall, and a rule is not: a rule sees the line alone."
    )
    list_after_template = "control/floor.html"
    floor = rules.FLOOR
    list_display = ("number", "does", "what", "holds_for", "author", "written", "asked")
    list_display_links = ("number",)
    list_filter = ("effect", "kind", "scope")
    operations = ("pool_remove_rule",)
    creates = "pool_add_rule"
    search_fields = ("rule_id__exact", "pattern", "name")
    ordering = ("-rule_id",)
    sortable_by = ("number",)
    fields = ("number", "does", "what", "holds_for", "author", "written", "asked")
    readonly_fields = fields

    number = column("Rule", lambda row: row.pk, ordering="rule_id")
    does = badge("Does", {"allow": "success", "deny": "danger", "ask": "warning"}, lambda row: row.effect)
    what = column("What", lambda row: records.lines(row.rule.what))
    holds_for = column("For", lambda row: records.lines(row.whom))
    author = column("Written by", lambda row: records.text(row.written_by))
    written = column("Written", lambda row: moment(row.written_at))
    asked = column("In answer to", lambda row: link("question", "a question", row.question_id or ""))


@admin.register(Budget)
class BudgetAdmin(PoolRecords):
    intro = (
        "A budget that is spent lets no run begin; one that runs may end. You are told when 80 % is spent. A day "
        "begins at midnight, UTC. A budget counts from when it is added; added again, it gets the new limit."
    )
    list_after_template = "control/spent.html"
    list_display = ("limit", "spent_of_it", "part", "condition", "untold", "author", "since")
    list_filter = ("scope", "measure", "period")
    operations = ("pool_remove_budget",)
    creates = "pool_set_budget"
    asks = {"limit": forms.FloatField}
    search_fields = ("name", "budget_id__exact")
    ordering = ("scope", "name", "budget_id")
    sortable_by = ("limit",)
    fields = ("limit", "spent_of_it", "part", "condition", "untold", "author", "since")
    readonly_fields = fields

    def completed(self, rows: list[Budget]) -> list[Budget]:
        from nexus.control.permissions import budgets

        return budgets.renewed(rows)

    limit = column("Budget", lambda row: records.lines(row), ordering="name")
    spent_of_it = column("Spent", lambda row: row.amount(row.spent))
    part = column("Part", lambda row: f"{row.percent} %")
    condition = badge(
        "State",
        {"spent": "danger", "nearly spent": "warning"},
        lambda row: "spent" if row.is_spent else "nearly spent" if row.is_nearly_spent else "goes on",
    )
    untold = column("Runs that did not tell", lambda row: row.unknown)
    author = column("Set by", lambda row: records.text(row.set_by))
    since = column("Set", lambda row: moment(row.set_at))


@admin.register(Outage)
class OutageAdmin(PoolRecords):
    intro = (
        "Runners whose providers fail. Their runs wait, or go to the fallback of the runner. What one agent met, or "
        "those it created, holds up no others until another agent meets it."
    )
    list_display = ("provider", "problem", "reason", "began", "next_try", "waiting")
    list_filter = ("fault",)
    operations = ("pool_reset_outage",)
    search_fields = ("runner",)
    ordering = ("since",)
    sortable_by = ("provider",)
    fields = ("provider", "problem", "reason", "began", "next_try", "waiting", "times")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Outage]:
        return super().get_queryset(request).met()  # type: ignore[no-any-return]

    def completed(self, rows: list[Outage]) -> list[Outage]:
        from nexus.control import selectors

        waiting = selectors.waiting_for_runners([row.runner for row in rows])
        for row in rows:
            vars(row)["waits"] = waiting.get(row.runner, 0)
        return rows

    provider = column("Runner", lambda row: records.text(row.runner), ordering="runner")
    problem = badge("Fault", "danger", lambda row: row.fault)
    reason = column("Why", lambda row: records.lines(row.why[:600]))
    began = column("Since", lambda row: moment(row.since))
    next_try = column(
        "Next try", lambda row: when(row.until, "left") if row.is_confirmed else "at once: one agent met it alone"
    )
    waiting = column("Runs that wait", lambda row: row.waits)
    times = column("Times in a row", lambda row: row.failures)


class Merging(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_offered = (("open", "Waits, in this order"), *MergeState.choices)

    def chosen(self, queryset: Any, value: str) -> Any:
        return queryset.filter(state__in=(MergeState.WAITING, MergeState.RUNNING) if value == "open" else (value,))


def _contents(row: WorktreeMerge) -> str:
    """Return what a merge changes, or changed, and the command that shows it."""
    tree = row.worktree
    many = f"{tree.changed_files} file{'s' * (tree.changed_files != 1)}, +{tree.added} −{tree.removed}"
    return f"{many}: git show -m --first-parent {row.result or row.approved or row.commit}"


@admin.register(WorktreeMerge)
class MergeAdmin(PoolRecords):
    intro = (
        "Each branch has one merge queue: its entries are merged onto the head, checked and taken one after the other. "
        "What came back was sent to its agent; nothing of it is lost."
    )
    list_display = ("branch", "into", "condition", "who", "repository_of", "queued", "ended", "reason")
    list_select_related = ("worktree__agent",)
    list_filter = (Merging, "cause", "needs_person")
    operations = ("pool_withdraw_merge",)
    search_fields = ("merge_id__exact", "worktree__agent__agent_id__exact", "worktree__branch")
    sortable_by = ("branch",)
    fields = (
        *("branch", "into", "condition", "explained", "clashes", "who", "work", "contents", "repository_of", "queued"),
        *("author", "ended"),
    )
    readonly_fields = fields

    def get_ordering(self, request: HttpRequest) -> tuple[str]:
        """Return the order in which the lane takes open entries, or the newest first."""
        return ("merge_id",) if request.GET.get("state") == "open" else ("-merge_id",)

    def operations_on(self, row: WorktreeMerge) -> tuple[str, ...]:
        return self.operations if row.state == MergeState.WAITING and self.is_on() else ()

    branch = column("Branch", lambda row: records.text(row.worktree.branch), ordering="merge_id")
    into = column("Into", lambda row: records.text(row.target))
    condition = badge(
        "State",
        {MergeState.MERGED: "success", "conflict": "danger", "checks": "danger"},
        lambda row: row.step or row.cause or row.state,
    )
    who = column("Agent", lambda row: link("pool_agent", row.worktree.agent.agent_id, row.worktree.agent.pk))
    work = column("Work", lambda row: link("pool_review", "What it changes", row.worktree.agent.pk))
    contents = column("Contains", lambda row: records.text(_contents(row)))
    repository_of = column("Repository", lambda row: records.text(row.worktree.origin))
    queued = column("Queued", lambda row: moment(row.queued_at))
    author = column("Queued by", lambda row: records.text(row.queued_by))
    ended = column("Ended", lambda row: moment(row.ended_at))
    reason = column("Why", lambda row: records.text(row.why) if row.why else NONE)
    explained = column("Why", lambda row: records.lines(row.why) if row.why else NONE)
    clashes = column("Conflicts", lambda row: _drawn("conflicts", conflicts=row.conflicts) if row.conflicts else NONE)


@admin.register(PoolWorktree)
class WorktreeAdmin(PoolRecords):
    intro = "The clones in which the pool's agents work, each on a branch of its own. Its review shows what it changed."
    list_display_links = None  # its review tells it all
    list_display = ("branch_of", "who", "condition", "changes", "merges_into", "created", "merged")
    list_select_related = ("agent",)
    list_filter = ("state", ("agent__ended_at", admin.EmptyFieldListFilter), ("merged_at", admin.EmptyFieldListFilter))
    operations = (*("pool_worktree_queue", "pool_worktree_keep", "pool_worktree_discard", "pool_abandon_work"),)
    search_fields = ("worktree_id__exact", "agent__agent_id__exact", "branch", "origin")
    ordering = ("-worktree_id",)
    sortable_by = ("branch_of",)

    def change_view(self, request: HttpRequest, object_id: str, *rest: Any, **more: Any) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        return redirect("admin:pool_review", row.agent.pk if row else "none")

    branch_of = column("Branch", lambda row: link("pool_review", row.branch, row.agent.pk), ordering="worktree_id")
    who = column(
        "Agent",
        lambda row: link(
            "pool_agent", f"{row.agent.agent_id}{', which ended' if row.agent.ended_at else ''}", row.agent.pk
        ),
    )
    condition = badge("State", {WorktreeState.OPEN: "info", WorktreeState.KEPT: "success"}, lambda row: row.state)

    @admin.display(description="Changes")
    def changes(self, row: PoolWorktree) -> str:
        files = f"{row.changed_files:,} file{'s' * (row.changed_files != 1)}"
        return f"{files}, +{row.added:,} −{row.removed:,}" if row.looked_at else NONE

    merges_into = column("Merges into", lambda row: records.text(row.origin))
    created = column("Made", lambda row: moment(row.created_at))
    merged = column("Merged", lambda row: moment(row.merged_at))


def _drawn(template: str, **context: Any) -> SafeString:
    return render_to_string(f"control/{template}.html", context)
