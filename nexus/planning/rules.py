"""The rules of tasks' dependencies, over plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Deps = Mapping[int, Sequence[int]]  # by task, its dependencies

PENDING, COMPLETED = "pending", "completed"


def ready(deps: Deps, status: Mapping[int, str]) -> list[int]:
    """Return the pending tasks whose dependencies are all completed, in order. An unknown dependency is never met."""
    return [
        task
        for task, needed in deps.items()
        if status[task] == PENDING and all(status.get(each) == COMPLETED for each in needed)
    ]


def unknown(deps: Deps, task: int) -> list[int]:
    """Return the dependencies of a task that do not exist."""
    return [each for each in dict.fromkeys(deps[task]) if each not in deps]


def cycle_of(deps: Deps, task: int) -> list[int] | None:
    """Return a path from a task along its dependencies back to itself; None where there is none."""
    came_from: dict[int, int] = {}
    waiting = [task]
    while waiting:
        here = waiting.pop()
        for needed in deps.get(here, ()):
            if needed == task:
                way = [here]
                while way[-1] != task:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if needed in deps and needed not in came_from:
                came_from[needed] = here
                waiting.append(needed)
    return None
