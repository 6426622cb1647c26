from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from nexus.core.apps import NexusAppConfig
from nexus.core.operations.errors import Code, NexusError

if TYPE_CHECKING:
    from datetime import datetime

    from handoffs.models import VerifiedWork
    from nexus.core.contributions import Address, AsgiEndpoint, BrowserNotification, Figure, PendingNotice, StartedBy
    from nexus.core.operations.caller import Caller
    from nexus.core.operations.registry import Operation


class ControlConfig(NexusAppConfig):
    name = "nexus.control"
    verbose_name = "Pool"
    declared_in = ("toolset",)
    commands = {
        "pool_list_runs": "nexus runs",
        "pool_get_run": "nexus runs show",
        "pool_get_trace": "nexus runs trace",
        "pool_retry_run": "nexus runs retry",
        "pool_dismiss_run": "nexus runs dismiss",
        "pool_cancel_run": "nexus runs cancel",
        "pool_list_budgets": "nexus budgets",
        "pool_set_budget": "nexus budgets set",
        "pool_remove_budget": "nexus budgets remove",
        "pool_list_rules": "nexus permissions",
        "pool_add_rule": "nexus permissions add",
        "pool_remove_rule": "nexus permissions remove",
        "pool_list_outages": "nexus runners outages",
        "pool_reset_outage": "nexus runners reset",
        "pool_list_merges": "nexus lane",
        "pool_worktree_queue": "nexus lane add",
        "pool_withdraw_merge": "nexus lane withdraw",
        "pool_list_reviews": "nexus review",
        "pool_get_review": "nexus review show",
        "pool_add_comment": "nexus review comment",
        "pool_remove_comment": "nexus review remove",
        "pool_send_comments": "nexus review send",
        "pool_approve_work": "nexus review approve",
        "pool_abandon_work": "nexus review abandon",
        "pool_list_machines": "nexus machines",
        "pool_list_questions": "nexus questions",
        "pool_get_question": "nexus questions show",
        "pool_allow": "nexus questions allow",
        "pool_allow_always": "nexus questions allow --always",
        "pool_refuse": "nexus questions refuse",
        "pool_answer": "nexus questions answer",
        "pool_answer_late": "nexus questions answer-late",
        "pool_dismiss_question": "nexus questions dismiss",
    }
    clock_columns = {
        "pool_agents": "created_at",
        "pool_turns": "queued_at",
        "pool_entries": "created_at",
        "pool_questions": "asked_at",
        "pool_worktrees": "created_at",
        "pool_budgets": "set_at",
        "pool_merges": "queued_at",
        "pool_review_comments": "written_at",
        "pool_rules": "written_at",
        "pool_outages": "since",
        "pool_machines": "started_at",
    }

    def ready(self) -> None:
        from coordination import activity, clock_repair
        from coordination.services import workspaces
        from handoffs import transitions

        def in_review(works: Sequence[VerifiedWork]) -> Sequence[bool]:
            from nexus.control.review.reviews import in_review

            return in_review(works)

        def follow(old: str, new: str) -> None:
            from nexus.control.worktrees import relocation

            relocation.follow(old, new)

        def askers(agent_ids: Collection[str], moment: datetime) -> Mapping[str, datetime]:
            from nexus.control.models import Question

            waiting = Question.objects.waiting(moment).filter(agent_id__in=agent_ids)
            return dict(waiting.order_by("-asked_at").values_list("agent_id", "asked_at"))

        activity.register_askers(askers)
        transitions.register_reviews(in_review)
        workspaces.register_follower(follow)
        clock_repair.register(
            "questions",
            "pool_questions",
            "asked_at",
            lambda: clock_repair.AHEAD_SECONDS,
            among="status = 'asked'",
            ends="expires_at",
            later="expires_at",
        )
        super().ready()

    def pending_notices(self) -> Sequence[PendingNotice]:
        from nexus.control.agents.questions import NEWS

        return (NEWS,)

    def check_call(self, caller: Caller, operation: Operation[Any], params: Any) -> None:
        from nexus.control.config import ControlSettings

        if ControlSettings.current().control:  # without a pool nothing of it is loaded
            from nexus.control.permissions import members

            members.check_ceiling(caller, operation, params)

    def share_of(self, agent_id: str) -> str | None:
        from nexus.control.config import ControlSettings

        if not ControlSettings.current().control:
            return None
        from nexus.control.permissions import members

        agent = members.find(agent_id)
        return None if agent is None else agent.owner

    def check_settings(self) -> None:
        from nexus.control.config import ControlSettings

        if ControlSettings.current().rpc_port and not ControlSettings.current().control:
            raise NexusError(Code.CONFIG_ERROR, "--rpc-port is the pool's: give --control with it.")

    def starters(self, senders: Collection[tuple[str, datetime]]) -> Mapping[tuple[str, datetime], StartedBy]:
        from nexus.control.agents.lineage import starters  # also where this process has no pool: another one may

        return starters(senders)

    def browser_notifications(self) -> Sequence[BrowserNotification]:
        from nexus.control.attention import BELL

        return (BELL,)

    def metrics(self) -> Iterable[Any]:
        from nexus.control.config import ControlSettings

        return super().metrics() if ControlSettings.current().control else ()

    def figures(self) -> Sequence[Figure]:
        from nexus.control.config import ControlSettings

        return super().figures() if ControlSettings.current().control else ()

    def operators_token(self) -> str | None:
        from nexus.control.rpc.endpoint import ENDPOINT

        return ENDPOINT.token

    def runs_others_programs(self) -> bool:
        from nexus.control.config import ControlSettings

        if not ControlSettings.current().control:
            return False
        from nexus.control.selectors import programs_may_run

        return programs_may_run()

    def endpoints(self) -> Sequence[AsgiEndpoint]:
        from nexus.client.jsonrpc import serialize_response
        from nexus.control.rpc.endpoint import ENDPOINT, error_response
        from nexus.core.contributions import AsgiEndpoint

        return (AsgiEndpoint(ENDPOINT.serves, ENDPOINT, lambda error: serialize_response(error_response(None, error))),)

    def addresses(self) -> Sequence[Address]:
        from nexus.control.config import ControlSettings
        from nexus.control.rpc.endpoint import ENDPOINT
        from nexus.core.contributions import Address

        if not (settings := ControlSettings.current()).control:
            return ()
        own = [Address("JSON-RPC", "/rpc", settings.rpc_port, ENDPOINT.alone)] if settings.rpc_port else []
        return [Address("JSON-RPC", "/rpc"), *own]

    def remarks(self) -> Mapping[str, str]:
        from nexus.control.config import ControlSettings
        from nexus.control.runners_file import describe, runners
        from nexus.control.worker.supervision import token_file

        if not ControlSettings.current().control:
            return {}
        remarks = {"Token": str(token_file().token_path), "Runners": describe(runners())}
        if ControlSettings.current().rpc_beyond_loopback:
            remarks["Warning"] = "rpc_beyond_loopback: JSON-RPC answers agents' keys from any machine, unencrypted."
        return remarks

    def openapi_paths(self) -> Mapping[str, Any]:
        from nexus.control.rpc.endpoint import openapi

        return openapi()

    def websocket_routes(self) -> Sequence[Any]:
        from nexus.control.rpc.websocket import routes

        return routes

    def on_serve(self) -> None:
        from nexus.control.worker.supervision import admit

        admit()

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from nexus.control.maintenance import EXPIRY
        from nexus.control.review.reviews import LOOK
        from nexus.control.worker.supervision import supervise
        from nexus.control.worktrees.lane import LANE_WORK
        from nexus.control.worktrees.verification import VERIFICATION
        from nexus.core.background_work import work_forever

        works = (EXPIRY, LANE_WORK, LOOK, VERIFICATION)
        return (supervise, *(partial(work_forever, work) for work in works))
