"""Agents' own worktrees: made, compared, checked, merged, kept and discarded.

`trees.py` and `merging.py` are the steps in git, each done completely or not at all; `worktrees.py` and
`lane.py` decide which step is taken, and store it; `verification.py` runs the checks of results.

It imports `runners`, `agents` and `permissions`. Begin with `worktrees.py`, and with `lane.py` for the merge queue.
"""
