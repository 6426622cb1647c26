"""Items of the pool that need an operator (questions, held agents, worktrees), and the actions on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Length

from inbox.monitoring import Picture
from nexus.control import selectors
from nexus.control.agents import wake_kinds
from nexus.control.models import (
    Budget,
    FaultChoices,
    Outage,
    PermissionRule,
    PoolAgent,
    PoolWorktree,
    Question,
    QuestionKind,
    QuestionStatus,
    ReviewComment,
    RunOutcome,
    Turn,
    TurnQuerySet,
    WorktreeMerge,
    WorktreeState,
)
from nexus.control.permissions import budgets
from nexus.control.review import reviews
from nexus.core.clock import now
from nexus.core.contributions import Action, Answerable, AttentionItem, AttentionKind, BrowserNotification, Items
from nexus.core.quoting import visible

EXAMINED = 100  # runs looked at, the oldest
WHOLE = 500  # characters; a longer question is answered on its own page, which shows it in full


def _questions(kind: QuestionKind, *, long: bool = False) -> Callable[[Picture, int], Items]:
    def find(picture: Picture, each: int) -> Items:
        rows = Question.objects.waiting(picture.moment).filter(_there(picture, "pool_agent__"), kind=kind)
        rows = rows.with_parents().order_by("expires_at")
        if kind == QuestionKind.PERMISSION:
            sized = rows.annotate(size=Length("detail") + Length("subject"))
            rows = sized.filter(size__gt=WHOLE) if long else sized.filter(size__lte=WHOLE)
        count = rows.count()
        return Items(count, [_need(row) for row in rows[:each]] if count else [])

    return find


def _expired_questions(picture: Picture, each: int) -> Items:
    """Find questions whose time is over, of agents that could still use an answer."""
    gone = Q(pool_agent__isnull=False, pool_agent__ended_at__isnull=False)
    rows = Question.objects.left_unanswered(picture.moment).filter(_there(picture, "pool_agent__")).exclude(gone)
    rows = rows.with_parents().order_by("-expires_at")
    count = rows.count()
    needs = [
        AttentionItem(
            f"Nobody answered {row.agent_id}: {visible(row.title)}", row.detail[:WHOLE], row.pk, since=row.expires_at
        )
        for row in (rows[:each] if count else ())
    ]
    return Items(count, needs)


def _there(picture: Picture, pool_agent: str = "", name: str = "") -> Q:
    return selectors.in_workspace(picture.workspace, pool_agent, name)


def _need(question: Question) -> AttentionItem:
    said = question.detail
    if question.patterns:
        said = f"{said} – “always” writes the rule: allow {', '.join(question.always_allows)}, for this agent"
    cut = f"{said[:WHOLE]}… ({len(said) - WHOLE} characters more)" if len(said) > 2 * WHOLE else said
    below = f", below {question.parent_name}," if question.parent_name else ""
    return AttentionItem(
        f"{question.agent_id}{below} asks: {visible(question.title)}", cut, question.pk, until=question.expires_at
    )


def _answerable(question_id: str, moment: datetime) -> Answerable | None:
    """Return a question in full. By a link nobody allows anything always."""
    question = Question.objects.filter(pk=question_id).first()
    if question is None:
        return None
    facts = {"Who asks": question.agent_id}
    if question.kind == QuestionKind.PERMISSION:
        facts["About"] = question.subject
    status = question.status
    if status == QuestionStatus.ASKED and question.expires_at <= moment:
        status = QuestionStatus.EXPIRED  # although that is not recorded yet
    by = f" by {question.answered_by}" if question.answered_by else ""
    over = "" if status == QuestionStatus.ASKED else f"This question is {status}{by}."
    actions = () if over else [name for name in actions_for(question, moment) if name != "pool_allow_always"]
    return Answerable(question.title, question.detail, facts, actions, over)


def actions_for(question: Question, moment: datetime) -> Sequence[str]:
    """Return the names of the operations that a question admits now."""
    if question.status != QuestionStatus.ASKED or question.expires_at <= moment:
        return ()
    if question.kind != QuestionKind.PERMISSION:
        return WORDS
    return VERDICTS if question.patterns else [name for name in VERDICTS if name != "pool_allow_always"]


def quick_actions(question: Question) -> Sequence[Action]:
    """Return the actions to offer beside a waiting question; none for a long permission, which must be read whole
    first."""
    long = len(question.detail) + len(question.subject) > WHOLE
    if question.kind == QuestionKind.PERMISSION and long:
        return ()
    named = {action.operation: action for action in ACTIONS}
    return [named[operation] for operation in actions_for(question, now())]


def _failed_runs(picture: Picture, each: int) -> Items:
    return _runs_found(picture, Turn.objects.needing_person().ended(), each)


def _stuck_runs(picture: Picture, each: int) -> Items:
    return _runs_found(picture, Turn.objects.needing_person().open(), each)


def _runs_found(picture: Picture, found: TurnQuerySet, each: int) -> Items:
    """Find runs; those that ended alike, for the same reason, are one item."""
    there = found.filter(_there(picture, "agent__", "agent__"))
    rows = there.select_related("agent").defer("content", "answer").order_by("needs_person_since")[: EXAMINED + 1]
    causes: dict[tuple[str, str], list[Turn]] = defaultdict(list)
    for row in rows[:EXAMINED]:
        causes[row.outcome, row.why or row.pk].append(row)
    needs = [
        AttentionItem(
            f"A run of {runs[0].agent.agent_id} {SAID[runs[0].outcome]}"
            + (f", and {len(runs) - 1} more, for the same reason" if len(runs) > 1 else ""),
            runs[0].why or "",
            runs[0].pk,
            also=[run.pk for run in runs[1:]],
            since=runs[0].needs_person_since,
        )
        for runs in list(causes.values())[:each]
    ]
    return Items(len(causes), needs, or_more=len(rows) > EXAMINED)


def _held_agents(picture: Picture, each: int) -> Items:
    """Find agents that are not woken because they reached a limit."""
    rows = PoolAgent.objects.living().filter(_there(picture)).exclude(held_why=None).order_by("held_at")
    needs = [
        AttentionItem(
            f"{row.agent_id} is not woken any more",
            wake_kinds.why_held(row),
            row.pk,
            since=row.held_at,
        )
        for row in rows[:each]
    ]
    return Items(rows.count(), needs)


def _for_review(picture: Picture, each: int) -> Items:
    """Find finished work, in the order of the page Review."""
    rows = reviews.waiting_for_review(_of_worktrees(picture))
    needs = [
        AttentionItem(
            f"{found.row.agent.agent_id} finished {found.title}",
            _sizes(found),
            found.row.pk,
            found.row.agent.pk,
            since=found.row.agent.last_action_at,
        )
        for found in rows[:each]
    ]
    return Items(len(rows), needs)


def _sizes(found: reviews.ReviewItem) -> str:
    row, count = found.row, found.unblocks
    files = f"{row.changed_files} file{'s' * (row.changed_files != 1)}, +{row.added} −{row.removed}"
    return f"{files}; {count} wait{'s' * (count == 1)} for it" if count else files


def _of_worktrees(picture: Picture) -> Q:
    """Return the condition that a worktree is of the picture's project, which may be a directory in a repository."""
    there = _there(picture, "agent__", "agent__")
    if picture.workspace is None:
        return there
    root = PurePath(picture.workspace.root_realpath)
    above = [str(path) for path in (root, *root.parents)]
    return there | Q(origin__in=above) | Q(path__in=above)


def _left_worktrees(picture: Picture, each: int) -> Items:
    """Find worktrees of ended agents that nobody has merged, kept or discarded, and in which is nothing to review. What
    was read and holds no changes needs nobody."""
    left = PoolWorktree.objects.filter(
        _of_worktrees(picture),
        state=WorktreeState.OPEN,
        merged_at=None,
        agent__ended_at__isnull=False,
    ).exclude(Q(pk__in=PoolWorktree.objects.for_review().values("pk")) | Q(content__gt="", changed_files=0))
    rows = left.select_related("agent").order_by("agent__ended_at")[:each]
    needs = [
        AttentionItem(
            f"{row.agent.agent_id} left {row.branch}", row.origin, row.pk, row.agent.pk, since=row.agent.ended_at
        )
        for row in rows
    ]
    return Items(left.count(), needs)


def _returned(picture: Picture, each: int) -> Items:
    """Find work that came back from the merge queue and that its agent cannot finish alone."""
    rows = _merges_needing(picture).exclude(ended_at=None)
    needs = [
        AttentionItem(
            f"{row.worktree.branch} of {row.worktree.agent.agent_id} came back from the merge queue of {row.target}",
            row.why,
            row.worktree.pk,
            row.worktree.agent.pk,
            since=row.ended_at,
        )
        for row in rows.order_by("ended_at")[:each]
    ]
    return Items(rows.count(), needs)


def _waiting_entries(picture: Picture, each: int) -> Items:
    """Find entries of the merge queue that wait until a person did something, such as approve checks."""
    rows = _merges_needing(picture).filter(ended_at=None)
    needs = [
        AttentionItem(
            f"{row.worktree.branch} of {row.worktree.agent.agent_id} waits in the merge queue of {row.target}",
            row.why,
            row.pk,
            row.worktree.agent.pk,
            since=row.queued_at,
        )
        for row in rows.order_by("pk")[:each]
    ]
    return Items(rows.count(), needs)


def _merges_needing(picture: Picture) -> QuerySet[WorktreeMerge]:
    rows = WorktreeMerge.objects.filter(needs_person=True).select_related("worktree__agent")
    if picture.workspace:
        there = _there(picture, "worktree__agent__", "worktree__agent__")
        rows = rows.filter(Q(worktree__origin=picture.workspace.root_realpath) | there)
    return rows


def _budgets(picture: Picture, each: int) -> Items:
    """Find budgets that are nearly spent, or spent."""
    rows = [budget for budget in budgets.every() if budget.is_nearly_spent]
    needs = [
        AttentionItem(
            f"A budget is spent: {row}" if row.is_spent else f"{row.percent} % of a budget is spent: {row}",
            "No run begins until you raise or remove it." if row.is_spent else "",
            row.pk,
        )
        for row in rows[:each]
    ]
    return Items(len(rows), needs)


def _outages(picture: Picture, each: int) -> Items:
    """Find providers that fail until a person does something, even if agents of one family alone met it."""
    rows = Outage.objects.met().filter(fault__in=(FaultChoices.KEY, FaultChoices.QUOTA))
    needs = [
        AttentionItem(f"The provider of {row.runner} {REFUSES[row.fault]}", row.why, row.runner, since=row.since)
        for row in rows[:each]
    ]
    return Items(rows.count(), needs)


def _machines(picture: Picture, each: int) -> Items:
    """Find machines whose agents have runs that wait, and that begin none."""
    waiting = selectors.waiting_for_machines()
    needs = [
        AttentionItem(
            f"{count} run{'s wait' if count > 1 else ' waits'} for the machine {name}, which is {state}",
            "Their agents' directories are there. Start its worker again (`nexus run-pool --name`), or end the agents.",
            name,
        )
        for name, state, count in waiting[:each]
    ]
    return Items(len(waiting), needs)


REFUSES = {
    FaultChoices.KEY.value: "refuses its key",
    FaultChoices.QUOTA.value: "says that nothing is left of its quota",
}
SAID = {
    RunOutcome.FAILED: "failed",
    RunOutcome.REFUSED: "was refused by the agent",
    RunOutcome.OUT_OF_BUDGET: "is out of budget",
    RunOutcome.LOST: "was lost",
    RunOutcome.STUCK: "is stuck",
}
RETRYING = ("pool_retry_run", "pool_dismiss_run")
VERDICTS = ("pool_allow", "pool_allow_always", "pool_refuse", "pool_answer")
WORDS = ("pool_answer", "pool_refuse")
UNMERGED, LOST = "Also discard changes that nobody merged", "Also what no ref can keep"
TREES = ("pool_worktree_queue", "pool_worktree_keep", "pool_worktree_discard")
KINDS = (
    AttentionKind(
        "permissions",
        "Agents ask for permission",
        "front_hand",
        1,
        _questions(QuestionKind.PERMISSION),
        bad=True,
        page="question",
        look="Read",
        actions=VERDICTS,
        command="nexus questions",
        answerable=_answerable,
    ),
    AttentionKind(
        "long-permissions",
        "Agents ask for permission: read it whole",
        "front_hand",
        2,
        _questions(QuestionKind.PERMISSION, long=True),
        bad=True,
        page="question",
        look="Read and answer",
        command="nexus questions",
        answerable=_answerable,
    ),
    AttentionKind(
        "questions",
        "Agents ask you",
        "live_help",
        3,
        _questions(QuestionKind.QUESTION),
        bad=True,
        page="question",
        look="Read",
        actions=WORDS,
        command="nexus questions",
        answerable=_answerable,
    ),
    AttentionKind(
        "expired-questions",
        "Questions that nobody answered",
        "event_busy",
        5,
        _expired_questions,
        page="question",
        look="Read",
        actions=("pool_answer_late", "pool_dismiss_question"),
        command="nexus questions --which ended",
    ),
    AttentionKind(
        "merge-lane",
        "Worktrees that came back from the merge queue",
        "merge",
        23,
        _returned,
        page="pool_review",
        actions=TREES,
        command="nexus lane list --which returned",
    ),
    AttentionKind(
        "merge-held",
        "Merges that wait for you",
        "merge",
        24,
        _waiting_entries,
        page="pool_review",
        actions=("pool_withdraw_merge",),
        command="nexus lane",
    ),
    AttentionKind(
        "runs",
        "Runs that failed",
        "error",
        31,
        _failed_runs,
        bad=True,
        page="control_turn_change",
        actions=RETRYING,
        command="nexus runs list --which needing_person",
    ),
    AttentionKind(
        "outages",
        "Providers that are out",
        "cloud_off",
        32,
        _outages,
        bad=True,
        actions=("pool_reset_outage",),
        command="nexus runners outages",
    ),
    AttentionKind(
        "machines",
        "Runs that wait for a machine",
        "dns",
        33,
        _machines,
        bad=True,
        command="nexus machines",
    ),
    AttentionKind(
        "stuck-runs",
        "Runs that are stuck",
        "hourglass_disabled",
        30,
        _stuck_runs,
        bad=True,
        page="control_turn_change",
        actions=("pool_cancel_run", *RETRYING),
        command="nexus runs list --outcome stuck",
    ),
    AttentionKind(
        "budgets",
        "Budgets that are spent, or nearly",
        "account_balance_wallet",
        35,
        _budgets,
        actions=("pool_remove_budget",),
        command="nexus budgets",
    ),
    AttentionKind(
        "held",
        "Not woken any more",
        "pause_circle",
        52,
        _held_agents,
        page="pool_agent",
        actions=("pool_resume",),
    ),
    AttentionKind(
        "reviews",
        "Finished work to review",
        "rate_review",
        20,
        _for_review,
        page="pool_review",
        look="Review",
        command="nexus review",
    ),
    AttentionKind(
        "worktrees",
        "Worktrees to merge, keep or discard",
        "account_tree",
        65,
        _left_worktrees,
        page="pool_review",
        actions=TREES,
    ),
)

BELL = BrowserNotification(
    lambda moment: Question.objects.waiting(moment).count(),
    ("question.asked", "question.answered", "question.expired", "question.withdrawn"),
)


def _names(pool_agent_ids: Sequence[str]) -> dict[str, str]:
    return dict(PoolAgent.objects.filter(pk__in=pool_agent_ids).values_list("pk", "agent_id"))


def _living(pool_agent_id: str) -> dict[str, str]:
    """Return the name of a living agent: of one that ended, which may be another's by now, its id, which is no name."""
    names = PoolAgent.objects.living().filter(pk=pool_agent_id).values_list("agent_id", flat=True)
    return {"agent_id": names.first() or pool_agent_id}


def _of_agent(operation: str, label: str, done: str, **more: Any) -> Action:
    return Action(operation, label, done, ("agent", "agents"), _living, _names, toolset="control", **more)


def _runs(run_ids: Sequence[str]) -> dict[str, str]:
    rows = Turn.objects.filter(pk__in=run_ids).values_list("pk", "agent__agent_id", "request_id")
    return {pk: f"{request_id} of {agent_id}" for pk, agent_id, request_id in rows}


def _out(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in Outage.objects.filter(pk__in=names).values_list("pk", flat=True)}


def _titles(question_ids: Sequence[str]) -> dict[str, str]:
    return dict(Question.objects.filter(pk__in=question_ids).values_list("pk", "title"))


def _verdict(operation: str, label: str, done: str, asks: Mapping[str, str] = {}) -> Action:  # never changed
    return Action(
        operation,
        label,
        done,
        ("question", "questions"),
        lambda question_id: {"question_id": question_id},
        _titles,
        asks,
        needed=list(asks),
        toolset="control",
    )


def _of_run(operation: str, label: str, done: str, **more: Any) -> Action:
    things = ("run", "runs")
    return Action(operation, label, done, things, lambda run_id: {"run_id": run_id}, _runs, toolset="control", **more)


def _prompt(run_id: str) -> str:
    return Turn.objects.filter(pk=run_id).values_list("content", flat=True).first() or ""


def _budget_names(budget_ids: Sequence[str]) -> dict[str, str]:
    return {budget.pk: str(budget) for budget in Budget.objects.filter(pk__in=budget_ids)}


def _rule_names(rule_ids: Sequence[str]) -> dict[str, str]:
    found = PermissionRule.objects.filter(pk__in=map(_rule_number, rule_ids))
    return {str(rule.pk): f"rule {rule.pk}: {rule}" for rule in found}


def _rule_number(rule_id: str) -> int:
    """Return the number of a rule; 0, which no rule has, for a text that is none, or too long."""
    return int(rule_id) if rule_id.isdecimal() and len(rule_id) < 19 else 0


def _worktree(worktree_id: str) -> dict[str, str]:
    names = PoolWorktree.objects.filter(pk=worktree_id).values_list("agent__agent_id", flat=True)
    return {"agent_id": names.first() or "", "worktree_id": worktree_id}


def _branches(worktree_ids: Sequence[str]) -> dict[str, str]:
    return dict(PoolWorktree.objects.filter(pk__in=worktree_ids).values_list("pk", "branch"))


def _merges(merge_ids: Sequence[str]) -> dict[str, str]:
    rows = WorktreeMerge.objects.filter(pk__in=merge_ids).select_related("worktree")
    return {row.pk: str(row) for row in rows}


def _comments(comment_ids: Sequence[str]) -> dict[str, str]:
    return {row.pk: f"about {row.where}" for row in ReviewComment.objects.filter(pk__in=comment_ids)}


def _tree(
    verb: str,
    label: str,
    done: str,
    asks: Mapping[str, str] = {},  # never changed
) -> Action:
    things, danger = ("worktree", "worktrees"), verb == "discard"
    return Action(
        f"pool_worktree_{verb}",
        label,
        done,
        things,
        _worktree,
        _branches,
        asks,
        danger=danger,
        toolset="control",
    )


ACTIONS = (
    _tree("queue", "Put into the merge queue", "put into the merge queue"),
    _tree("keep", "Keep", "kept: what lay there is committed on its branch"),
    _tree("discard", "Discard…", "discarded", {"changes_too": UNMERGED, "lost_too": LOST}),
    *(
        Action(
            operation,
            label,
            done,
            ("worktree", "worktrees"),
            _worktree,
            _branches,
            asks,
            danger=operation == "pool_abandon_work",
            toolset="control",
        )
        for operation, label, done, asks in (
            ("pool_send_comments", "Send the comments", "sent back with the comments", {}),
            (
                "pool_abandon_work",
                "Abandon…",
                "abandoned: a ref keeps the changes",
                {"lost_too": LOST},
            ),
        )
    ),
    Action(
        "pool_remove_comment",
        "Remove",
        "removed",
        ("comment", "comments"),
        lambda comment_id: {"comment_id": comment_id},
        _comments,
        toolset="control",
    ),
    Action(
        "pool_remove_rule",
        "Take back",
        "taken back",
        ("rule", "rules"),
        lambda rule_id: {"rule_id": _rule_number(rule_id)},
        _rule_names,
        toolset="control",
    ),
    Action(
        "pool_withdraw_merge",
        "Withdraw",
        "withdrawn",
        ("merge", "merges"),
        lambda merge_id: {"merge_id": merge_id},
        _merges,
        toolset="control",
    ),
    Action(
        "pool_remove_budget",
        "Remove",
        "removed",
        ("budget", "budgets"),
        lambda budget_id: {"budget_id": budget_id},
        _budget_names,
        toolset="control",
    ),
    _of_run("pool_retry_run", "Retry", "retried", edits=("content", "Prompt (Markdown)", _prompt)),
    _of_run("pool_dismiss_run", "Dismiss", "dismissed"),
    _of_run("pool_cancel_run", "Cancel", "cancelled"),
    Action(
        "pool_reset_outage",
        "Try again",
        "let go again",
        ("runner", "runners"),
        lambda runner: {"runner": runner},
        _out,
        toolset="control",
    ),
    _verdict("pool_allow", "Allow once", "allowed, this once"),
    _verdict("pool_allow_always", "Allow always", "allowed, now and by a rule from now on"),
    _verdict("pool_refuse", "Refuse", "refused"),
    _verdict("pool_answer", "Answer…", "answered", {"words": "Your answer (a permission is not given with it)"}),
    _verdict("pool_answer_late", "Answer late…", "answered by a message", {"words": "Your answer"}),
    _verdict("pool_dismiss_question", "Dismiss", "dismissed"),
    _of_agent("pool_resume", "Wake again", "resumed"),
    _of_agent("pool_compact", "Compact", "compacted, as far as there was anything to compact"),
    _of_agent("pool_destroy_agent", "End…", "ended: its turns are stopped, and its mail stays", danger=True),
    _of_agent(
        "pool_set_option",
        "Set",
        "given this option from its next turn on",
        asks={"option": "Option", "value": "Value, as JSON"},
        needed=["option"],
    ),
)
