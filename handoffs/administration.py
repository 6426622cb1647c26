"""Operators' operations on any handoff of any workspace."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from coordination.parameters import IN_WORKSPACE, ProjectRoot
from coordination.services import workspaces
from coordination.toolset import operation
from handoffs import check_runs, checks, operator_actions, progress, selectors, services, verdicts
from handoffs.check_runs import Checked
from handoffs.models import Handoff, HandoffStatus
from handoffs.operations import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    HeldHandoff,
    SettledHandoff,
    Stretch,
    held_handoff,
    outcome,
    remarks_of,
)
from handoffs.rows import HandoffRow, RemarkRow, handoff_row
from handoffs.transitions import By
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Id, Limit, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY

STEERING = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.INVALID_TRANSITION)
WRITING = (*STEERING, Code.CONTENT_TOO_LARGE)


class HandoffList(Params):
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None
    status: Annotated[
        Literal[
            "OPEN",
            "CLAIMED",
            "IN_PROGRESS",
            "BLOCKED",
            "SUBMITTED",
            "COMPLETED",
            "REJECTED",
            "CANCELLED",
            "EXPIRED",
        ]
        | None,
        Field(description="Those in this state, newest first; none: those that are not settled, oldest first."),
    ] = None
    limit: Annotated[Limit, Field(description=f"{MAX_LIMIT} at most.")] = DEFAULT_LIMIT


class KnownHandoff(HandoffRow):
    project_root: str


class HandoffPage(TypedDict):
    handoffs: list[KnownHandoff]


class ReadHandoff(KnownHandoff, Checked):
    outcome: selectors.HandoffOutcome | None
    remarks: list[RemarkRow]


@operation(HandoffList, *IN_WORKSPACE, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def handoff_list(p: HandoffList, caller: Caller) -> HandoffPage:
    """List handoffs in their present state, of any workspace or of one: a lapsed claim counts as open."""
    workspace_id = None if p.project_root is None else workspaces.locate(p.project_root).workspace_id
    rows = selectors.list_handoffs(workspace_id=workspace_id, status=p.status, limit=min(p.limit, MAX_LIMIT))
    return {"handoffs": [_whole(handoff) for handoff in rows]}


class HandoffId(Params):
    handoff_id: Id


@operation(HandoffId, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def handoff_read(p: HandoffId, caller: Caller) -> ReadHandoff:
    """Any handoff of any workspace, as an operator: the work, and what came of it (by whom, when, result or reason)."""
    handoff = selectors.get_handoff(p.handoff_id)
    return {
        **_whole(handoff),
        "outcome": selectors.outcome(handoff),
        "remarks": remarks_of(handoff),
        **check_runs.of_results(selectors.check_runs_of(handoff)),
    }


def _whole(handoff: Handoff) -> KnownHandoff:
    return {**handoff_row(handoff, now()), "project_root": handoff.workspace.root_realpath}


class WithReason(HandoffId):
    reason: Annotated[str | None, Field(description="The reason, for the log and the agents concerned.")] = None


@operation(WithReason, *WRITING, requires=(OPERATORS_ONLY,), tool=False)
def handoff_release(p: WithReason, caller: Caller) -> HandoffRow:
    """Take a handoff from its holder and notify the holder. The handoff is open again for its target."""
    released = operator_actions.release(handoff_id=p.handoff_id, reason=p.reason, operator=operator_behind(caller))
    return handoff_row(released, now())


class HandoffReassign(WithReason):
    agent_id: Annotated[Id, Field(description="The only agent that may take it from now on.")]


@operation(HandoffReassign, *WRITING, requires=(OPERATORS_ONLY,), tool=False)
def handoff_reassign(p: HandoffReassign, caller: Caller) -> HandoffRow:
    """Give an open or held handoff to one agent, which must claim it. It and the former holder get a message."""
    reassigned = operator_actions.reassign(
        handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason, operator=operator_behind(caller)
    )
    return handoff_row(reassigned, now())


class HandoffReoffer(HandoffId):
    agent_id: Annotated[Id | None, Field(description="Only for this agent; else for the former target.")] = None


@operation(HandoffReoffer, *STEERING, requires=(OPERATORS_ONLY,), tool=False)
def handoff_reoffer(p: HandoffReoffer, caller: Caller) -> HandoffRow:
    """Create a new handoff with the work of a rejected, cancelled or expired one. The log links the two."""
    offered = operator_actions.reoffer(handoff_id=p.handoff_id, agent_id=p.agent_id, operator=operator_behind(caller))
    return handoff_row(offered, now())


@operation(WithReason, *WRITING, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def handoff_withdraw(p: WithReason, caller: Caller) -> SettledHandoff:
    """Retract any open handoff, in any workspace, as an operator. A claimed one is its claimant's until the lease
    lapses."""
    services.cancel(p.handoff_id, By(operator=operator_behind(caller)), p.reason)
    return outcome(p.handoff_id, HandoffStatus.CANCELLED, [])


class HandoffProlong(HandoffId):
    seconds: Stretch = None


@operation(HandoffProlong, *STEERING, requires=(OPERATORS_ONLY,), tool=False)
def handoff_prolong(p: HandoffProlong, caller: Caller) -> HeldHandoff:
    """Extend the lease of a handoff's holder, as an operator."""
    return held_handoff(progress.extend(p.handoff_id, By(operator=operator_behind(caller)), p.seconds))


@operation(HandoffId, *STEERING, requires=(OPERATORS_ONLY,), tool=False)
def handoff_approve(p: HandoffId, caller: Caller) -> SettledHandoff:
    """Accept a submitted handoff as an operator, whoever its verifier is."""
    notified = verdicts.accept(p.handoff_id, By(operator=operator_behind(caller)))
    return outcome(p.handoff_id, HandoffStatus.COMPLETED, notified)


class HandoffSendBack(HandoffId):
    reasons: str


@operation(HandoffSendBack, *WRITING, requires=(OPERATORS_ONLY,), tool=False)
def handoff_send_back(p: HandoffSendBack, caller: Caller) -> SettledHandoff:
    """Return a submitted handoff to the agent that did it, as an operator, whoever its verifier is."""
    notified = verdicts.send_back(p.handoff_id, By(operator=operator_behind(caller)), p.reasons)
    return outcome(p.handoff_id, HandoffStatus.CLAIMED, notified)


class ChecksOf(Params):
    project_root: ProjectRoot


class KnownCheck(TypedDict):
    name: str
    run: str
    seconds: int
    network: bool
    state: Annotated[str, Field(description="reviewed, new, changed, or gone from the file.")]


class KnownChecks(TypedDict):
    project_root: str
    digest: Annotated[str | None, Field(description="Of the checks in the file; checks_approve takes it.")]
    reviewed: Annotated[bool, Field(description="Whether the file's checks are those that an operator reviewed.")]
    reviewed_by: str | None
    reviewed_at: Time | None
    problem: Annotated[str | None, Field(description="Why the file cannot be read.")]
    checks: list[KnownCheck]
    copy: Annotated[list[str], Field(description="Files that git does not have: each worktree gets a copy.")]
    symlink: Annotated[list[str], Field(description="Likewise files: each worktree gets a link to them.")]


@operation(ChecksOf, *IN_WORKSPACE, requires=(OPERATORS_ONLY,), tool=False, read_only=True, slow=True)
def checks_list(p: ChecksOf, caller: Caller) -> KnownChecks:
    """The checks and local files in a project's nexus.toml, and whether they are reviewed."""
    return _known_checks(workspaces.locate(p.project_root))


class ChecksApprove(ChecksOf):
    digest: Annotated[str, Field(max_length=64, description="As checks_list answers it: what you looked at.")]


@operation(ChecksApprove, *IN_WORKSPACE, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, slow=True)
def checks_approve(p: ChecksApprove, caller: Caller) -> KnownChecks:
    """Approve the checks and local files in a project's nexus.toml, as you looked at them."""
    checks.approve(project_root=p.project_root, digest=p.digest, operator=operator_behind(caller))
    return _known_checks(workspaces.locate(p.project_root))


def _known_checks(project: workspaces.ProjectDirectory) -> KnownChecks:
    review, problem = checks.review_of(project.workspace_id), None
    before = checks.checks_in(review) if review else {}
    try:
        found = checks.read_checks(project.root)
    except NexusError as error:
        found, problem = None, error.message
    there = found.checks if found else {}
    rows: list[KnownCheck] = [
        {
            "name": name,
            "run": check.run,
            "seconds": check.seconds or checks.SECONDS,
            "network": check.network,
            "state": _review_state(there.get(name), before.get(name)),
        }
        for name, check in sorted({**before, **there}.items())
    ]
    return {
        "project_root": project.root,
        "digest": found.digest if found else None,
        "reviewed": found is not None and review is not None and review.digest == found.digest,
        "reviewed_by": review.reviewed_by if review else None,
        "reviewed_at": iso(review.reviewed_at) if review else None,
        "problem": problem,
        "checks": rows,
        "copy": [*found.files.copy] if found else [],
        "symlink": [*found.files.symlink] if found else [],
    }


def _review_state(there: checks.Check | None, before: checks.Check | None) -> str:
    if there is None:
        return "gone"
    return "new" if before is None else "reviewed" if there == before else "changed"
