"""What is public of the pool."""

from nexus.control.operations import agents, pool, questions, waking, worktrees  # noqa: F401
