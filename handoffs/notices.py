"""Notices of handoffs: messages to the inboxes of the agents that an event of a handoff concerns."""

from __future__ import annotations

from datetime import datetime

from coordination.routing import Strategy
from handoffs import sql, verifiers
from handoffs.models import Dependency, Handoff, can_start, in_quotes
from handoffs.transitions import record
from inbox import services as mail
from nexus.core.operations.caller import HUB_AGENT

RESULT_IN_NOTICE = 2000  # characters of a result that its notice quotes; handoff_get has it whole


def notify(
    handoff: Handoff, recipient: str, what: str, body: str, moment: datetime, *, by: str | None = None
) -> list[str]:
    """Send an agent a notice of a handoff, "*title* `what`"; return whom it reached. Call it inside a transaction.

    An agent gets no notice of its own act (`by`). Without `by` the creator sends the notice, also to itself.
    """
    if recipient == by:
        return []
    return mail.notify(
        workspace_id=handoff.workspace_id,
        from_agent_id=by or handoff.from_agent_id,
        recipient=recipient,
        subject=f"{in_quotes(handoff.title)} {what}",
        body=body,
        moment=moment,
        trace_id=handoff.trace_id,
    )


def offered(handoff: Handoff, moment: datetime) -> list[str]:
    """Notify the agent that a direct target names. Where the handoff waits for others, `unblocked` does it."""
    if handoff.target["strategy"] not in (Strategy.DIRECT, Strategy.DIRECT_WITH_FALLBACK):
        return []
    body = (
        f"{handoff.from_agent_id} hands work to you. "
        f"Take it with handoff_claim(handoff_id={handoff.handoff_id!r}), or handoff_reject it."
    )
    return notify(handoff, handoff.target["agent_id"], "is for you", body, moment)


def unblocked(handoff: Handoff, actor: str | None, moment: datetime) -> None:
    """Offer what waited for a completed handoff alone, inside its transaction: writers of a workspace take turns, so of
    two that are completed at the same time the second one sees the first one's end."""
    if not sql.mark_done(handoff_id=handoff.handoff_id):
        return
    dependents = Dependency.objects.filter(depends_on=handoff).values("handoff_id")
    waiting = Handoff.objects.open().filter(can_start(), pk__in=dependents).exclude(deadline_at__lt=moment)
    for dependent in waiting.order_by("created_event_id"):
        record(dependent, "unblocked", actor, moment)
        offered(dependent, moment)


def ended(handoff: Handoff, agent_id: str, outcome: str, text: str | None, moment: datetime) -> list[str]:
    """Notify the creator of an outcome: "completed" with the result, "rejected" with the reason."""
    body = f"{agent_id} {outcome} {handoff.handoff_id}; handoff_get has the whole outcome.{_quoted(text)}"
    return notify(handoff, handoff.from_agent_id, f"was {outcome}", body, moment, by=agent_id)


def submitted(handoff: Handoff, agent_id: str, result: str | None, moment: datetime) -> list[str]:
    """Ask the verifiers (of a role, only the first few) for their verdict on a submitted result."""
    body = (
        f"{agent_id} did it; you decide whether it counts: "
        f"handoff_accept(handoff_id={handoff.handoff_id!r}), or handoff_return with reasons.{_quoted(result)}"
    )
    asked = verifiers.to_ask(handoff, moment)
    recipients = (notify(handoff, each, "waits for your verdict", body, moment, by=agent_id) for each in asked)
    return [name for names in recipients for name in names]


def timed_out(handoff: Handoff, moment: datetime) -> list[str]:
    """Notify the creator that nobody claimed the handoff before its deadline."""
    body = (
        "Nobody had it when its deadline passed. Offer it again with handoff_create, with another target or more time."
    )
    return notify(handoff, handoff.from_agent_id, "expired", body, moment, by=HUB_AGENT)


def _quoted(text: str | None) -> str:
    return "" if text is None else f"\n\n{text[:RESULT_IN_NOTICE]}{'…' if len(text) > RESULT_IN_NOTICE else ''}"
