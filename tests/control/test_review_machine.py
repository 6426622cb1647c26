"""Reviews in any order: approval is of what was seen, each comment is sent once, and no work is lost or merged
unapproved. Git is played."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from coordination.ids import new_id
from nexus.control.agents import pool, turns
from nexus.control.agents.turns import Ended
from nexus.control.models import MergeState, PoolAgent, PoolWorktree, ReviewComment, Turn, TurnStatus, WorktreeMerge
from nexus.control.permissions.members import Actor
from nexus.control.review import reviews
from nexus.control.review.reviews import LineRange
from nexus.control.runners.git import Origin
from nexus.control.worktrees import lane, worktrees
from nexus.core.clock import now
from nexus.core.operations.errors import NexusError
from tests.conftest import examples
from tests.control.played_git import PlayedGit, played_git
from tests.control.pool import ADMIN, order
from tests.control.test_worktrees import pool as a_pool

__all__ = ["a_pool", "played_git"]

NUMBERS = count()


class Desk(RuleBasedStateMachine):
    """One agent's work, people who review it, and a successor."""

    git: PlayedGit

    @initialize()
    def begin(self) -> None:
        self.above = tempfile.mkdtemp(prefix="nexus-desk-")
        self.place, top = f"{self.above}/{next(NUMBERS)}", Path(self.above, "origin")
        top.mkdir()
        self.count, self.seen, self.approved = 0, "", set[str]()
        self.removed, self.is_heir = set[str](), False
        tree = self.git.make(Origin(str(top), f"{top}/.git", (f"{top}/.git/objects",)), self.place, "smith")
        agent, _ = pool.create(ADMIN, order(f"agent-{next(NUMBERS)}", cwd=self.place))
        self.name, self.agent = agent.agent_id, agent.pk
        self.row = PoolWorktree.objects.create(
            worktree_id=new_id("tree"), agent=agent, created_at=now(), **tree.as_kept
        ).pk
        self.write()

    def teardown(self) -> None:
        shutil.rmtree(self.above, ignore_errors=True)

    def tree(self) -> PoolWorktree:
        return PoolWorktree.objects.select_related("agent").get(pk=self.row)

    def is_there(self) -> bool:
        return self.tree().state != "discarded"

    def does(self, act: Callable[..., Any], **given: Any) -> Any:
        """What a person's act gives; None where it is refused."""
        try:
            return act(agent_id=self.name, worktree_id=self.row, operator="olga", **given)
        except NexusError:
            return None

    @precondition(is_there)
    @rule()
    def write(self) -> None:
        """The agent, or a person in its directory, goes on."""
        self.count += 1
        Path(self.place, "work.txt").write_text(f"{self.row} {self.count}\n")
        self.content = self.git.content(worktrees.own(self.tree()))

    @precondition(is_there)
    @rule()
    def look(self) -> None:
        self.seen = worktrees.compare(Actor("olga"), self.name, self.row)[1].content

    @precondition(is_there)
    @rule()
    def comment(self) -> None:
        self.count += 1
        assert self.does(reviews.comment, at=LineRange(), text=f"text {self.count}", seen=None)

    @precondition(lambda self: ReviewComment.objects.filter(worktree=self.row).exists())
    @rule(data=st.data(), verb=st.sampled_from(["remove", "answer"]))
    def change(self, data: st.DataObject, verb: str) -> None:
        chosen = data.draw(
            st.sampled_from(sorted(ReviewComment.objects.filter(worktree=self.row), key=lambda row: row.pk))
        )
        is_sent = chosen.sent_at is not None
        try:
            if verb == "remove":
                reviews.remove(comment_id=chosen.pk)
                self.removed.add(chosen.pk)
            else:
                agent = PoolAgent.objects.get(pk=chosen.recipient or self.agent)
                reviews.answer_comment(Actor(agent.agent_id, agent), comment_id=chosen.pk, outcome="done", words="")
        except NexusError:
            assert is_sent == (verb != "answer")
        else:
            assert is_sent == (verb == "answer")

    @precondition(is_there)
    @rule()
    def send(self) -> None:
        drafts = set(ReviewComment.objects.filter(worktree=self.row, sent_at=None).values_list("pk", flat=True))
        sent = self.does(reviews.send)
        holds = self.tree().agent.ended_at is None or self.is_heir
        assert (sent is not None) == (bool(drafts) and holds and not self.tree().merges.open().exists())
        assert sent is None or sent[2] == len(drafts)

    @precondition(is_there)
    @rule(looks=st.booleans())
    def approve(self, looks: bool) -> None:
        if looks:
            self.look()
        waits = self.tree().merges.open().exists()
        drafts = ReviewComment.objects.filter(worktree=self.row, sent_at=None).exists()
        approved = self.does(reviews.approve, seen=self.seen, unseen=())
        is_seen = self.seen == self.content
        assert approved is None or (is_seen and not drafts and not waits)
        if approved is not None:
            self.approved.add(self.seen)

    @rule(how=st.sampled_from([MergeState.MERGED, MergeState.RETURNED, None]))
    def lane_goes_on(self, how: MergeState | None) -> None:
        for entry in WorktreeMerge.objects.open().filter(worktree=self.row):
            if how is None:
                lane.withdraw(entry.pk, "olga")
            else:
                WorktreeMerge.objects.filter(pk=entry.pk).update(state=MergeState.RUNNING)
                entry.state = MergeState.RUNNING
                lane._settle(entry, lane.MergeResult(how, commit="merge" if how == MergeState.MERGED else None))

    @rule()
    def turn_runs(self) -> None:
        for turn_id, *_ in turns.queued_turns():
            taken = turns.claim(turn_id)
            assert taken is not None and turns.settle_turn(taken, Ended(TurnStatus.DONE, answer="Done."))

    @precondition(is_there)
    @rule()
    def abandon(self) -> None:
        self.does(reviews.abandon, lost_too=False)

    @rule()
    def agent_ends(self) -> None:
        if self.tree().agent.ended_at is None:
            pool.destroy(ADMIN, self.name)

    @rule()
    def successor_comes(self) -> None:
        if not self.is_heir and self.is_there():
            self.is_heir = True
            pool.create(ADMIN, order(f"agent-{next(NUMBERS)}", cwd=self.place))

    @invariant()
    def each_comment_is_sent_once(self) -> None:
        for comment in ReviewComment.objects.filter(worktree=self.row):
            brought = Turn.objects.filter(source="review", content__contains=comment.pk)
            assert [turn.pk for turn in brought] == ([comment.run_id] if comment.sent_at else [])
        assert not ReviewComment.objects.filter(pk__in=self.removed).exists()

    @invariant()
    def nothing_is_merged_that_nobody_approved(self) -> None:
        commits = WorktreeMerge.objects.filter(worktree=self.row).values_list("commit", flat=True)
        assert {commit.removeprefix("commit of ") for commit in commits} <= self.approved

    @invariant()
    def no_work_is_lost(self) -> None:
        assert self.is_there() or self.content in self.git.kept


def test_reviews_hold_whatever_the_order(db: None, played_git: PlayedGit) -> None:
    Desk.git = played_git
    run_machine(Desk, settings=settings(max_examples=examples(100), stateful_step_count=25))
