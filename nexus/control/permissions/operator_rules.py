"""Rules of permissions: written by operators, read at each decision, so that a rule holds from the next call on."""

from __future__ import annotations

import os
from datetime import datetime

from coordination.selectors import require_agent
from nexus.control.events import emit_rule_event
from nexus.control.models import PermissionRule, PoolAgent, Question, RuleEffect, RuleScope
from nexus.control.permissions import patterns, rules
from nexus.control.permissions.budgets import directories
from nexus.control.permissions.members import find
from nexus.control.permissions.rules import Action, Kind, Rule, Ruling, Verdict
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid, not_found

MOST_RULES = 500


def decide(agent_id: str, pool_agent: PoolAgent | None, action: Action, ceiling: Verdict) -> Ruling:
    """Return the verdict on what an agent wants to do, by the rules that hold for it now and by its ceiling."""
    return rules.decide(holding(agent_id, pool_agent), action, ceiling)


def add(*, effect: str, kind: str, pattern: str, scope: str, name: str, operator: str) -> PermissionRule:
    """Write a rule; one that is there already stays as it is.

    An allowing rule for an agent holds for the agent that has this name now; the others hold for the name. Raises
    VALIDATION_ERROR; NOT_FOUND for an allowing rule for an agent that is not there.
    """
    name, pattern = _checked_name(RuleScope(scope), name), _checked_pattern(Kind(kind), pattern)
    pool_agent = find(name) if scope == RuleScope.AGENT and effect == RuleEffect.ALLOW else None
    if scope == RuleScope.AGENT and effect == RuleEffect.ALLOW and pool_agent is None:
        require_agent(name)
    rule = PermissionRule(effect=effect, kind=kind, pattern=pattern, scope=scope, name=name, pool_agent=pool_agent)
    with write():
        return _stored(rule, operator, now())


def allow_always(question: Question, scope: str, operator: str, moment: datetime) -> None:
    """Write the rules that allow what a question asks from now on. Call it inside a transaction. Raises
    VALIDATION_ERROR."""
    for pattern in question.patterns:
        rule = PermissionRule(
            effect=RuleEffect.ALLOW, kind=question.action, pattern=pattern, scope=scope, question=question
        )
        rule.name = name_in(question, RuleScope(scope))
        rule.pool_agent = question.pool_agent if scope == RuleScope.AGENT else None
        _stored(rule, operator, moment)


def name_in(question: Question, scope: RuleScope) -> str:
    """Return the agent, the runner or the directory that a rule of this scope for a question's asker names. Raises
    VALIDATION_ERROR for an agent outside of the pool, which has no runner and no directory."""
    if scope is RuleScope.AGENT:
        return question.agent_id
    if (agent := question.pool_agent) is None:
        raise invalid("This agent is not of the pool: a rule can hold for it alone.", field="scope")
    if scope is RuleScope.RUNNER:
        return agent.runner
    return list(directories(agent))[-1]  # the origin of its worktree, if it has one


def remove(rule_id: int, operator: str) -> PermissionRule:
    """Take back a rule. Raises NOT_FOUND."""
    with write():
        rule = PermissionRule.objects.filter(pk=rule_id).first()
        if rule is None or not PermissionRule.objects.filter(pk=rule_id).delete()[0]:
            raise not_found("rule", str(rule_id))
        emit_rule_event("rule.taken_back", rule, now(), operator)
    return rule


def every(agent: PoolAgent | None = None) -> list[PermissionRule]:
    """Return all rules, or those that hold for an agent, by number. Rules for agents that have ended are left out."""
    found = PermissionRule.objects.filter(pool_agent__ended_at=None).order_by("rule_id")
    if agent is None:
        return list(found)
    numbers = {rule.number for rule in holding(agent.agent_id, agent)}
    return [rule for rule in found if rule.pk in numbers]


def holding(agent_id: str, pool_agent: PoolAgent | None) -> list[Rule]:
    """Return the rules that hold for an agent, by number. One that is outside of the pool has no `pool_agent`."""
    found = list(PermissionRule.objects.order_by("rule_id"))
    paths: list[str] = []
    if pool_agent is not None and any(rule.scope == RuleScope.PROJECT for rule in found):
        paths = list(directories(pool_agent))

    def holds(rule: PermissionRule) -> bool:
        match rule.scope:
            case RuleScope.AGENT if rule.effect == RuleEffect.ALLOW:
                return rule.name == agent_id and rule.pool_agent_id == (pool_agent and pool_agent.pk)
            case RuleScope.AGENT:
                return rule.name == agent_id
            case RuleScope.RUNNER:
                return pool_agent is not None and rule.name == pool_agent.runner
            case RuleScope.PROJECT:
                return any(rules.within(path, (rule.name,)) for path in paths)
        return True

    return [rule.rule for rule in found if holds(rule)]


def _stored(rule: PermissionRule, operator: str, moment: datetime) -> PermissionRule:
    """Store a rule, unless there is the same, and return it. Raises VALIDATION_ERROR."""
    same = ("effect", "kind", "pattern", "scope", "name", "pool_agent")
    known = PermissionRule.objects.filter(**{field: getattr(rule, field) for field in same}).first()
    if known is not None:
        return known
    if PermissionRule.objects.count() >= MOST_RULES:
        raise invalid(f"There are {MOST_RULES} rules already; take some back first.")
    rule.written_by, rule.written_at = operator, moment
    rule.save(force_insert=True)
    emit_rule_event("rule.written", rule, moment, operator)
    return rule


def _checked_name(scope: RuleScope, name: str) -> str:
    match scope:
        case RuleScope.POOL if name:
            raise invalid("A rule for all agents has no name.", field="name")
        case RuleScope.PROJECT:
            if not name.startswith("/") or "\0" in name:
                raise invalid("Name the project by its absolute path.", field="name")
            return os.path.realpath(name)
        case RuleScope.AGENT | RuleScope.RUNNER if not name.strip():
            raise invalid(f"Name the {scope}.", field="name")
    return name


def _checked_pattern(kind: Kind, pattern: str) -> str:
    """Return a pattern; of a path, the directories before the first wildcard as the disk has them."""
    pattern = pattern.strip()
    if not rules.is_pattern(pattern):
        raise invalid(f"A pattern is one line of {patterns.LONGEST_PATTERN} characters at most.", field="pattern")
    if kind is Kind.RUN and patterns.command_pattern(pattern) is None:
        raise invalid(
            "A pattern of commands is a program and the beginning of its arguments, such as `git status *`. `*` is its "
            "last word alone, and it has no other signs of the shell outside of quotes.",
            field="pattern",
        )
    if kind not in rules.FILES or not pattern:
        return pattern
    parts = pattern.split("/")
    if ".." in parts:
        raise invalid("A pattern of paths has no `..`.", field="pattern")
    if not pattern.startswith("/"):
        return pattern
    known = next((at for at, part in enumerate(parts) if patterns.literal(part) is None), len(parts))
    real = os.path.realpath("/".join(patterns.literal(part) or "" for part in parts[:known]) or "/")
    return "/".join([patterns.escaped(real).rstrip("/"), *parts[known:]]) or "/"
