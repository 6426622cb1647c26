"""A full search for garbage stops every thread for as long as it takes, so it comes while no call is served."""

from __future__ import annotations

import asyncio
import gc

from nexus.core.turns import turns

OBJECTS, SEARCHES = 5_000, 20  # new objects before the youngest are searched, and such searches before the next ones
FEW = 700  # new objects that an idle hub leaves: little garbage by number may be megabytes of answers
LOOK_SECONDS = 1.0
MOST_DEFERRED = 5  # searches of the second kind, some 100,000 objects each, behind which a full one waits no more


async def collect() -> None:
    """Do so for as long as the server lives, instead of in the middle of whichever call makes an object too many."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, SEARCHES, 1_000_000)
    gc.freeze()  # what is there stays, and need not be searched
    try:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            new, once, deferred = gc.get_count()
            if deferred >= MOST_DEFERRED or (turns().is_idle and (new > FEW or once or deferred)):
                gc.collect()
    finally:
        gc.set_threshold(*before)
