from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import (
        Action,
        AttentionKind,
        DoctorCheck,
        EntityRef,
        ExportKind,
        Figure,
        ImpossibleState,
        Sentence,
        WakeKind,
    )

TYPES = (
    *("created", "claimed", "started", "blocked", "extended", "expired", "timed_out"),
    *("submitted", "accepted", "returned", "completed", "rejected", "cancelled", "remarked"),
    *("released", "restored", "reassigned", "reoffered"),
)


class HandoffsConfig(NexusAppConfig):
    name = "handoffs"
    declared_in = ("operations", "shared_md")

    def ready(self) -> None:
        from coordination import arrivals, debts, overlong, renewal
        from coordination.toolset import COORDINATION
        from handoffs.debts import owed, verdicts
        from handoffs.leases import LONGEST, renew, seconds
        from handoffs.models import Handoff

        overlong.register("handoffs", Handoff.objects.held, "lease_expires_at", lambda: max(LONGEST, seconds()))
        renewal.register("handoffs", renew)
        arrivals.register("handoffs", lambda *asked: import_module("handoffs.offers").offered(*asked))
        debts.register("handoff", owed)
        debts.register("verdict", verdicts)
        COORDINATION.administered_in("handoffs.administration")
        super().ready()

    def streams(self) -> Mapping[str, str]:
        from handoffs.models import STREAM

        return {STREAM: "the life of handoffs"}

    def event_types(self) -> Sequence[str]:
        return [f"handoff.{what}" for what in TYPES]

    def sentences(self) -> Mapping[str, Sentence]:
        from handoffs.sentences import SENTENCES

        return SENTENCES

    def entity_refs(self) -> Mapping[str, EntityRef]:
        from handoffs.sentences import THINGS

        return THINGS

    def export_kinds(self) -> Sequence[ExportKind]:
        from handoffs.maintenance import KINDS

        return KINDS

    def doctor_checks(self) -> Sequence[DoctorCheck]:
        from handoffs.maintenance import CHECKS

        return CHECKS

    def impossible_states(self) -> Sequence[ImpossibleState]:
        from handoffs.maintenance import IMPOSSIBLE

        return IMPOSSIBLE

    def database_objects(self, vendor: str) -> Mapping[str, str]:
        from handoffs.triggers import TRIGGERS

        return TRIGGERS[vendor]

    def clock_columns(self) -> Mapping[str, str]:
        return {"handoffs": "updated_at"}

    def commands(self) -> Mapping[str, str]:
        return {
            "handoff_create": "nexus handoffs create",
            "handoff_cancel": "nexus handoffs cancel",
            "handoff_withdraw": "nexus handoffs cancel",
            "handoff_get": "nexus handoffs show",
            "handoff_list_available": "nexus handoffs --agent",
            "handoff_release": "nexus handoffs release",
            "handoff_release_undo": "nexus handoffs restore",
            "handoff_reassign": "nexus handoffs reassign",
            "handoff_reoffer": "nexus handoffs reoffer",
            "handoff_prolong": "nexus handoffs extend",
            "handoff_approve": "nexus handoffs accept",
            "handoff_send_back": "nexus handoffs return",
        }

    def wake_kinds(self) -> Sequence[WakeKind]:
        from handoffs.offers import WAKES

        return (WAKES,)

    def attention_kinds(self) -> Sequence[AttentionKind]:
        from handoffs.attention import KINDS

        return KINDS

    def actions(self) -> Sequence[Action]:
        from handoffs.attention import ACTIONS

        return ACTIONS

    def metrics(self) -> Iterable[Any]:
        from handoffs.metrics import collect

        return collect()

    def figures(self) -> Sequence[Figure]:
        from handoffs.metrics import FIGURES

        return FIGURES

    def routes(self) -> Sequence[Any]:
        from handoffs.api import routes

        return routes
