"""What git hooks of Nexus 0.1 start, for one release: what nexus/reservations/guard/run.py does."""

import os
import sys

sys.path.append(os.path.abspath(os.path.join(__file__, "../../..")))  # noqa: PTH100

from nexus.reservations.guard.check import main

sys.exit(main(sys.argv[1:]))
