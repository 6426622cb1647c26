"""The operations on connected forges, for operators only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import ProjectRoot
from coordination.toolset import operation
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import MAX_INTEGER, Id, Nothing, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.forges import polling, services
from nexus.forges.models import Forge, ForgeKind

CONNECTING = (
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
)


class ForgeRow(TypedDict):
    forge_id: str
    kind: str
    url: str
    repository: str
    workspace_id: str
    label: str | None
    assignee: str | None
    base: str | None
    created_at: Time
    polled_at: Time | None
    last_error: str | None
    token_refused: bool


def forge_row(forge: Forge) -> ForgeRow:
    return {
        "forge_id": forge.pk,
        "kind": forge.kind,
        "url": forge.url,
        "repository": forge.repository,
        "workspace_id": forge.workspace_id,
        "label": forge.label,
        "assignee": forge.assignee,
        "base": forge.base,
        "created_at": iso(forge.created_at),
        "polled_at": iso(forge.polled_at),
        "last_error": forge.last_error,
        "token_refused": forge.refused_at is not None,
    }


class ForgeConnect(Params):
    kind: Annotated[Literal["github", "gitlab", "git"], Field(description="github, gitlab, or git: a plain remote.")]
    repository: Annotated[Id, Field(description="OWNER/REPO; for git the address or the path of the remote.")]
    project_root: ProjectRoot
    token: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=services.MAX_TOKEN,
            description="Token of the forge; none for git. No answer shows it.",
        ),
    ] = None
    url: Annotated[
        str | None, Field(description="Address of the API; default: that of github.com or gitlab.com.", max_length=2000)
    ] = None
    label: Annotated[Id | None, Field(description="Issues with this label are taken.")] = None
    assignee: Annotated[Id | None, Field(description="Issues assigned to this account are taken.")] = None
    target: Annotated[Any, Field(description="Who may claim its handoffs; default: every agent of the project.")] = None
    base: Annotated[
        Id | None, Field(description="Branch of pull requests, or to watch; default: the repository's.")
    ] = None


class ConnectedForge(ForgeRow):
    webhook_secret: str | None
    webhook_path: str | None


@operation(ForgeConnect, *CONNECTING, requires=(OPERATORS_ONLY,), tool=False)
def forge_connect(p: ForgeConnect, caller: Caller) -> ConnectedForge:
    """Connect a repository on GitHub or GitLab to a project, or give it a new token or label; or connect a git remote,
    to which work is pushed. No other answer shows the secret of its webhook."""
    forge = services.connect(
        kind=p.kind,
        repository=p.repository,
        project_root=p.project_root,
        token=p.token,
        url=p.url,
        label=p.label,
        assignee=p.assignee,
        target=p.target,
        base=p.base,
        operator=operator_behind(caller),
    )
    if forge.kind == ForgeKind.GIT:
        return {**forge_row(forge), "webhook_secret": None, "webhook_path": None}
    return {**forge_row(forge), "webhook_secret": forge.secret, "webhook_path": f"/api/v1/forges/{forge.pk}/webhook"}


class ForgeList(TypedDict):
    forges: list[ForgeRow]


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def forge_list(p: Nothing, caller: Caller) -> ForgeList:
    """Every connected repository, and how the last look at it went."""
    return {"forges": [forge_row(row) for row in Forge.objects.order_by("created_at", "pk")]}


class ForgeTake(Params):
    forge_id: Id
    number: Annotated[int, Field(ge=1, le=MAX_INTEGER, description="Number of the issue.")]


class TakenIssue(TypedDict):
    handoff_id: str
    number: int
    title: str


@operation(
    ForgeTake,
    *CONNECTING,
    Code.CONFIG_ERROR,
    CoordinationCode.QUOTA_EXCEEDED,
    requires=(OPERATORS_ONLY,),
    tool=False,
    slow=True,
    takes_minutes=True,
    own_transaction=True,
    idempotent=True,
)
def forge_take(p: ForgeTake, caller: Caller) -> TakenIssue:
    """Make a handoff of one issue now, whatever its labels. An issue that was taken stays the handoff that it is."""
    row = polling.take_now(p.forge_id, p.number, operator_behind(caller))
    return {"handoff_id": row.handoff_id, "number": row.number, "title": row.title}


class ForgePublish(Params):
    handoff_id: Id
    branch: Annotated[
        Id | None,
        Field(description="Branch of the project's repository; default: the worktree of the handoff's agent."),
    ] = None


class PublishedWork(TypedDict):
    handoff_id: str
    number: int
    pull_url: str


@operation(
    ForgePublish,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    Code.INVALID_TRANSITION,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def forge_publish(p: ForgePublish, caller: Caller) -> PublishedWork:
    """Approve submitted work for its forge: the hub pushes the branch and opens the pull request, or pushes to it
    again; to a git remote it only pushes. The handoff is completed when that is merged."""
    row = services.publish(handoff_id=p.handoff_id, branch=p.branch, operator=operator_behind(caller))
    return {"handoff_id": row.handoff_id, "number": row.number, "pull_url": row.pull_url}


class ForgeRef(Params):
    forge_id: Id


class RemovedForge(TypedDict):
    forge_id: str
    removed: bool


@operation(ForgeRef, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def forge_disconnect(p: ForgeRef, caller: Caller) -> RemovedForge:
    """Forget a repository and its token. Its handoffs stay; the forge gets nothing any more."""
    services.disconnect(forge_id=p.forge_id, operator=operator_behind(caller))
    return {"forge_id": p.forge_id, "removed": True}
