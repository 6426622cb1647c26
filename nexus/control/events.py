"""Events of the pool in the event log, and the sentences that pages show for them. Operators see these events;
agents of the bus do not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from coordination.models import VisibilityChoices
from coordination.routing import Strategy, Target
from coordination.services.audit import NOBODY
from nexus.control.models import STREAM, PermissionRule, PoolAgent, Question, Turn
from nexus.core.contributions import EntityRef, Sentence

BY = "pool"  # the issuer of its agents' keys in the audit
QUOTED = 500  # characters of a question's subject and of its answer


def emit_of_pool(
    type: str, actor: str | None, moment: datetime, payload: Mapping[str, Any], target: Target = NOBODY
) -> None:
    """Append an event that operators see, and the agents of `target`, inside the transaction of the change."""
    emit(
        workspace_id=None,
        stream=STREAM,
        type=type,
        actor=actor,
        payload=payload,
        moment=moment,
        visibility=VisibilityChoices.PRIVATE,
        target=target,
    )


def emit_event(type: str, actor: str | None, agent: PoolAgent, moment: datetime, **payload: Any) -> None:
    """Append an event about an agent of the pool, inside the transaction of the change."""
    emit_of_pool(type, actor, moment, {"agent_id": agent.agent_id, "pool_agent_id": agent.pk, **payload})


def emit_turn_event(type: str, actor: str | None, turn: Turn, moment: datetime, **payload: Any) -> None:
    """Append an event about a turn."""
    emit_event(type, actor, turn.agent, moment, turn_id=turn.pk, request_id=turn.request_id, **payload)


def emit_question_event(type: str, actor: str | None, question: Question, moment: datetime, **payload: Any) -> None:
    """Append an event about a question to the operators; the agent that asked sees it, too."""
    about = {"question_id": question.pk, "agent_id": question.agent_id, "kind": question.kind, "title": question.title}
    payload = {**about, "subject": question.subject[:QUOTED], "turn_id": question.turn_id, **payload}
    target = {"strategy": Strategy.DIRECT.value, "agent_id": question.agent_id}
    emit_of_pool(type, actor, moment, payload, target)


def emit_rule_event(type: str, rule: PermissionRule, moment: datetime, operator: str) -> None:
    """Append an event about a rule of permissions."""
    about = {"rule_id": rule.pk, "rule": str(rule)[:QUOTED], "effect": rule.effect, "kind": rule.kind}
    payload = {**about, "scope": rule.scope, "name": rule.name[:QUOTED], "operator": operator}
    emit_of_pool(type, None, moment, payload)


THINGS = {
    "run": EntityRef("a run", "control_turn_change", "turn_id", name="request_id"),
    "pool_agent": EntityRef("an agent of the pool", "pool_agent", "pool_agent_id", name="agent_id"),
    "question": EntityRef("a question", "question", "question_id", name="title"),
}
SENTENCES = {
    "pool.created": Sentence("{actor} created {pool_agent} in the pool, {preset}", "{count} agents created"),
    "pool.ended": Sentence("{pool_agent} ended[: {why}]", "{count} agents of the pool ended"),
    "pool.shutdown_asked": Sentence("{actor} marked {pool_agent} as done", "{count} agents marked as done"),
    "pool.end_asked": Sentence("{by} asked the server to end", "the server was asked to end {count} times"),
    "pool.compacted": Sentence(
        "The context of {pool_agent} was compacted from {tokens_before} to {tokens_after} tokens", "{count} compactions"
    ),
    "pool.held": Sentence(
        "{pool_agent} is not woken any more: it reached its limit of {why}", "{count} agents not woken any more"
    ),
    "pool.budget_nearly_spent": Sentence(
        "{percent} % of a budget is spent: {budget}", "{count} budgets were nearly spent"
    ),
    "pool.budget_spent": Sentence("A budget is spent, and lets no run begin: {budget}", "{count} budgets were spent"),
    "pool.resumed": Sentence("{pool_agent} is woken again", "{count} agents woken again"),
    "pool.option_set": Sentence("{actor} set {option} of {pool_agent}[ to {value}]", "{count} options set"),
    "worktree.made": Sentence("{pool_agent} got a worktree on {branch}", "{count} worktrees made"),
    "worktree.queued": Sentence(
        "{actor} put {branch} of {pool_agent} into the merge queue of {into}",
        "{count} worktrees put into a merge queue",
    ),
    "worktree.returned": Sentence(
        "{branch} of {pool_agent} came back from the merge queue of {into}[: {why}]",
        "{count} worktrees came back from a merge queue",
    ),
    "worktree.withdrawn": Sentence(
        "{actor} took {branch} of {pool_agent} out of the merge queue of {into}",
        "{count} worktrees taken out of a merge queue",
    ),
    "worktree.waits": Sentence("{branch} of {pool_agent} waits for review", "{count} worktrees wait for review"),
    "worktree.reviewed": Sentence(
        "{actor} asked for changes of {branch}: {comments} comments, to {to}", "{count} reviews sent"
    ),
    "worktree.answered": Sentence(
        "{actor} answered a comment on {branch}: {outcome}", "{count} comments of reviews answered"
    ),
    "worktree.merged": Sentence("{actor} merged {branch} of {pool_agent}[: {why}]", "{count} worktrees merged"),
    # What earlier versions wrote.
    "worktree.conflicted": Sentence("{branch} of {pool_agent} has conflicts: nothing was merged", "{count} conflicts"),
    "worktree.kept": Sentence("{actor} kept {branch} of {pool_agent}", "{count} worktrees kept"),
    "worktree.discarded": Sentence("{actor} discarded {branch} of {pool_agent}", "{count} worktrees discarded"),
    "turn.queued": Sentence("{actor} sent {pool_agent} work[ by {source}]", "{count} turns queued"),
    "turn.started": Sentence("{pool_agent} began a turn", "{count} turns begun"),
    "turn.said": Sentence("{pool_agent} went on", "{count} steps of turns", quiet=True),
    "turn.put_back": Sentence(
        "{run} of {pool_agent} is started again later[: {why}]", "{count} runs that are started again later"
    ),
    "turn.stuck": Sentence("{run} of {pool_agent} is stuck[: {why}]", "{count} runs that are stuck"),
    "turn.goes_on": Sentence("{run} of {pool_agent} goes on", "{count} runs that go on", quiet=True),
    "turn.cancel_asked": Sentence("{actor} stopped a turn of {pool_agent}", "{count} turns stopped"),
    "turn.retried": Sentence("{actor} retried {run} of {pool_agent}", "{count} runs retried"),
    "turn.dismissed": Sentence("{actor} dismissed {run} of {pool_agent}", "{count} runs dismissed"),
    "turn.done": Sentence("{pool_agent} answered", "{count} turns done"),
    "turn.cancelled": Sentence("A turn of {pool_agent} was cancelled", "{count} turns cancelled"),
    "turn.failed": Sentence("A turn of {pool_agent} failed[: {why}]", "{count} turns failed"),
    "turn.interrupted": Sentence("A turn of {pool_agent} was interrupted[: {why}]", "{count} turns interrupted"),
    "machine.started": Sentence("The machine {machine} works, on {host}", "{count} machines started"),
    "machine.ended": Sentence("The machine {machine} ended", "{count} machines ended"),
    "machine.lost": Sentence("The machine {machine} was lost, with {runs} runs", "{count} machines were lost"),
    "provider.out": Sentence(
        "The provider of {runner} is out ({fault}): its runs wait, or go to its fallback[: {why}]",
        "{count} times a provider was out",
    ),
    "provider.back": Sentence("The provider of {runner} answers again", "{count} times a provider answered again"),
    "provider.reset": Sentence("{actor} let runs of {runner} start again", "{count} outages of providers reset"),
    "question.asked": Sentence("{agent_id} asks: {question}", "{count} questions to operators"),
    "question.answered": Sentence(
        "{question} was {status}[ {scope}] by {operator}, for {agent_id}[: {words}]", "{count} questions answered"
    ),
    "question.expired": Sentence("nobody answered {agent_id} in time: {question}", "{count} questions not answered"),
    "question.answered_late": Sentence(
        "{operator} looked after a question of {agent_id} that had expired: {question}[: {words}]",
        "{count} expired questions looked after",
    ),
    "question.withdrawn": Sentence(
        "{agent_id} stopped waiting for an answer: {question}", "{count} questions withdrawn"
    ),
    "question.allowed_again": Sentence(  # of earlier versions, as the next one
        "{agent_id} did what it is always allowed: {question}", "{count} uses of what is always allowed", quiet=True
    ),
    "question.always_ended": Sentence(
        "{operator} revoked what {agent_id} was always allowed: {question}", "{count} permissions revoked"
    ),
    "rule.written": Sentence("{operator} wrote rule {rule_id}: {rule}", "{count} rules of permissions written"),
    "rule.taken_back": Sentence(
        "{operator} took back rule {rule_id}: {rule}", "{count} rules of permissions taken back"
    ),
}
