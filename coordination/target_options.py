"""Command options that name a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from coordination import selectors
from coordination.routing import tags_in
from nexus.core.verbs import Option

AGENT = Option("agent_id", exists=selectors.get_agent)  # a mistyped name is an error


def add_target(parser: CommandParser, *, everybody: str, required: bool = True) -> None:
    """Add --to, --role, --capability, --tag and --everybody, of which one may be given; `everybody` is the help of the
    last."""
    target = parser.add_mutually_exclusive_group(required=required)
    target.add_argument("--to", metavar="AGENT", help="One agent, present or not.")
    target.add_argument("--role", help="All agents in this role.")
    target.add_argument("--capability", help="All agents that have this capability.")
    target.add_argument(
        "--tag",
        action="append",
        metavar="KEY=VALUE",
        help="All agents with this tag of `nexus tags`. Again for one more value of a key, or for a key more.",
    )
    target.add_argument("--everybody", action="store_true", help=everybody)


def target_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target that the options name. Raises VALIDATION_ERROR for a tag that is written otherwise."""
    if options["tag"]:
        return {"strategy": "tag", "selector": tags_in(options["tag"])}
    for strategy, field, value in (
        ("direct", "agent_id", options["to"]),
        ("role", "role", options["role"]),
        ("capability", "capability", options["capability"]),
    ):
        if value is not None:
            return {"strategy": strategy, field: value}
    return {"strategy": "broadcast"}
