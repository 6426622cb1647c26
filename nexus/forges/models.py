"""Connected repositories of forges, and the issues of them that agents work on."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.db.models import F, Q

from coordination.models import ID_LENGTH, TargetField, Workspace, not_empty, one_of
from handoffs.models import Handoff

STREAM = "forge"  # of the log
STREAMS = {STREAM: "issues and pull requests of connected forges"}
PAUSES = (30, 120, 600, 3600)  # seconds until the next attempt, by the number of failures in a row


def pause(failures: int) -> timedelta:
    """Return the time until the next attempt after so many failures in a row."""
    return timedelta(seconds=PAUSES[min(max(failures, 1), len(PAUSES)) - 1])


class ForgeKind(models.TextChoices):
    """The kinds of forges. A plain git remote is one without issues: work is pushed to it, and a branch watched."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GIT = "git", "git remote"


class Forge(models.Model):
    """A repository on a forge whose issues become handoffs of a workspace."""

    forge_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    kind = models.CharField(max_length=16, choices=ForgeKind)
    url = models.TextField()  # of its API
    repository = models.CharField(max_length=ID_LENGTH)  # OWNER/REPO; of a git remote its address
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="forges")
    token = models.TextField(blank=True)  # sent with each call, so it cannot be stored as a hash; a git remote has none
    secret = models.CharField(max_length=128)  # with which the forge's webhook signs
    label = models.CharField(max_length=ID_LENGTH, null=True)  # issues with it are taken
    assignee = models.CharField(max_length=ID_LENGTH, null=True)  # and issues assigned to this account
    target = TargetField()  # of the handoffs
    base = models.CharField(max_length=ID_LENGTH, null=True)  # of pull requests, or watched; null: the default branch
    operator = models.CharField(max_length=ID_LENGTH)  # who connected it
    created_at = models.DateTimeField()
    since = models.DateTimeField()  # issues that changed before are known; for a git remote: approved handoffs
    etag = models.TextField(blank=True)  # of the last list of issues; the commit of the watched branch
    poll_at = models.DateTimeField()  # when to look next
    polled_at = models.DateTimeField(null=True)  # when a look succeeded
    failures = models.PositiveIntegerField(default=0)  # in a row
    next_attempt_at = models.DateTimeField(null=True)  # the end of a pause: after a failure, or by its rate limit
    last_error = models.CharField(max_length=ID_LENGTH, null=True)
    refused_at = models.DateTimeField(null=True)  # it refused the token; nothing is called until there is a new one

    class Meta:
        db_table = "forges"
        constraints = [
            *not_empty("forges", "forge_id", "url", "repository", "secret", "operator"),
            one_of("forges", "kind", ForgeKind),
            models.UniqueConstraint(fields=["url", "repository"], name="forges_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.repository}"


class ForgeIssueQuerySet(models.QuerySet["ForgeIssue"]):
    """Issues by what is to be done."""

    def due(self, moment: datetime) -> ForgeIssueQuerySet:
        """Those whose handoff changed, or that are to be looked at again, and that nobody looks at now. Of ended ones
        the comment shows the last change, too."""
        # Not later: two changes may be dated in another order than they were committed.
        changed = Q(seen_at=None, ended="") | (Q(seen_at__isnull=False) & ~Q(handoff__updated_at=F("seen_at")))
        free = Q(leased_until=None) | Q(leased_until__lte=moment)
        return self.filter(free, Q(due_at__lte=moment) | (Q(due_at=None) & changed))


class ForgeIssue(models.Model):
    """An issue that became a handoff, and what was made of it on the forge."""

    forge = models.ForeignKey(Forge, on_delete=models.CASCADE, related_name="issues", db_index=False)
    number = models.BigIntegerField()  # where there are no issues, that of the event which created the handoff
    handoff = models.OneToOneField(Handoff, on_delete=models.CASCADE, related_name="forge_issue")
    title = models.TextField()
    url = models.TextField()
    updated_at = models.DateTimeField()  # by the forge's clock: what is older than this is not believed
    comment_id = models.BigIntegerField(null=True)  # the comment that shows the progress
    comment = models.TextField(blank=True)  # its text as it was written last
    comment_lost = models.BooleanField(default=False)  # somebody deleted it once
    branch = models.CharField(max_length=ID_LENGTH, null=True)  # that was asked for; null: the worktree's
    published_at = models.DateTimeField(null=True)  # when an operator asked for the pull request
    pull = models.BigIntegerField(null=True)  # its number
    pull_url = models.TextField(blank=True)
    pull_state = models.CharField(max_length=16, blank=True)
    pull_updated_at = models.DateTimeField(null=True)  # by the forge's clock; when a git remote's work was compared
    head = models.CharField(max_length=ID_LENGTH, blank=True)  # the commit of its branch
    checks = models.CharField(max_length=16, blank=True)
    ended = models.CharField(max_length=16, blank=True)  # merged or closed, by the forge's word
    known = models.JSONField(default=list)  # keys of failed jobs and comments that the agent got
    comments_since = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)  # the handoff's time when the forge was brought up to date
    due_at = models.DateTimeField(null=True)  # when to look again, whether or not the handoff changes
    leased_until = models.DateTimeField(null=True)  # a hub looks at it now
    last_error = models.CharField(max_length=ID_LENGTH, null=True)
    push_failures = models.PositiveIntegerField(null=True)  # in a row, that may pass; null: the last push had none

    objects = ForgeIssueQuerySet.as_manager()

    class Meta:
        db_table = "forge_issues"
        constraints = [models.UniqueConstraint(fields=["forge", "number"], name="forge_issues_once")]

    def __str__(self) -> str:
        return f"{self.forge_id}#{self.number}"
