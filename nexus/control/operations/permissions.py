"""Operations on rules of permissions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control.models import PATH_LENGTH, PermissionRule
from nexus.control.permissions import operator_rules
from nexus.control.permissions.members import get
from nexus.control.permissions.patterns import LONGEST_PATTERN
from nexus.control.toolset import operation
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY

LARGEST = 2**62


class AddRule(Params):
    effect: Annotated[
        Literal["allow", "ask", "deny"],
        Field(description="Deny goes before ask, ask before allow. None lifts what an agent's permissions refuse."),
    ]
    kind: Annotated[
        Literal["read", "write", "run", "network", "other"],
        Field(description="read, write: files; other: what an agent asks about in words of its own."),
    ]
    pattern: Annotated[
        str,
        Field(
            max_length=LONGEST_PATTERN,
            description="Paths (the agent's directory comes before relative ones), a command, a page or the agent's "
            "words. `*` stands for any text, in a path of one name; `**` for any directories. A command is a program "
            "and the beginning of its arguments; `*` as its last word stands for any further ones. Empty: everything "
            "of the kind.",
        ),
    ] = ""
    scope: Annotated[
        Literal["agent", "runner", "project", "pool"],
        Field(description="For whom; project: agents in a directory; pool: all agents."),
    ]
    name: Annotated[str, Field(max_length=PATH_LENGTH, description="The agent, the runner, or the project's path.")] = (
        ""
    )


class RuleRow(TypedDict):
    rule_id: int
    rule: Annotated[str, Field(description="In words.")]
    effect: str
    kind: str
    pattern: str
    scope: str
    name: str
    question_id: Annotated[str | None, Field(description="The question whose answer wrote it.")]
    written_by: str
    written_at: Time


class Rules(TypedDict):
    rules: list[RuleRow]


class OfRule(Params):
    rule_id: Annotated[int, Field(ge=1, le=LARGEST)]


class ListRules(Params):
    agent_id: Annotated[Id | None, Field(description="Only rules that hold for this agent of the pool.")] = None


@operation(AddRule, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def pool_add_rule(p: AddRule, caller: Caller) -> RuleRow:
    """Write a rule about what agents may do without a person, or must not do. It holds from their next call on."""
    rule = operator_rules.add(
        effect=p.effect, kind=p.kind, pattern=p.pattern, scope=p.scope, name=p.name, operator=operator_behind(caller)
    )
    return rule_row(rule)


@operation(ListRules, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_rules(p: ListRules, caller: Caller) -> Rules:
    """List the rules of permissions, by number."""
    agent = None if p.agent_id is None else get(p.agent_id)
    return {"rules": [rule_row(rule) for rule in operator_rules.every(agent)]}


@operation(OfRule, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def pool_remove_rule(p: OfRule, caller: Caller) -> RuleRow:
    """Take back a rule: it does not hold for the next call any more."""
    return rule_row(operator_rules.remove(p.rule_id, operator_behind(caller)))


def rule_row(rule: PermissionRule) -> RuleRow:
    """Return a rule in the form that operations answer with."""
    return {
        "rule_id": rule.pk,
        "rule": str(rule),
        "effect": rule.effect,
        "kind": rule.kind,
        "pattern": rule.pattern,
        "scope": rule.scope,
        "name": rule.name,
        "question_id": rule.question_id,
        "written_by": rule.written_by,
        "written_at": iso(rule.written_at),
    }
