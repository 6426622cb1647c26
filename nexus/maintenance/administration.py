"""Operators' operations on the hub as a whole."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal, NotRequired

from django.db import DatabaseError, connection
from pydantic import Field, create_model
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import ProjectRoot
from coordination.services import workspaces
from coordination.toolset import operation
from nexus.core.clock import iso
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.maintenance import retention

log = logging.getLogger(__name__)

Days = Annotated[int | None, Field(ge=0, le=36_500, description="Instead of the setting, for this call.")]


class _RetentionPrune(Params):
    project_root: Annotated[ProjectRoot | None, Field(description="Checked when given; the whole store is pruned.")] = (
        None
    )
    dry_run: bool = False
    vacuum: Annotated[bool, Field(description="Shrink the file once nothing is left to delete.")] = False
    max_batches: Annotated[int, Field(ge=1, le=1000, description="Batches of 500 rows per rule.")] = (
        retention.BATCHES_AT_ONCE
    )


windows: dict[str, Any] = {f"{name}_keep_days": (Days, None) for name in retention.rules()}
RetentionPrune = create_model("RetentionPrune", __base__=_RetentionPrune, **windows)


class RuleOutcome(TypedDict):
    keep_days: int
    before: Time | None
    found: int
    deleted: int


class Compacted(TypedDict):
    bytes_before: int
    bytes_after: int
    problem: NotRequired[str]


class Pruned(TypedDict):
    dry_run: bool
    lanes: dict[str, RuleOutcome]
    more: bool
    vacuum: NotRequired[Compacted]


@operation(
    RetentionPrune,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.VALIDATION_ERROR,
    requires=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
    slow=True,
    takes_minutes=True,
)
def retention_prune(p: _RetentionPrune, caller: Caller) -> Pruned:
    """Delete events, acknowledged deliveries and closed sessions past their windows, a bounded number at a time: call
    it again while `more` is true. dry_run counts what it would delete."""
    if p.project_root is not None:
        workspaces.locate(p.project_root)
    keep_days = {name: days for name in retention.rules() if (days := getattr(p, f"{name}_keep_days")) is not None}
    outcome = retention.prune(
        keep_days=keep_days, dry_run=p.dry_run, max_batches=p.max_batches, operator=operator_behind(caller)
    )
    more = any(rule.found > rule.deleted for rule in outcome.values())
    data: Pruned = {
        "dry_run": p.dry_run,
        "lanes": {
            name: {
                "keep_days": rule.keep_days,
                "before": iso(rule.before),
                "found": rule.found,
                "deleted": rule.deleted,
            }
            for name, rule in outcome.items()
        },
        "more": more,
    }
    if p.vacuum and not p.dry_run and not more:
        data["vacuum"] = _compacted()
    return data


def _compacted() -> Compacted:
    """Return the result of giving free space back. The deletions before it are committed, so an error here is reported
    and does not fail the call."""
    before = store().size_on_disk()
    try:
        before, after = store().compact()
    except DatabaseError as error:
        connection.close()
        known = store().failure(error)
        why = known.message if known else "The store refused it; the server's log has the cause."
        log.warning("The store was not compacted (%s).", error)
        return {"bytes_before": before, "bytes_after": store().size_on_disk(), "problem": why}
    return {"bytes_before": before, "bytes_after": after}


class DatabaseReset(Params):
    confirm: Annotated[Literal["reset"], Field(description="The word reset, typed.")]
    keep_agents: bool = False


class Emptied(TypedDict):
    deleted: int
    vacuum: Compacted


@operation(
    DatabaseReset,
    Code.VALIDATION_ERROR,
    requires=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
    slow=True,
    takes_minutes=True,
)
def database_reset(p: DatabaseReset, caller: Caller) -> Emptied:
    """Delete everything but settings, operators' accounts and, if asked, agents with their keys. No way back."""
    deleted = retention.reset(keep_agents=p.keep_agents, operator=operator_behind(caller))
    return {"deleted": deleted, "vacuum": _compacted()}
