"""The entry point of git's hooks, run with `python -I -S`: only the standard library and Nexus's own modules."""

import os
import sys

sys.path.append(os.path.abspath(os.path.join(__file__, "../../../..")))  # noqa: PTH100

from nexus.core import surroundings
from nexus.reservations.guard.check import main

surroundings.open_streams()
sys.exit(main(sys.argv[1:]))
