"""The optional reaper of a server: it records expiries in advance that otherwise the next read or write would
record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from coordination.services import sessions
from coordination.services import settings as stored_settings
from handoffs import debts, leases
from inbox import receipts
from nexus.core.background_work import BackgroundWork
from nexus.maintenance import retention

Step = Callable[[], None]


class Reaper(BackgroundWork[Step, None]):
    """Expire leases, close dead sessions and prune, a little every few seconds; each step is a short transaction.

    Nothing is claimed: a step takes what is due, and after a failure the next one finds it again.
    """

    name = "reaper"
    tick_seconds = 5.0

    def queues(self) -> Sequence[str]:
        stored_settings.refresh()
        return list(_steps())

    def claim(self, queue: str) -> Step:
        return _steps()[queue]

    def act(self, item: Step) -> None:
        item()

    def given_up(self, item: Step, why: str) -> None:
        """Go on: nothing was claimed, and what is due is found again."""

    def settle(self, item: Step, outcome: None) -> bool:
        return False  # once per tick, so that others can write meanwhile


def _steps() -> dict[str, Step]:
    return {
        "leases": leases.expire_everywhere,
        "debts": debts.notify_creditors,
        "receipts": receipts.notify_senders,
        "sessions": sessions.reap_everywhere,
        **{f"retention of {name}": partial(retention.prune_a_batch, name) for name in retention.rules()},
    }


REAPER = Reaper()
