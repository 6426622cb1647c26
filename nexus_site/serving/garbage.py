"""A full search for garbage stops every thread while it lasts, so it comes rarely, and while no call is served.

It looks at all that lives, which with a thousand sessions takes tenths of a second. What came since the last look is
searched by itself.
"""

from __future__ import annotations

import asyncio
import gc
import sys

from nexus.core.turns import turns

OBJECTS, SEARCHES = 5_000, 4  # new objects before the youngest are searched, and such searches before the next ones
FEW = 700  # new objects that a hub makes which nobody calls
LOOK_SECONDS = 1.0
QUIET_LOOKS = 5  # in a row that find nobody has called
GROWN, MUCH_GROWN = 1.5, 2.0  # times what the last full search left: from when on one is due, and waits no more


async def collect() -> None:
    """Do so for as long as the server lives, instead of in the middle of whichever call makes an object too many."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, SEARCHES, 1_000_000)
    gc.freeze()  # what is there stays, and need not be searched
    left, quiet = sys.getallocatedblocks(), 0
    try:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            new, once, older = gc.get_count()
            called = new > FEW or once > 0
            quiet = 0 if called else quiet + 1
            grown = sys.getallocatedblocks() / left
            idle = turns().is_idle
            # What grew old is searched once nobody calls: little garbage by number may be megabytes of answers.
            if grown > MUCH_GROWN or (idle and (grown > GROWN or (older and quiet >= QUIET_LOOKS))):
                gc.collect()
                left = sys.getallocatedblocks()
            elif idle and called:
                gc.collect(1)
    finally:
        gc.set_threshold(*before)
