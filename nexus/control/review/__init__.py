"""The review of finished work: people comment on it, approve it, send it back, take it over or abandon it.

It imports `worktrees`, `runners`, `agents` and `permissions`. Begin with `desk` and `approve` in `reviews.py`.
"""
