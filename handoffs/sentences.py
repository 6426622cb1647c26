"""How the events of handoffs read to people."""

from __future__ import annotations

from core.contributions import Sentence, Thing

THINGS = {"handoff": Thing("a handoff", "handoff", "handoff_id")}
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
