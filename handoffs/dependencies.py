"""What waits for what, of handoffs by their keys and of tasks by their numbers: functions over plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_
from typing import TypeVar

K = TypeVar("K", int, str)


def count_waiting(pending: Mapping[K, Collection[K]], named: Mapping[K, str]) -> Counter[str]:
    """Return, by name, how many pending works wait for one of that name, also by way of others. Those that can never
    begin, because some wait for each other, are left out.

    `pending` has what each waits for; `named` are works that were begun. Each work gets a number whose bits are the
    names that it waits for.
    """
    names = list(dict.fromkeys(named.values()))
    bits = {name: 1 << position for position, name in enumerate(names)}
    waits = {work: bits[name] for work, name in named.items()}
    order = in_order(pending)
    for work in order:
        waits[work] = reduce(or_, (waits.get(each, 0) for each in pending[work]), 0)
    counted = Counter(waits[work] for work in order)
    return Counter({name: sum(many for mask, many in counted.items() if mask & bits[name]) for name in names})


def in_order(deps: Mapping[K, Collection[K]]) -> list[K]:
    """Return the works in an order in which they can begin, by what each depends on; those in a circle, and those that
    depend on one, are left out."""
    sorter = TopologicalSorter({work: [each for each in needed if each in deps] for work, needed in deps.items()})
    with suppress(CycleError):
        sorter.prepare()
    found: list[K] = []
    while free := sorter.get_ready():
        found += free
        sorter.done(*free)
    return found
