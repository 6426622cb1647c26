"""The order of turns: round robin among senders, and for each sender among the agents that it sent to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class Waiting:
    """The oldest queued turn of an agent."""

    turn_id: str  # ids sort by age
    agent: str
    sender: str | None  # an agent; None stands for administrators


MOST = 10_000  # remembered senders and agents, the last served


class Fairness:
    """Memory of who was served, so that nobody with many turns keeps others waiting. One per worker."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str | None], int] = {}
        self._clock = count(1)

    def first(self, waiting: Iterable[Waiting], running: Collection[str | None]) -> Waiting | None:
        """Return the turn to start next; `running` names the sender of each running turn.

        It is of the sender with the fewest running turns, then of the one served longest ago; among its turns, of the
        agent served longest ago, then the oldest turn.
        """
        taken = list(running)
        return min(
            waiting,
            key=lambda turn: (
                taken.count(turn.sender),
                self._served.get(("sender", turn.sender), 0),
                self._served.get(("agent", turn.agent), 0),
                turn.turn_id,
            ),
            default=None,
        )

    def serve(self, turn: Waiting) -> None:
        """Record that a turn is started."""
        for served in (("sender", turn.sender), ("agent", turn.agent)):
            self._served.pop(served, None)  # so that the latest is last
            self._served[served] = next(self._clock)
        while len(self._served) > MOST:
            del self._served[next(iter(self._served))]
