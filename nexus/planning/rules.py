"""The rules of tasks' dependencies, over plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

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


def count_waiting(pending: Deps, named: Mapping[int, str]) -> Counter[str]:
    """Return, by name, how many pending tasks wait for a task of that name, also by way of others. Those that can never
    begin, because some wait for each other, are left out.

    `named` are tasks that were begun. Each task gets a number whose bits are the names that it waits for.
    """
    names = list(dict.fromkeys(named.values()))
    bits = {name: 1 << position for position, name in enumerate(names)}
    waits = {task: bits[name] for task, name in named.items()}
    depth = layers(pending)
    for task in sorted(depth, key=depth.__getitem__):
        waits[task] = reduce(or_, (waits.get(each, 0) for each in pending[task]), 0)
    counted = Counter(waits[task] for task in depth)
    return Counter({name: sum(many for mask, many in counted.items() if mask & bits[name]) for name in names})


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


def layers(deps: Deps) -> dict[int, int]:
    """Return the length of the longest chain before each task; tasks of a dependency cycle and their dependents are
    left out."""
    depth: dict[int, int] = {}
    left = {task: {each for each in needed if each in deps} for task, needed in deps.items()}
    followers: dict[int, list[int]] = {task: [] for task in deps}
    for task, needed in left.items():
        for each in needed:
            followers[each].append(task)
    free = [task for task, needed in left.items() if not needed]
    for task in free:
        depth[task] = 0
    while free:
        task = free.pop()
        for follower in followers[task]:
            left[follower].discard(task)
            depth[follower] = max(depth.get(follower, 0), depth[task] + 1)
            if not left[follower]:
                free.append(follower)
    return {task: depth[task] for task in deps if not left[task]}
