"""The pages of the pool, below /admin/."""

from __future__ import annotations

from nexus.control import views
from nexus.core.contributions import Page

PAGES = (
    Page(
        "questions",
        "questions/",
        views.questions,
        "Questions",
        "live_help",
        "More",
        words={"pool_list_questions": "the page Questions"},
        about="Agents' questions to you.",
        position=2,
    ),
    Page("question", "questions/<str:question_id>/", views.question),
    Page(
        "pool",
        "pool/",
        views.pool,
        "Pool",
        "groups",
        "Now",
        words={"pool_list_agents": "the page Pool", "pool_list_outages": "the page Pool"},
        about="The agents that the hub runs itself: create, send, stop, end.",
        position=2,
    ),
    Page(
        "pool_new",
        "pool/+new/",
        views.new,
        words={"pool_create_agent": "New agent of the pool"},
        takes_minutes=True,  # to create a worktree
    ),
    Page(
        "runs",
        "runs/",
        views.runs,
        "Runs",
        "play_circle",
        "More",
        words={"pool_list_runs": "the page Runs"},
        about="The turns of the pool's agents: why each ended, and what to do about those that failed.",
        position=3,
    ),
    Page(
        "run",
        "runs/<id:run_id>/",
        views.run,
        words={"pool_get_run": "the run's page", "pool_retry_run": "Retry on the run's page"},
    ),
    Page("trace", "runs/<id:run_id>/trace/", views.trace, words={"pool_get_trace": "Trace on the run's page"}),
    Page("trace_download", "runs/<id:run_id>/trace/download/", views.trace_download),
    Page(
        "budgets",
        "budgets/",
        views.budgets,
        "Budgets",
        "account_balance_wallet",
        "More",
        words={"pool_list_budgets": "the page Budgets", "pool_set_budget": "Set on the page Budgets"},
        about="Limits of the tokens, money and turns that the pool's agents spend.",
        position=4,
    ),
    Page(
        "permissions",
        "permissions/",
        views.permissions,
        "Permissions",
        "rule",
        "More",
        words={"pool_list_rules": "the page Permissions", "pool_add_rule": "Write on the page Permissions"},
        about="Rules about what the pool's agents may do without you, or must not do.",
        position=4,
    ),
    Page("pool_tail", "pool/<id:pool_agent_id>/tail/", views.tail),
    Page("pool_cancel", "pool/<id:pool_agent_id>/cancel/", views.cancel, words={"pool_cancel": "Stop on its page"}),
    Page(
        "pool_compact", "pool/<id:pool_agent_id>/compact/", views.compact, words={"pool_compact": "Compact on its page"}
    ),
    Page(
        "pool_option",
        "pool/<id:pool_agent_id>/option/",
        views.set_option,
        words={"pool_set_option": "Session on its page"},
    ),
    Page("pool_end", "pool/<id:pool_agent_id>/end/", views.end, words={"pool_destroy_agent": "End on its page"}),
    Page(
        "pool_worktree",
        "pool/<id:pool_agent_id>/worktree/",
        views.worktree,
        words={"pool_worktree_diff": "the worktree's page"},
        takes_minutes=True,
    ),
    Page(
        "pool_merge",
        "pool/<id:pool_agent_id>/worktree/merge/",
        views.merge,
        words={"pool_worktree_merge": "Merge on the worktree's page"},
        takes_minutes=True,
    ),
    Page(
        "pool_keep",
        "pool/<id:pool_agent_id>/worktree/keep/",
        views.keep,
        words={"pool_worktree_keep": "Keep on the worktree's page"},
        takes_minutes=True,
    ),
    Page(
        "pool_discard",
        "pool/<id:pool_agent_id>/worktree/discard/",
        views.discard,
        words={"pool_worktree_discard": "Discard on the worktree's page"},
        takes_minutes=True,
    ),
    Page("pool_agent", "pool/<id:pool_agent_id>/", views.agent, words={"pool_send": "Send on its page"}),
)
