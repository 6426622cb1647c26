"""Debts: handoffs that an agent holds or must verify, and the notices sent to the agents that wait for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from coordination import debts
from coordination.debts import Debt
from coordination.models import Workspace
from handoffs.models import CheckRun, DebtNotice, Handoff, HandoffStatus
from handoffs.verification import MOST_DEBTS, owed_verdicts
from inbox import services as mail
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.caller import HUB_AGENT

PATIENCE = timedelta(minutes=15)  # with an idle agent that owes work, before its creditor and operators learn of it


def handoff_debts(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each handoff that an agent holds under a running lease."""
    rows = Handoff.objects.held().filter(lease_expires_at__gte=moment)
    if agents is not None:
        rows = rows.filter(claimed_by__in=agents)
    else:  # by the leases of each workspace, and not through all that was ever made
        rows = rows.filter(workspace__in=Workspace.objects.values("pk"))
    columns = ("claimed_by", "handoff_id", "title", "from_agent_id", "claimed_at", "updated_at", "workspace_id")
    for holder, handoff_id, title, creator, claimed_at, updated_at, workspace_id in rows.order_by(
        "created_event_id"
    ).values_list(*columns)[:MOST_DEBTS]:
        to = creator if creator != holder else None
        yield Debt(str(holder), "handoff", handoff_id, title, to, claimed_at or updated_at, workspace_id)


def verdicts(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Return a debt for each submitted handoff that one agent alone must verify."""
    # By the workspaces' states, and not through all handoffs.
    rows = Handoff.objects.filter(workspace__in=Workspace.objects.values("pk"), status=HandoffStatus.SUBMITTED)
    rows = rows.exclude(CheckRun.unpassed("handoff")).order_by("created_event_id").defer("payload", "result")
    return owed_verdicts("verdict", rows, agents, "from_agent_id")


def notify_creditors() -> None:
    """Notify the creditors of idle agents about debts that are overdue, once for each debt. A reaper calls it.

    A row records each notice, so that a restart repeats none. It goes when the debt ends: the same work owed anew is
    noticed anew.
    """
    due = [debt for debt in debts.overdue(PATIENCE) if debt.promised and debt.to]
    noticed = set(DebtNotice.objects.values_list("agent_id", "debt"))
    new = [debt for debt in due if (debt.agent_id, debt.key) not in noticed]
    if not new and not noticed:
        return
    still = (
        {(debt.agent_id, debt.key) for debt in debts.everything({agent_id for agent_id, _ in noticed})}
        if noticed
        else set()
    )
    if not new and noticed <= still:
        return
    with write():
        for agent_id, key in noticed - still:
            DebtNotice.objects.filter(agent_id=agent_id, debt=key).delete()
        for debt in new:
            _send_notice(debt)


def _send_notice(debt: Debt) -> None:
    """Send one notice, unless another process has sent it meanwhile. Call it inside a transaction."""
    moment = now()
    _, is_new = DebtNotice.objects.get_or_create(agent_id=debt.agent_id, debt=debt.key, defaults={"told_at": moment})
    if not is_new or debt.to is None:
        return
    seconds = int(PATIENCE.total_seconds())
    mail.notify(
        workspace_id=debt.workspace_id,
        from_agent_id=HUB_AGENT,  # in the agent's own name it would be an act of it, and an answer
        recipient=debt.to,
        subject=f"{debt.agent_id} owes you the {debt.key}: {debt.what[:120]}",
        body=f"It has this since {iso(debt.since)}, has not brought it, and did nothing for {seconds} seconds or more. "
        "Ask it with message_create, or have an operator look.",
        moment=moment,
    )
