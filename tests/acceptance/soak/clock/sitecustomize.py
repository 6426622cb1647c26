"""A clock that the soak can move: Python runs this at the start of every process that has this directory on its path.

The file that NEXUS_SOAK_CLOCK names holds the offset to the machine's time, in seconds. As when an operator sets the
clock, the date jumps and monotonic time goes on.
"""

import os
import threading
import time
from pathlib import Path

import time_machine

offset_file = Path(os.environ["NEXUS_SOAK_CLOCK"])
offset = float(offset_file.read_text())
traveller = time_machine.travel(time.time() + offset, tick=True).start()


def follow() -> None:
    global offset
    while True:
        wanted = float(offset_file.read_text() or offset)
        traveller.shift(wanted - offset)
        offset = wanted
        time.sleep(0.1)


threading.Thread(target=follow, daemon=True).start()
