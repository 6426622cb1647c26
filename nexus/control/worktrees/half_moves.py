"""Background work at a hub's start: find work trees where a kill of the hub cut a merge in two, and bring their files
back to before it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from nexus.control.runners.git import GitFailed, Origin
from nexus.control.worktrees import merging, trees, worktrees
from nexus.control.worktrees.moving import Locked
from nexus.core.background_work import Work

log = logging.getLogger(__name__)


class HalfMoves(Work[Origin, bool]):
    """Looks once at each work tree that agents' worktrees merge into. One where git may still run is looked at
    again."""

    name = "half-moves"
    tick_seconds = 15.0

    @cached_property
    def _left(self) -> dict[str, Origin]:
        return {origin.top: origin for origin in worktrees.origins()}

    def lanes(self) -> Sequence[str]:
        return list(self._left)

    def claim(self, lane: str) -> Origin | None:
        return self._left.get(lane)

    def act(self, item: Origin) -> bool:
        """Return whether it is over."""
        try:
            merging.roll_back(item)
        except (trees.Busy, Locked):
            return False
        except (GitFailed, OSError) as error:
            log.warning("Nobody knows whether a kill cut a merge in two in %s: %s", item.top, error)
        return True

    def given_up(self, item: Origin, why: str) -> bool:
        log.warning("Nobody knows whether a kill cut a merge in two in %s: %s", item.top, why)
        return True

    def settle(self, item: Origin, outcome: bool) -> bool:
        if outcome:
            del self._left[item.top]
        return outcome
