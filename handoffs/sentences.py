"""How the events of handoffs read to people."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.contributions import Sentence, Thing
from handoffs.models import Handoff


def _titles(ids: Collection[str]) -> Mapping[str, str]:
    return dict(Handoff.objects.filter(pk__in=ids).values_list("pk", "title"))


THINGS = {"handoff": Thing("a handoff", "handoff", "handoff_id", names=_titles)}
SENTENCES = {
    "handoff.created": Sentence("{actor} handed {handoff} to {target}", "{count} handoffs created"),
    "handoff.claimed": Sentence("{actor} took {handoff}", "{count} handoffs claimed"),
    "handoff.completed": Sentence("{actor} finished {handoff}", "{count} handoffs completed"),
    "handoff.rejected": Sentence("{actor} declined {handoff}[: {reason}]", "{count} handoffs rejected"),
    "handoff.cancelled": Sentence("{actor} cancelled {handoff}[: {reason}]", "{count} handoffs cancelled"),
    "handoff.expired": Sentence(
        "{handoff} is free again[: the lease of {claimed_by} ran out]", "{count} leases of handoffs ran out"
    ),
}
