"""The review of finished work: people comment on an agent's worktree, and approve it, send it back, or abandon it.

Comments are drafts until all of them are sent as one message, to the agent that holds the work. Approval is of the
content that a person saw: it is refused for any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from django.db.models import Count, Exists, OuterRef, Q, Subquery
from django.db.models.functions import Left

from coordination import comments as comments_rules
from coordination.comments import (
    check_draft,
    check_room,
    check_text,
    check_words,
    count_in_words,
    latest,
    quoted,
)
from coordination.ids import new_id
from coordination.services import workspaces
from handoffs import operator_actions, selectors
from handoffs.models import HELD, MAX_TITLE, Handoff, HandoffStatus, VerifiedWork
from handoffs.transitions import By, FinishedTask, count_waiting_tasks, finished_tasks, refresh_plan
from handoffs.verdicts import HANDOFFS
from inbox.monitoring import Picture
from nexus.control.agents import pool, turns
from nexus.control.events import emit_event
from nexus.control.models import (
    DiffSide,
    PoolAgent,
    PoolWorktree,
    ReviewComment,
    Turn,
    TurnStatus,
    WorktreeMerge,
    WorktreeQuerySet,
)
from nexus.control.permissions import rules
from nexus.control.permissions.members import Actor, refused
from nexus.control.runners.git import GitFailed
from nexus.control.worktrees import lane, trees, worktrees
from nexus.control.worktrees.trees import Survey, names_in_words
from nexus.control.worktrees.worktrees import refusal
from nexus.core import unified_diff
from nexus.core.background_work import BackgroundWork
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.size_limits import within_limit

AROUND = 3  # lines of the hunk before and after those that a comment is about
MOST_LINES, LINE, QUOTE = 200, 500, 8_000  # of a quote: lines, characters of a line, and in all
EVERY = Q()
ASKED = 20  # files that the page lists one by one for a person to tick; of more, their directories
SOURCE = "review"  # of the turns


class ReviewItem(NamedTuple):
    """A worktree that waits for review."""

    row: PoolWorktree
    handoff: Handoff | None  # that it is the work of
    unblocks: int  # handoffs and planned tasks that wait for it, also by way of others
    title: str

    @property
    def since(self) -> datetime:
        return self.row.agent.last_action_at


def waiting_for_review(among: Q = EVERY) -> list[ReviewItem]:
    """Return the worktrees that wait for review: first those that most handoffs and planned tasks wait for, then
    the oldest."""
    found = PoolWorktree.objects.for_review().filter(among).select_related("agent")
    rows = list(found.order_by("agent__last_action_at", "pk"))
    works = handoffs_of([row.agent for row in rows])
    counts = selectors.count_dependents([handoff.pk for handoff in works.values()])
    tasks = count_waiting_tasks({row.agent.agent_id for row in rows})
    asked = _first_asked([row.agent_id for row in rows])
    waits = []
    for row in rows:
        handoff = works.get(row.agent.pk)
        unblocks = (counts[handoff.pk] if handoff else 0) + tasks.get(row.agent.agent_id, 0)
        title = handoff.title if handoff else asked.get(row.agent_id) or row.branch
        waits.append(ReviewItem(row, handoff, unblocks, title))
    return sorted(waits, key=lambda each: -each.unblocks)


def title_of(row: PoolWorktree, handoff: Handoff | None) -> str:
    """Return what some work is: its handoff, else what its agent was asked first, else its branch."""
    return handoff.title if handoff else _first_asked([row.agent_id]).get(row.agent_id) or row.branch


def _first_asked(agent_keys: Sequence[str]) -> dict[str, str]:
    """Return the first line of what each of these agents was asked first, by pool_agent_id."""
    first = Turn.objects.filter(agent=OuterRef("pk")).order_by("queued_at")
    agents = PoolAgent.objects.filter(pk__in=agent_keys)
    asked = agents.annotate(asked=Subquery(first.values(start=Left("content", MAX_TITLE))[:1]))
    return {key: (text or "").strip().partition("\n")[0] for key, text in asked.values_list("pk", "asked")}


def desk() -> list[ReviewItem | FinishedTask]:
    """Return all that waits for review, the worktrees and the submitted tasks without one: first what most handoffs and
    planned tasks wait for, then the oldest."""
    found: list[ReviewItem | FinishedTask] = [*waiting_for_review(), *finished_tasks(Picture(now()))]
    return sorted(found, key=lambda each: (-each.unblocks, each.since))


def in_review(works: Sequence[VerifiedWork]) -> list[bool]:
    """Return for each result whether it waits for review in a worktree: that of the agent that did it, for the same
    project."""
    doers = {work.doers[0] for work in works if work.doers[0]}
    rows = PoolWorktree.objects.for_review().filter(agent__agent_id__in=doers).select_related("agent")
    found = list(rows) if doers else []
    return [any(_holds(row, work) for row in found) for work in works]


def _holds(row: PoolWorktree, work: VerifiedWork) -> bool:
    there = rules.within(work.workspace.root_realpath, (row.origin, row.path))
    return there and row.agent.agent_id == work.doers[0] and _lived(row.agent, work.since)


def _lived(agent: PoolAgent, moment: datetime | None) -> bool:
    return moment is not None and agent.created_at <= moment and (agent.ended_at is None or moment <= agent.ended_at)


def count_drafts(rows: Sequence[PoolWorktree]) -> dict[str, int]:
    """Return how many comments on these worktrees are not sent, by worktree_id."""
    drafts = ReviewComment.objects.filter(worktree__in=rows, sent_at=None).order_by()
    return dict(drafts.values_list("worktree").annotate(Count("pk")))


def handoffs_of(agents: Sequence[PoolAgent]) -> dict[str, Handoff]:
    """Return the handoff that each of these agents works on, or submitted last, by pool_agent_id; without its
    payload."""
    if not agents:
        return {}
    names = {agent.agent_id for agent in agents}
    live = (HandoffStatus.SUBMITTED, *HELD)
    rows = Handoff.objects.filter(claimed_by__in=names, status__in=live, claimed_at__isnull=False)
    rows = rows.select_related("workspace").defer("payload")
    found: dict[str, Handoff] = {}
    for row in sorted(rows, key=lambda row: (row.status == HandoffStatus.SUBMITTED, row.claimed_at)):
        for agent in agents:
            if agent.agent_id == row.claimed_by and _lived(agent, row.claimed_at):
                found[agent.pk] = row
    return found


class ReviewedWork(NamedTuple):
    """Finished work, as a person decides about it."""

    row: PoolWorktree
    survey: Survey
    handoff: Handoff | None
    summary: str  # what its agent said last
    run: Turn | None  # in which it said so
    comments: list[ReviewComment]
    older: int  # comments that are not among these


def show(agent_id: str, worktree_id: str | None, operator: str) -> ReviewedWork:
    """Return an agent's work, with its newest comments. Raises NOT_FOUND and WORKTREE_REFUSED."""
    row, survey = worktrees.compare(Actor(operator), agent_id, worktree_id)
    run = Turn.objects.filter(agent=row.agent, status=TurnStatus.DONE).order_by("-ended_at", "-pk").first()
    summary = (run.answer or "") if run else ""
    handoff = handoff_of(row)
    return ReviewedWork(row, survey, handoff, summary, run, *comments(row))


def comments(row: PoolWorktree) -> tuple[list[ReviewComment], int]:
    """Return the newest comments on a worktree, in their order, and how many older ones there are."""
    return latest(row.comments.all())


@dataclass(frozen=True)
class LineRange:
    """The place that a comment is about; without a path all of the work, without a side the whole file."""

    path: str = ""
    side: DiffSide | None = None
    first: int | None = None
    last: int | None = None


def place(path: str | None, side: str | None, first: int | None, last: int | None) -> LineRange:
    """Return a place in a diff. Raises VALIDATION_ERROR where the parts do not fit."""
    if first is None:
        if last is not None or side is not None:
            raise invalid("Name the first line, too.", field="line")
        return LineRange(path or "")
    if not path:
        raise invalid("Name the file, too.", field="path")
    last = first if last is None else last
    if last < first:
        raise invalid("The last line comes before the first.", field="last_line")
    return LineRange(path, DiffSide(side or DiffSide.NEW), first, last)


def comment(
    *, agent_id: str, worktree_id: str | None, at: LineRange, text: str, seen: str | None, operator: str
) -> ReviewComment:
    """Draft a comment, with the hunk that it is about.

    Raises NOT_FOUND; VALIDATION_ERROR for a blank text and for what the diff does not show; WORKTREE_REFUSED, also if
    the work is not what was `seen`; CONTENT_TOO_LARGE and INVALID_TRANSITION for more than one message holds.
    """
    check_text(text)
    if at.path or seen is not None:
        row, shown = worktrees.compare(Actor(operator), agent_id, worktree_id)
        if seen not in (None, shown.content):
            raise lane.changed_since(shown.content)
        quote, content = hunk(shown, at), shown.content
    else:
        row, quote, content = worktrees.get(Actor(operator), agent_id, worktree_id), "", ""
    drafted = ReviewComment(
        comment_id=new_id("comment"),
        worktree=row,
        path=at.path,
        side=at.side,
        first_line=at.first,
        last_line=at.last,
        quote=quote,
        content=content,
        text=text,
        author=operator,
        written_at=now(),
    )
    with write():
        _locked(row.pk)
        drafts = _drafts(row)
        check_room(drafts)
        _within_message([*drafts, drafted], row)
        drafted.save(force_insert=True)
    return drafted


def remove(*, comment_id: str) -> ReviewComment:
    """Delete a draft. Raises NOT_FOUND, and INVALID_TRANSITION once it is sent."""
    with write():
        draft = _draft(comment_id)
        ReviewComment.objects.filter(pk=draft.pk).delete()
    return draft


def send(*, agent_id: str, worktree_id: str | None, operator: str) -> tuple[PoolWorktree, Turn, int]:
    """Send all drafts as one message to the agent that holds the work, or goes on with it: it is asked for changes. A
    submitted handoff is returned to it. Return the turn, and how many comments it has.

    Raises NOT_FOUND; INVALID_TRANSITION without drafts, so that of two calls one sends; WORKTREE_REFUSED where no agent
    holds the work, or it is being merged; POOL_FULL.
    """
    found = worktrees.get(Actor(operator), agent_id, worktree_id)
    with write():
        row = _locked(found.pk)
        drafts = _drafts(row)
        if not drafts:
            raise NexusError(Code.INVALID_TRANSITION, f"No comment on {row.branch} waits to be sent.{_last_round(row)}")
        if row.merges.open().exists():
            raise refusal("it is in the merge queue; withdraw it there first")
        handoff = handoff_of(row)
        agent = _holder(row)
        moment, notes = now(), ""
        if handoff is not None and handoff.status == HandoffStatus.SUBMITTED and agent.pk == row.agent.pk:
            reasons = f"{count_in_words(drafts)} of a review; they came as one message."
            HANDOFFS.send_back(handoff, By(operator=operator), reasons, is_known=True)
            notes = (
                f"\n\nThe handoff {handoff.pk} is yours again: handoff_complete it again, with claim_epoch "
                f"{handoff.claim_epoch}."
            )
        turn = turns.queue(
            Actor(operator),
            agent,
            content=message(drafts, row, agent) + notes,
            request_id=None,
            source=SOURCE,
            moment=moment,
        )
        ReviewComment.objects.filter(pk__in=[each.pk for each in drafts]).update(
            sent_at=moment, run_id=turn.pk, recipient=agent.pk
        )
        row.merges.update(needs_person=False)
        worktrees.emit("reviewed", Actor(operator), row, moment, comments=len(drafts), to=agent.agent_id)
    return row, turn, len(drafts)


def approve(
    *, agent_id: str, worktree_id: str | None, seen: str, unseen: Sequence[str], operator: str
) -> tuple[WorktreeMerge, Handoff | None]:
    """Put the work that a person saw into the merge queue, and accept its handoff if that is submitted. `unseen` names
    the files that the diff does not show, or directories of them that end with a slash.

    Raises the errors of `lane.queue`; WORKTREE_REFUSED also for work that cannot be merged, and for what is not shown;
    INVALID_TRANSITION while comments wait to be sent.
    """
    actor = Actor(operator)
    row, survey = worktrees.compare(actor, agent_id, worktree_id)
    worktrees.record_commits(row, survey)
    if survey.content != seen:
        raise lane.changed_since(survey.content)
    if survey.why_not:
        raise refusal(f"{survey.why_not}; put it into the merge queue, which sends it back to its agent")
    _check_seen(row, survey, unseen)
    handoff = handoff_of(row)
    if handoff is not None and handoff.status != HandoffStatus.SUBMITTED:
        handoff = None
    if handoff is not None:
        refresh_plan(workspaces.directory_of(handoff.workspace), handoff.pk)

    def settle() -> None:
        _locked(row.pk)
        if drafts := _drafts(row):
            raise NexusError(
                Code.INVALID_TRANSITION, f"{count_in_words(drafts)} on it: not sent yet. Send or remove them first."
            )
        if handoff is not None and (current := selectors.get_handoff(handoff.pk)).status == HandoffStatus.SUBMITTED:
            HANDOFFS.accept(current, By(operator=operator))

    return lane.queue(actor, agent_id, row.pk, seen=seen, approve=settle), handoff


def _check_seen(row: PoolWorktree, survey: Survey, unseen: Sequence[str]) -> None:
    """Raise WORKTREE_REFUSED unless all that the diff does not show is named."""
    if survey.more:
        raise refusal("it changes more files than a review can list; merge it without one, or in parts")
    directories = tuple(name for name in unseen if name.endswith("/"))
    left = [path for path in survey.unshown if path not in unseen and not path.startswith(directories)]
    if left:
        why = f"the review does not show all of {names_in_words(left)}; read that in {row.path}, and name it as unseen"
        raise refusal(why, field="unseen", names=left)


def by_directory(names: Sequence[str]) -> list[str]:
    """Return the names of files; if there are many, top directories with a slash stand for the files in them."""
    if len(names) <= ASKED:
        return list(names)
    return list(dict.fromkeys(top + slash for top, slash, _ in (name.partition("/") for name in names)))


def handoff_of(row: PoolWorktree) -> Handoff | None:
    """Return the handoff that a worktree is the work of: that its agent works on or submitted last."""
    return handoffs_of([row.agent]).get(row.agent.pk)


def abandon(
    *, agent_id: str, worktree_id: str | None, lost_too: bool, operator: str
) -> tuple[PoolWorktree, Handoff | None]:
    """End the agent and remove its worktree; a ref of the origin keeps the work. A handoff that it holds or submitted
    is open again.

    Raises the errors of `worktrees.discard`.
    """
    actor = Actor(operator)
    row = worktrees.get(actor, agent_id, worktree_id)
    handoff = handoff_of(row)
    why = f"The work on {row.branch} was abandoned in a review."

    def end() -> None:
        if handoff is not None:
            current = selectors.get_handoff(handoff.pk)
            if current.status == HandoffStatus.SUBMITTED:
                HANDOFFS.send_back(current, By(operator=operator), why, is_known=True)
            operator_actions.release(handoff_id=handoff.pk, reason=why, operator=operator)
        if row.agent.ended_at is None:
            pool.destroy(actor, row.agent.agent_id)

    row = worktrees.discard(actor, agent_id, row.pk, changes_too=True, lost_too=lost_too, end=end)
    return row, handoff


def answer_comment(actor: Actor, *, comment_id: str, outcome: str, words: str) -> ReviewComment:
    """Record what became of a comment, as the agent that it was sent to says; it may say so again.

    Raises NOT_FOUND, and NOT_PERMITTED for anybody else.
    """
    check_words(words)
    with write():
        found = ReviewComment.objects.select_related("worktree__agent").filter(pk=comment_id).first()
        if found is None or found.sent_at is None:
            raise not_found("comment", comment_id[:200])
        if actor.agent is None or actor.agent.pk != found.recipient:
            raise refused("recipient", "The agent that a comment was sent to says what became of it.")
        comments_rules.store_answer(found, outcome, words)
        worktrees.emit("answered", actor, found.worktree, now(), comment_id=found.pk, outcome=outcome)
    return found


def _within_message(drafts: Sequence[ReviewComment], row: PoolWorktree) -> None:
    within_limit(message(drafts, row, row.agent), "text", turns.LARGEST_MESSAGE - 1_000)


def _locked(worktree_id: str) -> PoolWorktree:
    """Return a worktree whose comments no other transaction changes meanwhile."""
    return PoolWorktree.objects.select_for_update(of=("self",)).select_related("agent").get(pk=worktree_id)


def _drafts(row: PoolWorktree) -> list[ReviewComment]:
    return list(row.comments.filter(sent_at=None).order_by("pk"))


def _draft(comment_id: str) -> ReviewComment:
    found = ReviewComment.objects.filter(pk=comment_id).values_list("worktree", flat=True).first()
    if found is not None:
        _locked(found)
    draft = ReviewComment.objects.select_related("worktree__agent").filter(pk=comment_id).first()
    if draft is None:
        raise not_found("comment", comment_id[:200])
    check_draft(draft)
    return draft


def _last_round(row: PoolWorktree) -> str:
    last = row.comments.exclude(sent_at=None).order_by("-sent_at").first()
    return "" if last is None else f" The last ones were sent with the run {last.run_id}."


def _holder(row: PoolWorktree) -> PoolAgent:
    """Return the agent that holds the work: its own, or one that works in its directory. Raises WORKTREE_REFUSED."""
    if row.agent.ended_at is None:
        return row.agent
    for agent in PoolAgent.objects.living().order_by("-created_at"):
        if rules.within(agent.cwd, (row.path,)):
            return agent
    raise refusal(
        f"{row.agent.agent_id!r} has ended, and no agent goes on with its work; create one whose directory is "
        f"{row.path}, and send again"
    )


def message(drafts: Sequence[ReviewComment], row: PoolWorktree, agent: PoolAgent) -> str:
    """Return the message that brings an agent all comments of a round."""
    whose = "your work" if agent.pk == row.agent.pk else f"the work of {row.agent.agent_id}, which you go on with,"
    parts = [
        f"A person reviewed {whose} on {row.branch}, in {row.path}, and asks for changes: {count_in_words(drafts)}. "
        "Lines that begin with | are quoted from the diff."
    ]
    for number, each in enumerate(drafts, 1):
        quote = f"\n{quoted(each.quote)}" if each.quote else ""
        parts.append(f"{number}. {each.pk}, about {each.where}{quote}\n{each.author}: {each.text}")
    parts.append(
        "Change the worktree accordingly. Then say what became of each comment: pool_review_answer(comment_id, "
        "outcome, words), whose outcome is done, declined or asked."
    )
    return "\n\n".join(parts)


def hunk(shown: Survey, at: LineRange) -> str:
    """Return the lines of a diff that a comment is about, with those around them. Raises VALIDATION_ERROR where the
    diff does not show them."""
    if at.path and all(file["path"] != at.path for file in shown.files):
        raise invalid("This file is not among those that changed.", field="path")
    if at.first is None or at.last is None:
        return ""
    sections = [found for file, found in unified_diff.paired(shown.diff, shown.files) if file["path"] == at.path]
    for lines in chain.from_iterable(sections):
        for head, rows in _hunks(lines[1:]):
            numbers = [row.new if at.side == DiffSide.NEW else row.old for row in rows]
            if at.first in numbers and at.last in numbers:
                begin, end = numbers.index(at.first), numbers.index(at.last)
                if end - begin >= MOST_LINES:
                    raise invalid(f"A comment is about {MOST_LINES} lines of a diff at most.", field="last_line")
                around = rows[max(begin - AROUND, 0) : end + AROUND + 1]
                return "\n".join([head, *(row.text[:LINE] for row in around)])[:QUOTE]
    raise invalid("The diff does not show these lines, or not in one hunk.", field="line")


def _hunks(lines: Sequence[str]) -> Iterator[tuple[str, list[unified_diff.DiffLine]]]:
    """Yield the hunks of a file: where each stands, and its lines."""
    head, rows = "", list[unified_diff.DiffLine]()
    for line in unified_diff.numbered(lines):
        if (begins := unified_diff.PLACE.match(line.text)) is not None:
            if head:
                yield head, rows
            head, rows = begins[0], []
        elif line.kind not in ("header", "place"):
            rows.append(line)
    if head:
        yield head, rows


class ReviewScan(BackgroundWork["tuple[PoolWorktree, datetime]", "Survey | None"]):
    """Background work that reads, once a worktree is at rest, whether it holds changes to review."""

    name = "reviews"
    watches_log = True
    tick_seconds = 2.0

    def queues(self) -> Sequence[str]:
        return [row.pk for row in _unread().order_by("pk") if Path(row.path).is_dir()]  # else elsewhere, or gone

    def claim(self, queue: str) -> tuple[PoolWorktree, datetime] | None:
        row = _unread().select_related("agent").filter(pk=queue).first()
        return None if row is None or not Path(row.path).is_dir() else (row, now())

    def act(self, item: tuple[PoolWorktree, datetime]) -> Survey | None:
        try:
            return trees.survey(worktrees.own(item[0]))
        except trees.Busy:
            return None
        except (GitFailed, OSError):  # its page says why
            return trees.NOTHING

    def given_up(self, item: tuple[PoolWorktree, datetime], why: str) -> Survey:
        return trees.NOTHING

    def settle(self, item: tuple[PoolWorktree, datetime], outcome: Survey | None) -> bool:
        if outcome is None:
            return False
        row, moment = item
        with write():
            PoolWorktree.objects.filter(pk=row.pk).update(
                looked_at=moment,
                content=outcome.content,
                changed_files=len(outcome.files),
                added=sum(file["added"] or 0 for file in outcome.files),
                removed=sum(file["removed"] or 0 for file in outcome.files),
            )
            worktrees.record_commits(row, outcome)
            if PoolWorktree.objects.for_review().filter(pk=row.pk).exists():
                emit_event("worktree.waits", None, row.agent, now(), branch=row.branch)
        return False


def _unread() -> WorktreeQuerySet:
    """Return the worktrees at rest that nobody read since their agents' last turns."""
    ended = Turn.objects.ended().filter(agent=OuterRef("agent"))
    later = ended.filter(ended_at__gt=OuterRef("looked_at"))
    return PoolWorktree.objects.at_rest().filter(Q(looked_at=None) & Exists(ended) | Exists(later))


LOOK = ReviewScan()
