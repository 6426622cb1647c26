"""The events of connected forges, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "forge.connected": Sentence("{actor} connected {repository} on {host}", "{count} forges connected"),
    "forge.disconnected": Sentence("{actor} disconnected {repository}", "{count} forges disconnected"),
    "forge.token_replaced": Sentence("{actor} gave a new token for {repository}", "{count} new tokens of forges"),
    "forge.token_refused": Sentence("{repository} refuses its token", "{count} tokens refused by forges"),
    "forge.asked": Sentence("{actor} asked for issue {number} of {repository}", "{count} issues asked for"),
    "forge.checks_failed": Sentence("Checks of {repository} #{number} failed: {jobs}", "{count} failed checks"),
    "forge.branch_moved": Sentence("{branch} of {repository} moved to {commit}", "{count} moves of watched branches"),
    "forge.branch_pushed": Sentence("{branch} was pushed to {repository}", "{count} branches pushed"),
    "forge.closed": Sentence("{repository} #{number} was closed", "{count} issues closed"),
    "forge.merged": Sentence("{handoff} was merged on {repository}", "{count} issues merged"),
    "forge.published": Sentence("{actor} publishes the work on {handoff}", "{count} times work published"),
    "forge.pull_opened": Sentence("Pull request {pull} of {repository} is open", "{count} pull requests opened"),
    "forge.reviewed": Sentence("{comments} comments on {repository} #{number}", "{count} times reviewers commented"),
    "forge.left_out": Sentence(
        "What did not reach the agent from {repository} #{number}: {parts}", "{count} times comments or checks left out"
    ),
    "forge.work_kept": Sentence("The work on {handoff} was committed when it was submitted", "{count} times work kept"),
    "forge.issue_taken": Sentence("Issue {number} of {repository} became {handoff}", "{count} issues taken"),
}
