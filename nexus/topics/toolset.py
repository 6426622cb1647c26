"""The toolset of topics, compatible with clients of Agent Bus."""

from __future__ import annotations

from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import packaged
from nexus.topics.replies import REPLY

TOPICS = Toolset(
    "topics",
    "Rooms that peers join by a name of their own: one ordered stream each, cursors that survive restarts, search.",
    reply=REPLY,
    instructions=packaged("nexus.topics", "instructions"),
    modules=(  # in the order in which agents see them; most agents need neither
        "nexus.topics.operations",
        "nexus.topics.administration",
        "nexus.topics.resources",
    ),
)
operation = TOPICS.operation
