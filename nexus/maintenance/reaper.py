"""The optional reaper of a server: does at its leisure what otherwise happens in passing, when somebody next looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from coordination.services import sessions
from coordination.services import settings as stored_settings
from handoffs import debts, leases
from nexus.core.work import Work
from nexus.maintenance import retention

Step = Callable[[], None]


class Reaper(Work[Step, None]):
    """Expires leases, closes dead sessions and prunes, a little every few seconds: a step is a short transaction.

    Nothing is claimed: what a step finds is what is due, and a step that fails finds it again.
    """

    name = "reaper"
    tick_seconds = 5.0

    def lanes(self) -> Sequence[str]:
        stored_settings.refresh()
        return list(_steps())

    def claim(self, lane: str) -> Step:
        return _steps()[lane]

    def act(self, item: Step) -> None:
        item()

    def settle(self, item: Step, outcome: None) -> bool:
        return False  # once a tick: others write meanwhile


def _steps() -> dict[str, Step]:
    return {
        "leases": leases.expire_everywhere,
        "debts": debts.tell_creditors,
        "sessions": sessions.reap_everywhere,
        **{f"retention of {name}": partial(retention.prune_a_batch, name) for name in retention.lanes()},
    }


REAPER = Reaper()
