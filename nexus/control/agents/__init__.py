"""Agents of the pool: from their creation to their end, their turns, transcripts and questions, and what wakes them.

A turn is an intent in the database. This package queues it, hands it to one worker, and settles it once; it does not
know how a turn is run.

It imports `permissions`. Begin with `send`, `claim` and `settle_turn` in `turns.py`; `pool.py` creates and ends agents.
"""
