"""The events of handoffs, and the sentences that pages show for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from handoffs.models import Handoff
from nexus.core.contributions import EntityRef, Sentence


def titles(ids: Collection[str]) -> Mapping[str, str]:
    """Return the titles of handoffs, by id."""
    return dict(Handoff.objects.filter(pk__in=ids).values_list("pk", "title"))


THINGS = {"handoff": EntityRef("a handoff", "handoffs_handoff_change", "handoff_id", name="title", names=titles)}
SENTENCES = {
    "handoff.created": Sentence("{actor} handed {handoff} to {target}", "{count} handoffs created"),
    "handoff.unblocked": Sentence("{handoff} can start: what it waited for is done", "{count} handoffs can start"),
    "handoff.claimed": Sentence("{actor} took {handoff}", "{count} handoffs claimed"),
    "handoff.started": Sentence("{actor} works on {handoff}", "{count} handoffs started"),
    "handoff.blocked": Sentence("{actor} is stuck with {handoff}[: {reason}]", "{count} handoffs blocked"),
    "handoff.extended": Sentence("{actor} keeps {handoff} for longer", "{count} leases of handoffs extended"),
    "handoff.expired": Sentence(
        "{handoff} is free again[: the lease of {claimed_by} ran out]", "{count} leases of handoffs ran out"
    ),
    "handoff.timed_out": Sentence("nobody took {handoff} by its deadline", "{count} handoffs past their deadline"),
    "handoff.submitted": Sentence("{actor} submitted {handoff} to be checked", "{count} handoffs submitted"),
    "handoff.checked": Sentence("the checks of {handoff} {outcome}[: {reason}]", "{count} results checked"),
    "handoff.accepted": Sentence("{actor} accepted {handoff}", "{count} handoffs accepted"),
    "handoff.returned": Sentence(
        "{actor} returned {handoff}[ to {claimed_by}][: {reason}]", "{count} handoffs returned"
    ),
    "handoff.completed": Sentence("{actor} finished {handoff}", "{count} handoffs completed"),
    "handoff.rejected": Sentence("{actor} declined {handoff}[: {reason}]", "{count} handoffs rejected"),
    "handoff.cancelled": Sentence("{actor} cancelled {handoff}[: {reason}]", "{count} handoffs cancelled"),
    "handoff.remarked": Sentence("{actor} came too late with {handoff}", "{count} results came too late"),
    "handoff.released": Sentence("{actor} took {handoff}[ from {claimed_by}][: {reason}]", "{count} handoffs released"),
    "handoff.restored": Sentence("{actor} gave {handoff} back[ to {claimed_by}]", "{count} releases taken back"),
    "handoff.reassigned": Sentence(
        "{actor} gave {handoff}[ of {claimed_by}] to {target}[: {reason}]", "{count} handoffs reassigned"
    ),
    "handoff.reoffered": Sentence("{actor} offered {handoff} again", "{count} handoffs offered again"),
}
