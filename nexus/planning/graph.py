"""The dependency graph of a cycle's tasks: in order, and as a flowchart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nexus.core.cli import one_line
from nexus.planning import rules
from nexus.planning.schemas import TaskEntry

CRITICAL = "stroke-width:3px"


class Node(NamedTuple):
    """A task in the graph."""

    id: int
    title: str
    state: str  # ready, or its status
    step: int | None  # the longest chain up to it, from 1; None in a dependency cycle, where it is never ready
    waits_for: list[int]


class Graph(NamedTuple):
    """The tasks in an order in which they can be done, and the longest chain of unfinished tasks."""

    nodes: list[Node]
    critical_path: list[int]


def drawn(tasks: Sequence[TaskEntry]) -> Graph:
    """Return the graph of a cycle's tasks; tasks in a dependency cycle come last."""
    deps = {task["id"]: task["deps"] for task in tasks}
    status = {task["id"]: str(task["status"]) for task in tasks}
    ready, layers = set(rules.ready(deps, status)), rules.layers(deps)
    nodes = [
        Node(
            number,
            task["title"],
            "ready" if number in ready else status[number],
            layers[number] + 1 if number in layers else None,
            deps[number],
        )
        for task in tasks
        for number in [task["id"]]
    ]
    nodes.sort(key=lambda node: len(tasks) + 1 if node.step is None else node.step)
    return Graph(nodes, rules.critical_path(deps, {number for number in status if status[number] == rules.COMPLETED}))


def mermaid(graph: Graph) -> str:
    """Return the graph in Mermaid's language; an unknown dependency is a node of its own."""
    known = {node.id for node in graph.nodes}
    lines = ["flowchart LR"]
    lines += [f'  t{node.id}["{node.id}. {_label(node.title)} ({node.state})"]' for node in graph.nodes]
    lines += [f"  {_name(each)} --> t{node.id}" for node in graph.nodes for each in dict.fromkeys(node.waits_for)]
    missing = sorted({each for node in graph.nodes for each in node.waits_for} - known)
    lines += [f'  {_name(each)}["{each}. is not there"]' for each in missing]
    lines += [f"  style t{number} {CRITICAL}" for number in graph.critical_path]
    return "\n".join(lines)


def _name(number: int) -> str:
    return f"t{number}".replace("-", "m")  # a foreign file may contain a negative number


def _label(title: str) -> str:
    """Return a title that cannot end its quotes: all characters but letters, digits and blanks are escaped."""
    return "".join(each if each.isalnum() or each == " " else f"#{ord(each)};" for each in one_line(title))
