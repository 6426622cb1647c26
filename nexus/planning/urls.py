"""The pages of plans, below /admin/."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.planning import views

PAGES = (
    Page(
        "plan",
        "plan/",
        views.plan,
        "Plan",
        "account_tree",
        "Now",
        about="What a project has to decide, and its tasks.",
        position=4,
        by_workspace=True,
        words={"history_search": "the list of closed cycles"},
    ),
    Page("plan_issue", "plan/issues/<int:issue_id>/", views.issue),
    Page("plan_close", "plan/<id:workspace_id>/close/", views.close, words={"task_close": "Close the cycle"}),
    Page(
        "plan_comment",
        "plan/<id:workspace_id>/comment/",
        views.comment,
        words={"plan_comment_add": "Add the comment", "plan_comments": "Comments"},
    ),
)
