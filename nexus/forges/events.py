"""The events of connected forges, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "forge.connected": Sentence("{actor} connected {repository} on {host}", "{count} forges connected"),
    "forge.disconnected": Sentence("{actor} disconnected {repository}", "{count} forges disconnected"),
    "forge.token_replaced": Sentence("{actor} gave a new token for {repository}", "{count} new tokens of forges"),
    "forge.token_refused": Sentence("{repository} refuses its token", "{count} tokens refused by forges"),
    "forge.issue_taken": Sentence("Issue {number} of {repository} became {handoff}", "{count} issues taken"),
}
