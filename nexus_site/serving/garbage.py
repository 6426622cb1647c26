"""Scheduling of full garbage collections: they stop every thread, so they run rarely, and while no call is served.

A full collection visits all objects, which takes tenths of a second with a thousand sessions. So objects that are new
since the last check are collected separately, and what survived a collection of the old ones is left out of the next
until the memory has grown or shrunk much.
"""

from __future__ import annotations

import asyncio
import gc
import sys

from nexus.core.fairness import turns

OBJECTS, SEARCHES = 5_000, 4  # new objects until the youngest are collected, and such collections until the next ones
FEW = 700  # new objects that an idle hub makes
LOOK_SECONDS = 1.0
QUIET_LOOKS = 5  # checks in a row without a call
GROWN, MUCH_GROWN = 1.5, 3.0  # growth since the last full collection: one is due, and one no longer waits
SHRUNK = 0.8  # what is left of the most memory: of what went with the rest, garbage may remain


async def collect() -> None:
    """Collect garbage as long as the server lives, instead of in a call that happens to create one object too many."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, SEARCHES, 1_000_000)
    gc.freeze()  # existing objects stay and need no collection
    left = most = sys.getallocatedblocks()  # after the last collection of all objects, and the most after any since
    quiet = 0
    try:
        while True:
            _, _, before_look = gc.get_count()
            await asyncio.sleep(LOOK_SECONDS)
            new, once, older = gc.get_count()
            called = new > FEW or once > 0 or older != before_look
            quiet = 0 if called else quiet + 1
            blocks, idle = sys.getallocatedblocks(), turns().is_idle
            if blocks > left * MUCH_GROWN or (idle and quiet and (blocks > left * GROWN or blocks < most * SHRUNK)):
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                left = most = sys.getallocatedblocks()
            # Old objects are collected once nobody calls: a few of them may be megabytes of answers.
            elif idle and older and quiet >= QUIET_LOOKS:
                gc.collect()
                gc.freeze()
                most = max(most, sys.getallocatedblocks())
            elif idle and called:
                gc.collect(1)
    finally:
        gc.set_threshold(*before)
