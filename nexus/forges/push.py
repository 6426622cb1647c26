"""Push of an agent's branch to a remote, from a repository of ours that only borrows the objects.

The configuration and hooks of the repository where an agent works are never read while the token is there: git runs in
a sandbox, in an empty repository, with the token in the environment of this one process.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import urlsplit

from coordination.models import Agent, Event
from handoffs.models import Handoff, HandoffStatus
from nexus.control.models import MergeState, WorktreeMerge
from nexus.control.runners.git import NEUTRAL, Git, GitFailed, Origin, TookTooLong, format_of, origin_of
from nexus.control.worktrees import trees, worktrees
from nexus.control.worktrees.trees import Tree
from nexus.forges import remotes
from nexus.forges.models import Forge, ForgeIssue, ForgeKind
from nexus.forges.protocol import Busy, PushInterrupted

KEPT = "forge.work_kept"  # the event of submitted work that was committed
BUSY_SECONDS = 5.0  # until the forge is looked at again
USERS = {ForgeKind.GITHUB: "x-access-token", ForgeKind.GITLAB: "oauth2"}
# What git, curl and ssh say where the remote did not decide: of HTTP errors only 5xx and 429.
PASSING = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Failed to connect to|Couldn't connect to server"
    r"|Connection (refused|reset|timed out)|Operation timed out|Network is unreachable|No route to host"
    r"|Empty reply from server|SSL_ERROR_SYSCALL|(returned error:|RPC failed; HTTP) (5\d\d|429)\b",
    re.IGNORECASE,
)
REFUSED = re.compile(r"^ ! \[|^remote: |returned error: 4(?!29)", re.MULTILINE)  # the remote has the last word


class PushFailed(Exception):
    """A branch could not be pushed. `str(error)` is safe to show to an operator."""


def work_of(handoff: Handoff) -> Tree | None:
    """Return the worktree of the agent that works on a handoff; None if it has none."""
    return worktrees.tree_of(handoff.claimed_by) if handoff.claimed_by else None


def approved(issue: ForgeIssue, tree: Tree | None) -> str | None:
    """Return the commit of an issue's completed work that is to be published: the one that a person approved at the
    desk, if somebody did since it was submitted last, else the one that was recorded when it was submitted.

    None for work that is not completed, and where no commit was recorded: its agent had no worktree then, git failed,
    or retention has removed the event.
    """
    if tree is None or issue.handoff.status != HandoffStatus.COMPLETED:
        return None
    entries = WorktreeMerge.objects.filter(worktree__path=tree.path, queued_at__gte=issue.handoff.claimed_at)
    by_person = entries.exclude(state=MergeState.WITHDRAWN).exclude(queued_by__in=Agent.everyone.values("pk"))
    entry = by_person.order_by("-merge_id").first()
    if entry is None:
        return stored(issue.handoff)
    since = Event.objects.filter(handoff_id=issue.handoff_id, type="handoff.submitted", created_at__gt=entry.queued_at)
    return stored(issue.handoff) if since.exists() else entry.commit


def stored(handoff: Handoff) -> str | None:
    """Return the commit that was recorded when the result of a handoff's claim was submitted."""
    event = Event.objects.filter(handoff_id=handoff.pk, type=KEPT).order_by("-event_id").first()
    if event is None or event.payload["claim_epoch"] != handoff.claim_epoch:
        return None
    return str(event.payload["commit"])


def is_of(project_root: str, tree: Tree) -> bool:
    """Return whether a worktree was made from the repository of a project. Raises GitFailed."""
    return origin_of(project_root, is_shown=False).objects[0] in tree.borrowed


def push(
    forge: Forge, issue: ForgeIssue, tree: Tree | None, remote: str, *, approved: str | None = None
) -> tuple[str, str]:
    """Push the work on an issue; return its branch and commit. Never by force.

    That is the branch that was named, else the commit of the worktree that was `approved`; else, for work that is not
    completed or has no recorded commit, all of the worktree, uncommitted changes included. Raises PushFailed;
    PushInterrupted for what may pass, and Busy while another call is at work there.
    """
    root, commit = forge.workspace.root_realpath, None
    try:
        if issue.branch is not None:
            origin, branch = origin_of(root, is_shown=False), issue.branch
        elif tree is not None:
            if not is_of(root, tree):
                raise PushFailed("its agent's worktree is of another repository; publish it with the name of a branch")
            if approved is None:
                trees.keep(tree, f"Work on #{issue.number}")
            origin, branch, commit = tree.source, tree.branch, approved
        else:
            raise PushFailed("its agent has no worktree; publish it with the name of a branch")
        what = f"{commit or f'refs/heads/{branch}'}^{{commit}}"
        commit = origin.git().line("rev-parse", "--verify", "--end-of-options", what)
        if forge.kind == ForgeKind.GIT:
            remotes.push(origin, commit, branch, remote)
        else:
            _push(origin, branch, commit, remote, forge)
    except trees.Busy as busy:  # no person need publish it again
        raise Busy(str(busy), BUSY_SECONDS) from None
    except GitFailed as error:
        said = str(error).replace(forge.token, "***") if forge.token else str(error)
        failure = PushInterrupted if may_pass(error) else PushFailed
        raise failure(" ".join(said.split())[-200:]) from None
    return branch, commit


def may_pass(error: GitFailed) -> bool:
    """Return whether a push that failed may succeed later, although no person does anything. What is not known to pass
    does not, and words of the remote (`remote: …`) do not count."""
    said = str(error)
    return isinstance(error, TookTooLong) or (PASSING.search(said) is not None and REFUSED.search(said) is None)


def _push(origin: Origin, branch: str, commit: str, remote: str, forge: Forge) -> None:
    scheme = urlsplit(remote).scheme
    if scheme not in ("http", "https"):
        raise PushFailed("the forge named no address for a push over HTTP")
    login = base64.b64encode(f"{USERS[ForgeKind(forge.kind)]}:{forge.token}".encode()).decode()
    config = {
        **NEUTRAL,
        "http.followRedirects": "false",  # the token goes to this address alone
        "credential.helper": "",
        "http.extraHeader": f"Authorization: Basic {login}",
    }
    git = Git(
        *(origin.common, "", origin.objects),
        config=config,
        network=True,
        apart=format_of(commit),
        borrowed=origin.objects,
        protocols=scheme,
    )
    git.run("push", "--quiet", "--no-verify", remote, f"{commit}:refs/heads/{branch}")
