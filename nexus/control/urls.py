"""The pages of the pool, below /admin/."""

from __future__ import annotations

from nexus.control import views
from nexus.control.config import ControlSettings
from nexus.control.models import HUB, Machine, Question
from nexus.core.clock import now
from nexus.core.contributions import Page


def has_pool() -> bool:
    """Return whether the hub runs agents."""
    return ControlSettings.current().control


def has_machines() -> bool:
    """Return whether other machines run agents of the pool, or did."""
    return has_pool() and Machine.objects.exclude(pk=HUB).exists()


PAGES = (
    Page(
        "control_question_changelist",
        title="Questions",
        icon="live_help",
        section="Work",
        words={"pool_list_questions": "the page Questions"},
        about="Agents' questions to you.",
        waits=lambda: Question.objects.waiting(now()).count(),
        position=2,
    ),
    Page("question", "questions/<str:question_id>/", views.question),
    Page(
        "control_poolagent_changelist",
        title="Pool",
        icon="groups",
        section="Pool",
        words={"pool_list_agents": "the page Pool", "pool_create_agent": "Add on the page Pool"},
        about="The agents that the hub runs itself: create, send, stop, end.",
        position=1,
        in_use=has_pool,
    ),
    Page(
        "control_turn_changelist",
        title="Runs",
        icon="play_circle",
        section="Pool",
        words={
            "pool_list_runs": "the page Runs",
            "pool_get_run": "the run's page",
            "pool_retry_run": "Retry on the run's page",
        },
        about="The turns of the pool's agents: why each ended, and what to do about those that failed.",
        position=2,
        in_use=has_pool,
    ),
    Page("trace", "runs/<id:run_id>/trace/", views.trace, words={"pool_get_trace": "Trace on the run's page"}),
    Page(
        "control_budget_changelist",
        title="Budgets",
        icon="account_balance_wallet",
        section="Rules",
        words={"pool_list_budgets": "the page Budgets", "pool_set_budget": "Add on the page Budgets"},
        about="Limits of the tokens, money and turns that the pool's agents spend.",
        position=2,
        in_use=has_pool,
    ),
    Page(
        "control_permissionrule_changelist",
        title="Permissions",
        icon="rule",
        section="Rules",
        words={"pool_list_rules": "the page Permissions", "pool_add_rule": "Add on the page Permissions"},
        about="Rules about what the pool's agents may do without you, or must not do.",
        position=1,
        in_use=has_pool,
    ),
    Page(
        "control_machine_changelist",
        title="Machines",
        icon="dns",
        section="Pool",
        words={"pool_list_machines": "the page Machines"},
        about="The machines that run the pool's agents: who runs what, where, and their load.",
        position=5,
        in_use=has_machines,
    ),
    Page("spending", "spending/", views.spending),
    Page(
        "control_outage_changelist",
        title="Outages",
        icon="cloud_off",
        section="Pool",
        words={"pool_list_outages": "the page Outages"},
        about="Runners whose providers fail, and when they are tried next.",
        position=6,
        in_use=has_pool,
    ),
    Page("pool_tail", "pool/<id:pool_agent_id>/tail/", views.tail),
    Page(
        "reviews",
        "review/",
        views.reviews,
        "Review",
        "rate_review",
        "Now",
        words={"pool_list_reviews": "the page Review"},
        about="Finished work of agents, worktrees and planned tasks: comment on it, send it back, approve it.",
        position=5,
    ),
    Page(
        "pool_review",
        "review/<id:pool_agent_id>/",
        views.review,
        words={
            "pool_get_review": "the work's page",
            "pool_worktree_diff": "the work's page",
            "pool_add_comment": "Add the comment on the work's page",
        },
        takes_minutes=True,
    ),
    Page(
        "pool_approve",
        "review/<id:pool_agent_id>/approve/",
        views.approve,
        words={"pool_approve_work": "Approve on the work's page"},
        takes_minutes=True,
    ),
    Page(
        "control_worktreemerge_changelist",
        title="Merge queue",
        icon="merge",
        section="Pool",
        words={"pool_list_merges": "the page Merge queue"},
        about="Work of worktrees on its way into a branch: what waits, what runs, and what came back.",
        position=4,
        in_use=has_pool,
    ),
    Page(
        "control_poolworktree_changelist",
        title="Worktrees",
        icon="account_tree",
        section="Pool",
        about="The clones in which the pool's agents work: merge, keep or discard what they hold.",
        position=3,
        in_use=has_pool,
    ),
    Page(
        "pool_agent",
        "pool/<id:pool_agent_id>/",
        views.agent,
        words={
            "pool_send": "Send on its page",
            "pool_cancel": "Stop on its page",
            "pool_compact": "Compact on its page",
            "pool_set_option": "Session on its page",
            "pool_destroy_agent": "End on its page",
        },
    ),
)
